"""Plane and axisymmetric cases train as they come, whatever plane or axis they lie in."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import simgen
from courant.evaluation.evaluate import evaluate
from courant.problems import open_problem
from courant.recipes.fitted import fitted_recipe
from courant.runs.directory import RunDirectory
from courant.training.train import fit
from simgen.imports.folder import FolderOptions
from simgen.imports.openfoam import FoamOptions
from tests.imports.foam_cases import import_openfoam, plan_openfoam, write_case

VECTOR = re.compile(r"\((\S+) (\S+) (\S+)\)")
HALF_ANGLE = np.deg2rad(2.5)
SMALL = {"width": 24, "num_heads": 2, "num_anchors": 8, "num_levels": 1}
SHORT = {"epochs": 2, "samples_per_epoch": 16, "warmup_steps": 0, "validate_every": 1}


def change_vectors(file: Path, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Change each `(x y z)` of an ascii file."""

    def changed(found: re.Match[str]) -> str:
        return f"({' '.join(map(repr, change(np.array(found.groups(), float)).tolist()))})"

    file.write_text(VECTOR.sub(changed, file.read_text()))


def bend(point: np.ndarray) -> np.ndarray:
    """Make a wedge about the x axis of the box, from the radius 1 on."""
    x, y, z = point
    return np.array([x, y + 1, (2 * z - 1) * (y + 1) * np.tan(HALF_ANGLE)])


def turned(shift: int, wedge: bool) -> Callable[[Path], None]:
    """Return what turns the box, and its vectors, so that x becomes the axis `shift`."""
    noise = np.random.default_rng(0)

    def change(case: Path) -> None:
        mesh = case / "constant/polyMesh"
        if wedge:
            change_vectors(mesh / "points", bend)
            text = (mesh / "boundary").read_text()
            (mesh / "boundary").write_text(text.replace("type empty", "type wedge"))
        change_vectors(mesh / "points", lambda point: np.roll(point, shift))
        for file in case.glob("*/U"):
            if wedge:
                file.write_text(file.read_text().replace("type empty", "type wedge"))
                change_vectors(
                    file, lambda vector: vector + np.array([0, 0, 5e-15 * noise.normal()])
                )
            change_vectors(file, lambda vector: np.roll(vector, shift))

    return change


@pytest.mark.parametrize("wedge", [False, True], ids=["plane", "wedge"])
@pytest.mark.parametrize("shift", [0, 1, 2])
def test_a_case_in_any_plane_trains(shift: int, wedge: bool, tmp_path: Path) -> None:
    """The component across the plane is constant, or noise in a wedge: no channel."""
    for number in range(9):
        write_case(tmp_path / f"cases/run{number}", speed=1 + number, change=turned(shift, wedge))
    options = FoamOptions(fields={"U": "", "p": ""})
    asked = FolderOptions(tmp_path / "cases", str(tmp_path / "store/plane"), "plane")
    dataset = simgen.open_dataset(import_openfoam(plan_openfoam(asked, options), options).url)
    assert dataset.schema.dimension == (2 if shift == 0 and not wedge else 3)
    experiment = fitted_recipe(dataset).derive(model=SMALL, training=SHORT)
    components = [np.roll(list("xyz"), -shift)[at] for at in (0, 1)]
    channels = [each.name for each in open_problem(experiment, dataset).normaliser.channels]
    assert set(channels) == {f"velocity.{each}" for each in components} | {"kinematic_pressure.p"}
    run = RunDirectory(tmp_path / "run")
    fit(experiment, dataset, run)
    evaluation = evaluate(run.url)
    assert 0 < evaluation.overall["model"].nmae < 2
