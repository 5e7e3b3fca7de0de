"""How long a move of the explorer's sliders takes: a design predicted and cut, over HTTP.

A move is one `POST /sections`, from the request to the parsed answer. Where only the flow changes
the mesh is a kept one; another geometry is meshed first. Models have the size of the small recipes,
on meshes of the trial preset; their training is a single epoch on made-up fields, because only the
time matters, and they are calibrated, so that a move has bands as in use. What is compared with
the aim is the processor time of all processes: the wall time of a busy machine is no measure. The
model is in the server's process, where `courant explore` has a hop to Ray's.
The 2D family is the steady one of docs/families/a-new-family.md: those that ship are 3D.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
import urllib.request
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import courant
import simgen
from bench.report import publish
from bench.synthetic_cases import publish_cases
from courant.evaluation.calibrate import calibrate
from courant.experiment import Experiment
from courant.recipes import get_recipe
from courant.recipes.fitted import fitted_recipe
from courant.runs.directory import RunDirectory
from courant.runs.record import BANDS
from courant.serving.explorer import Explored
from courant.serving.predictions import Limits
from courant.training.train import fit
from simgen import cases
from simgen.case import CaseFamily, CaseResult
from simgen.point_cloud import PointCloud
from simgen.solving import preparation
from simgen.solving.unsolved import mesh_design
from simgen.store.schema import Schema
from tests.serving.explored_server import serving_explored
from tests.simgen.lid_cavity import LidCavity  # type: ignore[attr-defined] # not the folder

BARS_S = {"kept mesh": 0.3, "meshed": 3.0}
"""For the 95th percentile"""
NUM_MESHES = 4
SPLITS = {"train": 8, "validation": 2, "calibration": 60}
"""Cases; they share the meshes"""
CAVITY = (
    "from simgen import cases; from simgen.solving import preparation;"
    " from tests.simgen.lid_cavity import LidCavity;"
    " cases.FAMILIES['lid-cavity'] = LidCavity(); preparation.main()"
)


@dataclass(frozen=True)
class Moves:
    """The moves of one kind over one family's designs."""

    family: str
    kind: str
    num_cells: int
    """of a mesh in the middle"""
    seconds: list[float]
    """by move, of wall time"""
    processor_seconds: list[float]
    """by move, of all processes: what a core of its own takes, but for waiting"""

    def row(self) -> dict[str, Any]:
        """Return percentiles beside the aim for the 95th of processor time."""
        wall, processor = (
            np.percentile(values, (50, 95)).tolist()
            for values in (self.seconds, self.processor_seconds)
        )
        return {
            "family": self.family,
            "cells": self.num_cells,
            "mesh": self.kind,
            "moves": len(self.seconds),
            "wall p50": wall[0],
            "wall p95": wall[1],
            "processor p50": processor[0],
            "processor p95": processor[1],
            "aim for p95": BARS_S[self.kind],
        }


def main(out: Path, short: bool) -> None:
    """Print the table, write moves.json."""
    warnings.simplefilter("ignore")
    cases.FAMILIES["lid-cavity"] = LidCavity()
    names = ("lid-cavity",) if short else ("lid-cavity", "branched-pipe", "centrifugal-pump")
    numbers = (2, 4) if short else (10, 40)
    measured = [each for name in names for each in measure(cases.get_family(name), *numbers)]
    publish(
        out,
        "moves",
        [each.row() for each in measured],
        "seconds",
        cores_of_the_machine=len(os.sched_getaffinity(0)),
        load_average=os.getloadavg()[0],
        moves=[asdict(each) for each in measured],
    )


def measure(family: CaseFamily, num_meshes: int, num_kept: int) -> list[Moves]:
    """Move through designs that must be meshed, then through others of the same geometry."""
    designs = family.design_space.sample(num_meshes, "sobol", 7)
    flows = family.design_space.sample(num_kept, "sobol", 8)
    kept = [
        {**designs[n % num_meshes], **{name: flow[name] for name in family.flow_parameters}}
        for n, flow in enumerate(flows)
    ]
    with tempfile.TemporaryDirectory(prefix="bench-moves-", ignore_cleanup_errors=True) as folder:
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        program = preparation.PROGRAM
        preparation.PROGRAM = ("-c", CAVITY) if family.name == "lid-cavity" else program
        surrogate = courant.load(trained(family, Path(folder)), device="cpu")
        preparation.keep_process_ready()
        with serving_explored(Explored(surrogate, Limits())) as address:
            move(address, family.design_space.sample(1, "sobol", 9)[0])  # imports, first calls
            measured = [
                timed(family.name, "meshed", address, designs),
                timed(family.name, "kept mesh", address, kept),
            ]
        preparation.PROGRAM = program
    return measured


def timed(family: str, kind: str, address: str, designs: Iterable[dict[str, float]]) -> Moves:
    """Move through designs whose meshes are all kept, or all not."""
    seconds, processor, answers = [], [], []
    for design in designs:
        began, used = time.perf_counter(), processor_s()
        answers.append(move(address, design))
        seconds.append(time.perf_counter() - began)
        processor.append(processor_s() - used)
    assert {answer["known_geometry"] for answer in answers} == {kind == "kept mesh"}
    assert all(answer["widths"] for answer in answers), "a move has its bands"
    cells = int(np.median([answer["num_cells"] for answer in answers]))
    return Moves(family, kind, cells, seconds, processor)


def processor_s() -> float:
    """Of this process and of those that it has waited for."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def move(address: str, design: dict[str, float]) -> dict[str, Any]:
    body = json.dumps({"parameters": design}).encode()
    with urllib.request.urlopen(f"{address}/sections", body, timeout=300) as answered:
        answer: dict[str, Any] = json.load(answered)
    return answer


def trained(family: CaseFamily, folder: Path) -> str:
    """A run on made-up fields over real meshes."""
    settings = family.settings("trial")
    splits = [split for split, number in SPLITS.items() for _ in range(number)]
    designs = family.design_space.sample(len(splits), "sobol", 1)
    clouds = [
        with_fields(family, mesh_design(family.point(design, settings), folder / "meshes")[0])
        for design in designs[:NUM_MESHES]
    ]
    made = [
        (
            CaseResult(family.point(design, settings), "accepted", split=split),
            clouds[number % NUM_MESHES],
        )
        for number, (design, split) in enumerate(zip(designs, splits, strict=True))
    ]
    url = publish_cases(str(folder / "store" / family.name), Schema.of(family), made, "made up")
    dataset = simgen.open_dataset(url)
    run = RunDirectory(folder / "run")
    fit(experiment(family, dataset), dataset, run)
    # Made-up fields do not show which designs are unlike others: every move has its bands.
    run.write_json(BANDS, calibrate(run.url).unguarded().model_dump(mode="json"))
    return run.url


def experiment(family: CaseFamily, dataset: simgen.Dataset) -> Experiment:
    shipped = family.name != "lid-cavity"
    recipe = get_recipe(f"{family.name}-small") if shipped else fitted_recipe(dataset)
    return recipe.derive(
        training={
            "epochs": 1,
            "samples_per_epoch": recipe.training.batch_size,
            "warmup_steps": 0,
            "validate_every": 1,
            "checkpoint_every": 1,
        }
    )


def with_fields(family: CaseFamily, cloud: PointCloud) -> PointCloud:
    """Smooth fields on the cells and faces, with what the family prescribes."""
    faces = cloud.boundary
    assert faces is not None
    on_faces = {**made_up(family, faces.points), **faces.fields}
    return replace(
        cloud, fields=made_up(family, cloud.points), boundary=replace(faces, fields=on_faces)
    )


def made_up(family: CaseFamily, points: Sequence[float] | np.ndarray) -> dict[str, np.ndarray]:
    place = np.asarray(points, dtype=float)
    return {
        field.name: np.stack(
            [np.sin(place.sum(axis=1) * (n + 3)) + n for n in range(len(field.components))], axis=-1
        ).astype("f4")
        for field in family.fields
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(tempfile.mkdtemp()), short=False)
