"""The folder in which a reader of the pages works, with tiny things under the pages' own names.

So the lines of a page run as they stand: `demo-run` has the demo's 24 designs, whose fields are a
wave in closed form; `STORE` ducts that pass for branched pipes and pumps; `RUN` is a link to a
model that was trained on either for a second.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import simgen
from courant.evaluation.calibrate import calibrate
from courant.experiment import Experiment
from courant.recipes import get_recipe
from courant.runs.directory import RunDirectory
from courant.training.train import fit
from simgen.case import CaseResult
from simgen.cases import get_family
from simgen.point_cloud import PointCloud
from simgen.store.schema import Schema
from simgen.store.split import Split
from simgen.store.write import DatasetWriter
from tests.documentation.snippets import ROOT
from tests.documentation.sources import write_sources
from tests.imports.darcy import import_darcy
from tests.world import SPACE, duct, tiny_steady, travelling_wave

TRANSIENT = "demo-run/runs/cylinder-flow-demo-0123456789"
OTHER = "demo-run/runs/cylinder-flow-demo-1123456789"
THIRD = "demo-run/runs/cylinder-flow-demo-2123456789"
STEADY = "runs/branched-pipe-small-0123456789"
NUM_FRAMES, INTERVAL_S = 150, 2.0
PIPES_SIZE, COARSER, GRIDS = 10.0, (12.0,), (10.0, 7.0, 5.0, 3.5)  # mm, of their cells
TINY = {"num_anchors": 16, "width": 24, "num_heads": 2, "num_levels": 1}


def build_world(folder: Path) -> None:
    """Publish the datasets and train the models; some ten seconds."""
    torch.set_num_threads(1)
    _publish_demo(folder / "demo-run/store/cylinder-flow")
    demo = simgen.open_dataset(folder / "demo-run/store/cylinder-flow")
    for seed, place in enumerate((TRANSIENT, OTHER, THIRD)):
        fit(tiny_demo(seed), demo, RunDirectory(folder / place))
    pipes = folder / "STORE/branched-pipe"
    _publish_pipes(pipes)
    all_fields = {"fields": ("velocity", "kinematic_pressure")}
    steady = tiny_steady(epochs=1).derive(
        model={"num_outputs": 4, "num_features": 4}, data=all_fields
    )
    fit(steady, simgen.open_dataset(pipes, "v1"), RunDirectory(folder / STEADY))
    calibrate(str(folder / STEADY))
    _publish_pumps(folder / "STORE/centrifugal-pump")
    space = get_family("branched-pipe").design_space
    _publish_meshes(folder / "grids/branched-pipe", space.sample(5, "sobol", 42), GRIDS)
    _publish_meshes(folder / "COARSE/branched-pipe", _pipe_designs()[22:], COARSER)
    import_darcy(str(folder / "STORE/darcy-flow"), num_train=4, num_test=2)
    _link(folder, "STORE/cylinder-flow", "demo-run/store/cylinder-flow")
    _link(folder, "RUNS", "demo-run/runs")
    for name in ("OTHER-RUN", "REFINED-RUN", "RUN_OF_ANOTHER_SEED"):
        _link(folder, name, OTHER)
    _link(folder, "THIRD-RUN", THIRD)
    write_sources(folder)
    _write_experiments(folder)
    _link(folder, "infra", str(ROOT / "infra"))


def copy_world(world: Path, folder: Path, run: str) -> None:
    """Give a page a copy of its own, with `RUN` and `DATASET` of the kind that it speaks of."""
    shutil.copytree(world, folder, symlinks=True, dirs_exist_ok=True)
    _link(folder, "RUN", run)
    _link(folder, "DATASET", "STORE/branched-pipe" if run == STEADY else "STORE/cylinder-flow")


def tiny_demo(seed: int = 0) -> Experiment:
    """The demo's experiment, narrow and trained for an epoch."""
    return get_recipe("cylinder-flow-demo").derive(
        model=TINY,
        data={"points_per_sample": 32, "queries_per_sample": 32, "stride_s": 20.0},
        training={
            "seed": seed,
            "epochs": 1,
            "samples_per_epoch": 16,
            "warmup_steps": 0,
            "validation_windows": 4,
            "validate_every": 1,
        },
    )


def demo_settings() -> dict[str, float]:
    """As the Makefile gives them, so that cases have the ids that the pages name."""
    makefile = (ROOT / "Makefile").read_text().partition("DEMO_SETTINGS :=")[2]
    given = (word for word in makefile.partition("\n\n")[0].split() if "=" in word)
    changes = {name: float(value) for name, value in (word.split("=") for word in given)}
    return dict(get_family("cylinder-flow").settings("trial", changes))


def _publish_demo(path: Path) -> None:
    family = get_family("cylinder-flow")
    writer = DatasetWriter.open(str(path), Schema.of(family))
    fork = writer.fork()
    settings = demo_settings()
    for number, design in enumerate(family.design_space.sample(24, "sobol", 42)):
        point = family.point(design, settings)
        wave = travelling_wave(110 + number, 0.5 + 0.02 * number, number, NUM_FRAMES)
        cloud = _around(replace(wave, time=INTERVAL_S * np.arange(1, NUM_FRAMES + 1)), design)
        provenance = {"wall_time_s": {"mesh": 1.0, "solve": 9.0}, "mesh": {"cells": 110 + number}}
        fork.write(CaseResult(point, "accepted", provenance=provenance), cloud)
    writer.commit([fork])
    writer.publish("waves")


def _around(cloud: PointCloud, design: Mapping[str, float]) -> PointCloud:
    """The points outside the design's cylinder."""
    centre = np.array([design["center_x"], design["center_y"]])
    free = np.linalg.norm(cloud.points[:, :2] - centre, axis=1) > design["radius"]
    return replace(
        cloud,
        points=cloud.points[free],
        volumes=cloud.volumes[free],
        distance=cloud.distance[free],
        direction=cloud.direction[free],
        fields={name: values[:, free] for name, values in cloud.fields.items()},
    )


def _publish_pipes(path: Path) -> None:
    """v1 has 12 ducts to train on; v2 adds 10 to calibrate, v3 30 to test by."""
    family = get_family("branched-pipe")
    writer = DatasetWriter.open(str(path), Schema.of(family))
    settings = family.settings("trial", {"mesh_size": PIPES_SIZE})
    designs = _pipe_designs()
    shapes = SPACE.sample(52, "uniform", 1)
    parts: tuple[tuple[int, int, Split | None], ...] = (
        (0, 12, None),
        (12, 22, "calibration"),
        (22, 52, "test"),
    )
    for first, last, split in parts:
        fork = writer.fork()
        for number in range(first, last):
            result = _pipe_result(designs[number], settings, split)
            fork.write(result, duct(60, shapes[number], seed=number))
        writer.commit([fork])
        writer.publish(f"ducts {first} to {last}")


def _pipe_designs() -> list[dict[str, float]]:
    return get_family("branched-pipe").design_space.sample(52, "uniform", 1)


def _publish_meshes(
    path: Path, designs: Sequence[dict[str, float]], sizes: Sequence[float]
) -> None:
    """Designs on meshes of several sizes, finer ones with a little more loss of pressure."""
    family = get_family("branched-pipe")
    writer = DatasetWriter.open(str(path), Schema.of(family))
    fork = writer.fork()
    (shape,) = SPACE.sample(1, "sobol", 1)
    for size in sizes:
        settings = family.settings("trial", {"mesh_size": size})
        for design in designs:
            result = _pipe_result(design, settings, None, 1 - 1e-3 * size**2)
            fork.write(result, duct(20, shape, seed=1))
    writer.commit([fork])
    writer.publish("ducts on several meshes")


def _pipe_result(
    design: dict[str, float],
    settings: Mapping[str, float],
    split: Split | None,
    factor: float = 1.0,
) -> CaseResult:
    velocity = design["inlet_velocity"]
    figures = {
        "pressure_loss": factor * velocity**2,
        "branch1_share": factor * (0.4 + 0.01 * velocity),
        "peak_speed": factor * 1.5 * velocity,
    }
    provenance = {"figures": figures, "wall_time_s": {"mesh": 1.0, "solve": 9.0}}
    point = get_family("branched-pipe").point(design, settings)
    return CaseResult(point, "accepted", split=split, provenance=provenance)


def _publish_pumps(path: Path) -> None:
    family = get_family("centrifugal-pump")
    writer = DatasetWriter.open(str(path), Schema.of(family))
    fork = writer.fork()
    settings = family.settings("trial")
    shapes = SPACE.sample(12, "sobol", 1)
    for number, design in enumerate(family.design_space.sample(12, "sobol", 1)):
        figures = {
            "head": 90.0 + 0.1 * design["impeller_radius"] - 2 * design["inlet_velocity"],
            "shaft_power": 1e5,
            "efficiency": 0.5 + 0.03 * design["inlet_velocity"],
        }
        result = CaseResult(
            family.point(design, settings), "accepted", provenance={"figures": figures}
        )
        fork.write(result, _with_impeller(duct(60, shapes[number], seed=number)))
    writer.commit([fork])
    writer.publish("ducts")


def _with_impeller(cloud: PointCloud) -> PointCloud:
    """The same cloud at a constant distance from one more kind of patch."""
    away = np.full((cloud.num_points, 1), 1.0, "f4")
    along = np.zeros((cloud.num_points, 1, 3), "f4")
    along[..., 0] = 1
    return replace(
        cloud,
        patch_kinds=(*cloud.patch_kinds, "impeller"),
        distance=np.concatenate([cloud.distance, away], axis=1),
        direction=np.concatenate([cloud.direction, along], axis=1),
    )


def _write_experiments(folder: Path) -> None:
    """Those that the pages name, each for its dataset."""
    pump = get_recipe("centrifugal-pump-demo").derive(model=TINY)
    windows = tiny_demo().derive(name="gwa", model={"gaussian_window": "both"})
    made = {"gwa": windows, "pipe": tiny_steady(), "pump": pump, "cylinder": tiny_demo()}
    for name, experiment in made.items():
        (folder / f"{name}.json").write_text(experiment.model_dump_json())


def _link(folder: Path, name: str, target: str) -> None:
    link = folder / name
    link.unlink(missing_ok=True)
    link.symlink_to(Path("../" * name.count("/")) / target)
