"""How far apart two solutions of one design are: the part of a model's error that the mesh has.

    courant generate branched-pipe --designs STORE/branched-pipe --set mesh_size=6.8 --store AGAIN
    python -m bench.mesh_noise STORE/branched-pipe AGAIN/branched-pipe

The first command solves the test designs of a dataset again, on cells 3 % smaller. For each design
in both datasets the second compares the fields, on the first one's points, by the NMAE of
`courant evaluate`. Values between meshes are a linear fit to the 12 nearest points. What that costs
is measured on a third dataset of the same designs on a finer mesh, if one is named: its fields are
interpolated to both meshes, then from the second to the first.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import KDTree

import simgen
from bench.report import publish
from courant.evaluation.metrics import ErrorSums
from simgen.errors import InputError
from simgen.store.read import StoredCase

NEAREST = 12


@dataclass(frozen=True)
class Field:
    """Values (N, C) at places (N, 3) m."""

    places: np.ndarray
    values: np.ndarray

    @classmethod
    def of(cls, case: StoredCase, components: list[str]) -> Field:
        channels = [name.partition(".")[::2] for name in components]
        read = {field: np.asarray(case[field][:], dtype=float) for field, _ in channels}
        columns = [read[field][:, "xyz".index(of) if of else 0] for field, of in channels]
        return cls(np.asarray(case.points, dtype=float), np.stack(columns, axis=1))

    def at(self, wanted: np.ndarray) -> np.ndarray:
        """Fit the values linearly about each wanted place (M, 3): (M, C)."""
        distance, nearest = KDTree(self.places).query(wanted, k=NEAREST)
        weights = 1 / np.maximum(distance, 1e-9)[..., None]
        offsets = self.places[nearest] - wanted[:, None]
        terms = np.concatenate([np.ones_like(weights), offsets], axis=-1)
        # A single layer of cells has no slope across it: the pseudo-inverse leaves it at zero.
        inverse = np.linalg.pinv(terms * weights, rcond=1e-6)
        return np.asarray((inverse @ (self.values[nearest] * weights))[:, 0])


def error(prediction: np.ndarray, truth: np.ndarray, components: list[str]) -> float:
    sums = ErrorSums(components)
    sums.add(prediction[None], truth[None])
    return sums.total()["nmae"]


def cases_by_design(url: str) -> dict[tuple[float, ...], StoredCase]:
    dataset = simgen.open_dataset(url)
    if dataset.schema.transient:
        raise InputError(f"{url} is transient: two meshes are compared on steady fields")
    cases = (dataset[case] for case in dataset.cases())
    return {tuple(round(v, 6) for _, v in sorted(of.parameters.items())): of for of in cases}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.mesh_noise", description=__doc__)
    parser.add_argument("first", help="a steady dataset")
    parser.add_argument("second", help="the same designs on another mesh")
    parser.add_argument("--finer", help="the same designs on a finer mesh, as a control")
    parser.add_argument("--fields", default="velocity.x,velocity.z", help="<field>.<component>, …")
    parser.add_argument("--out", type=Path, default=Path("bench-out"))
    asked = parser.parse_args()
    components = asked.fields.split(",")
    first, second = cases_by_design(asked.first), cases_by_design(asked.second)
    finer = cases_by_design(asked.finer) if asked.finer else None
    rows = []
    for design in first:
        if design not in second or (finer is not None and design not in finer):
            continue
        one, other = Field.of(first[design], components), Field.of(second[design], components)
        row: dict[str, Any] = {"case": first[design].id, "cells": len(one.places)}
        row["NMAE between the meshes"] = error(other.at(one.places), one.values, components)
        if finer is not None:
            true = Field.of(finer[design], components)
            here, there = true.at(one.places), Field(other.places, true.at(other.places))
            row["of which interpolation"] = error(there.at(one.places), here, components)
            row["to the finer mesh"] = error(here, one.values, components)
        rows.append(row)
    if not rows:
        parser.error(f"{asked.first} and {asked.second} have no design in common")
    summary: dict[str, Any] = {}
    for name in [*rows[0]][2:]:
        values = [row[name] for row in rows]
        summary[f"mean {name}"] = float(np.mean(values))
        summary[f"median {name}"] = float(np.median(values))
    asked.out.mkdir(parents=True, exist_ok=True)
    publish(asked.out, "mesh_noise", rows, **summary)


if __name__ == "__main__":
    main()
