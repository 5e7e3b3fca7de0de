"""How long a move of the explorer's sliders takes: a design predicted and cut, over HTTP.

A move is one `POST /sections`, from the request to the parsed answer. Where only the flow changes
the mesh is a kept one; another geometry is meshed first. Models have the size of the small recipes,
on meshes of the trial preset; they are trained for an epoch on made-up fields and calibrated. The
processor time of all processes is compared with the aim: wall time on a busy machine is no measure.
The 2D family is the steady one of docs/families/a-new-family.md: those that ship are 3D.
"""

import json
import os
import tempfile
import time
import urllib.request
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import courant
import simgen
from bench.report import publish
from bench.synthetic_cases import publish_cases
from courant.evaluation.calibrate import calibrate
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

NUM_MESHES = 4
SPLITS = {"train": 8, "validation": 2, "calibration": 60}
"""Cases; they share the meshes"""
CAVITY = (
    "from simgen import cases; from simgen.solving import preparation;"
    " from tests.simgen.lid_cavity import LidCavity;"
    " cases.FAMILIES['lid-cavity'] = LidCavity(); preparation.main()"
)


def main(out: Path, short: bool) -> None:
    """Print the table, write moves.json."""
    warnings.simplefilter("ignore")
    cases.FAMILIES["lid-cavity"] = LidCavity()
    names = ("lid-cavity",) if short else ("lid-cavity", "branched-pipe", "centrifugal-pump")
    numbers = (2, 4) if short else (10, 40)
    rows = [row for name in names for row in measure(cases.get_family(name), *numbers)]
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    publish(out, "moves", rows, "seconds", cores_of_the_machine=cores, load_average=load)


def measure(family: CaseFamily, num_meshes: int, num_kept: int) -> list[dict[str, Any]]:
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
            rows = [
                {"family": family.name, "mesh": kind, **timed(address, some, kind == "kept")}
                for kind, some in (("meshed", designs), ("kept", kept))
            ]
        preparation.PROGRAM = program
    return rows


def timed(address: str, designs: Sequence[dict[str, float]], kept: bool) -> dict[str, Any]:
    """Move through designs whose meshes are all kept, or all not; percentiles beside the aim.

    Processor time is of this process and of those that it has waited for.
    """
    wall, processor, answers = [], [], []
    for design in designs:
        began, used = time.perf_counter(), sum(os.times()[:4])
        answers.append(move(address, design))
        wall.append(time.perf_counter() - began)
        processor.append(sum(os.times()[:4]) - used)
    assert {answer["known_geometry"] for answer in answers} == {kept}
    assert all(answer["widths"] for answer in answers), "a move has its bands"
    found = {"wall": np.percentile(wall, (50, 95)), "processor": np.percentile(processor, (50, 95))}
    return {
        "cells": int(np.median([answer["num_cells"] for answer in answers])),
        "moves": len(designs),
        **{
            f"{of} p{q}": float(v)
            for of, vs in found.items()
            for q, v in zip((50, 95), vs, strict=True)
        },
        "aim for processor p95": 0.3 if kept else 3.0,
    }


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
    shipped = family.name != "lid-cavity"
    recipe = get_recipe(f"{family.name}-small") if shipped else fitted_recipe(dataset)
    short = {"epochs": 1, "warmup_steps": 0, "validate_every": 1, "checkpoint_every": 1}
    batch = recipe.training.batch_size
    fit(recipe.derive(training={**short, "samples_per_epoch": batch}), dataset, run)
    # Made-up fields do not show which designs are unlike others: every move has its bands.
    free = calibrate(run.url).model_copy(update={"reach": None, "ranges": ()})
    run.write_json(BANDS, free.model_dump(mode="json"))
    return run.url


def with_fields(family: CaseFamily, cloud: PointCloud) -> PointCloud:
    """Smooth fields on the cells and faces, with what the family prescribes."""

    def made_up(points: np.ndarray) -> dict[str, np.ndarray]:
        phase = points.astype(float).sum(axis=1)
        return {
            field.name: np.stack(
                [np.sin(phase * (n + 3)) + n for n in range(len(field.components))], axis=-1
            ).astype("f4")
            for field in family.fields
        }

    faces = cloud.boundary
    assert faces is not None
    on_faces = {**made_up(faces.points), **faces.fields}
    return replace(cloud, fields=made_up(cloud.points), boundary=replace(faces, fields=on_faces))
