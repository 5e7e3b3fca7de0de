r"""How far apart two solutions of one design are: the part of a model's error that the mesh has.

    courant generate branched-pipe --designs STORE/branched-pipe --set mesh_size=6.8 --store AGAIN
    python -m bench.mesh_noise STORE/branched-pipe AGAIN/branched-pipe \
        --fields velocity.x,velocity.z

The first command solves the test designs of a dataset again, on cells 3 % smaller. For each design
in both datasets the second compares the fields, on the first one's points, by the NMAE of
`courant evaluate`. Values between meshes are a linear fit to the 12 nearest points. What that costs
is measured on a third dataset of the same designs on a finer mesh, if one is named: its fields are
interpolated to both meshes, then from the second to the first.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import KDTree

import simgen
from bench.report import publish
from courant.data.normalisation import select_channels
from courant.evaluation.metrics import ErrorSums
from courant.prediction.answers import SAME_DESIGN
from courant.problems.problem import read_states
from simgen.errors import InputError, SimgenError
from simgen.store.read import Dataset, StoredCase

NEAREST = 12


def interpolate(places: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Fit values (N, C) at places (N, 3) linearly about each wanted place (M, 3): (M, C)."""
    distance, nearest = KDTree(places).query(wanted, k=NEAREST)
    weights = 1 / np.maximum(distance, 1e-9)[..., None]
    offsets = places[nearest] - wanted[:, None]
    terms = np.concatenate([np.ones_like(weights), offsets], axis=-1)
    # A single layer of cells has no slope across it: the pseudo-inverse leaves it at zero.
    inverse = np.linalg.pinv(terms * weights, rcond=1e-6)
    return np.asarray((inverse @ (values[nearest] * weights))[:, 0])


def same_design(dataset: Dataset, case: StoredCase) -> StoredCase | None:
    """Return the dataset's case of another case's design; None where there is none."""
    nearest, distance = next(iter(dataset.distances(case.parameters).items()))
    return dataset[nearest] if distance <= SAME_DESIGN else None


def compare(urls: list[str], names: list[str] | None) -> list[dict[str, Any]]:
    """Return a row for each design that is in all datasets: the first, the second, a finer one."""
    datasets = [simgen.open_dataset(url) for url in urls]
    schema = datasets[0].schema
    if schema.transient:
        raise InputError(f"{urls[0]} is transient: steady fields are compared")
    for other in datasets[1:]:
        if other.schema.family != schema.family:
            raise InputError(f"{other.url} holds {other.schema.family}, not {schema.family}")
    channels = select_channels(schema, names or [each.name for each in schema.of_role("solved")])

    def error(prediction: np.ndarray, truth: np.ndarray) -> float:
        sums = ErrorSums([channel.name for channel in channels])
        sums.add(prediction[None], truth[None])
        return sums.total()["nmae"]

    rows = []
    for case in datasets[0].cases():
        found = [same_design(dataset, datasets[0][case]) for dataset in datasets]
        cases = [each for each in found if each is not None]
        if len(cases) < len(datasets):
            continue
        places = [np.asarray(each.points, dtype=float) for each in cases]
        fields = [np.asarray(read_states(each, channels), dtype=float) for each in cases]
        row: dict[str, Any] = {"case": case, "cells": len(places[0])}
        again = interpolate(places[1], fields[1], places[0])
        row["NMAE between the meshes"] = error(again, fields[0])
        if len(cases) > 2:
            here, there = (interpolate(places[2], fields[2], to) for to in places[:2])
            row["of which interpolation"] = error(interpolate(places[1], there, places[0]), here)
            row["to the finer mesh"] = error(here, fields[0])
        rows.append(row)
    if not rows:
        raise InputError(f"{', '.join(urls)} have no design in common")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.mesh_noise", description=__doc__)
    parser.add_argument("first", help="a steady dataset")
    parser.add_argument("second", help="the same designs on another mesh")
    parser.add_argument("--finer", help="the same designs on a finer mesh, as a control")
    parser.add_argument("--fields", help="such as velocity.x,velocity.z; default: all solved ones")
    parser.add_argument("--out", type=Path, default=Path("bench-out"))
    asked = parser.parse_args()
    urls = [asked.first, asked.second, *([asked.finer] if asked.finer else [])]
    try:
        rows = compare(urls, asked.fields and asked.fields.split(","))
    except SimgenError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    summary: dict[str, Any] = {}
    for name in [*rows[0]][2:]:
        values = [row[name] for row in rows]
        summary[f"mean {name}"] = float(np.mean(values))
        summary[f"median {name}"] = float(np.median(values))
    asked.out.mkdir(parents=True, exist_ok=True)
    publish(asked.out, "mesh_noise", rows, **summary)
    return 0


if __name__ == "__main__":
    sys.exit(main())
