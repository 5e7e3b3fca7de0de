"""The folder in which a reader of the pages works, with tiny things under the pages' own names.

So the lines of a page run as they stand: `demo-run` has the demo's 24 designs, whose fields are a
wave in closed form; `STORE` ducts that pass for branched pipes and pumps; `RUN` is a link to a
model that was trained on either for a second.
"""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import meshio
import numpy as np
import torch

import simgen
from bench.synthetic_cases import publish_cases
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
from tests.declared import ROOT
from tests.imports.darcy import import_darcy
from tests.imports.foam_cases import write_case
from tests.world import SPACE, duct, tiny_steady, travelling_wave

TRANSIENT = "demo-run/runs/cylinder-flow-demo-0123456789"
OTHER = "runs/cylinder-flow-demo-1123456789"
THIRD = "runs/cylinder-flow-demo-2123456789"
STEADY = "runs/branched-pipe-small-0123456789"
NUM_FRAMES, INTERVAL_S = 150, 2.0
PIPES_SIZE, COARSER, GRIDS = 10.0, (12.0,), (10.0, 7.0, 5.0, 3.5)  # mm, of their cells
WIDTHS = "design: grid\nparameters:\n  model.window_scale: [0.5, 0.35, 0.25]\n"
DESIGNS = "case,speed (m/s),angle (deg)\nrun1,1.0,10\nrun2,2.0,20\nrun3,3.0,30\n"
ONE_EPOCH = {"epochs": 1, "samples_per_epoch": 16, "warmup_steps": 0}
TINY = {"num_anchors": 16, "width": 24, "num_heads": 2, "num_levels": 1}


def build_world(folder: Path) -> None:
    """Publish the datasets, train the models, write the experiments; some ten seconds."""
    torch.set_num_threads(1)
    _publish(folder / "demo-run/store/cylinder-flow", _demo_cases())
    demo = simgen.open_dataset(folder / "demo-run/store/cylinder-flow")
    for seed, place in enumerate((TRANSIENT, OTHER, THIRD)):
        fit(tiny_demo(seed), demo, RunDirectory(folder / place))
    pipes = folder / "STORE/branched-pipe"
    # v1 has 12 ducts to train on; v2 adds 10 to calibrate, v3 30 to test by.
    for first, last, split in ((0, 12, None), (12, 22, "calibration"), (22, 52, "test")):
        _publish(pipes, _pipe_cases(first, last, split))
    all_fields = {"fields": ("velocity", "kinematic_pressure")}
    steady = tiny_steady(epochs=1).derive(
        model={"num_outputs": 4, "num_features": 4}, data=all_fields
    )
    fit(steady, simgen.open_dataset(pipes, "v1"), RunDirectory(folder / STEADY))
    calibrate(str(folder / STEADY))
    _publish(folder / "STORE/centrifugal-pump", _pump_cases())
    space = get_family("branched-pipe").design_space
    _publish(folder / "grids/branched-pipe", _meshed_cases(space.sample(5, "sobol", 42), GRIDS))
    coarse = _meshed_cases(space.sample(52, "uniform", 1)[22:], COARSER)
    _publish(folder / "COARSE/branched-pipe", coarse)
    import_darcy(str(folder / "STORE/darcy-flow"), num_train=4, num_test=2)
    _link(folder, "STORE/cylinder-flow", "demo-run/store/cylinder-flow")
    _link(folder, "RUNS", "demo-run/runs")
    for name in ("OTHER-RUN", "REFINED-RUN", "RUN_OF_ANOTHER_SEED"):
        _link(folder, name, OTHER)
    _link(folder, "THIRD-RUN", THIRD)
    quads = [("quad", np.array([[0, 3, 4, 1], [1, 4, 5, 2], [3, 6, 7, 4], [4, 7, 8, 5]]))]
    places = np.array([[x, y, 0.0] for x in range(3) for y in range(3)])
    (folder / "results").mkdir()
    for number in (1, 2, 3):
        write_case(folder / f"my-cases/run{number}", speed=number)
        arrays = {"velocity": number * places, "p": number * places[:, 0]}
        meshio.Mesh(places, quads, point_data=arrays).write(folder / f"results/run{number}.vtu")
    (folder / "designs.csv").write_text(DESIGNS)
    (folder / "widths.yaml").write_text(WIDTHS)
    pump = get_recipe("centrifugal-pump-demo").derive(model=TINY)
    windows = tiny_demo().derive(name="gwa", model={"gaussian_window": "both"})
    made = {"gwa": windows, "pipe": tiny_steady(), "pump": pump, "cylinder": tiny_demo()}
    for name, experiment in made.items():
        (folder / f"{name}.json").write_text(experiment.model_dump_json())
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
        training={"seed": seed, "validation_windows": 4, "validate_every": 1, **ONE_EPOCH},
    )


def demo_settings() -> dict[str, float]:
    """As the Makefile gives them, so that cases have the ids that the pages name."""
    makefile = (ROOT / "Makefile").read_text().partition("DEMO_SETTINGS :=")[2]
    given = (word for word in makefile.partition("\n\n")[0].split() if "=" in word)
    changes = {name: float(value) for name, value in (word.split("=") for word in given)}
    return dict(get_family("cylinder-flow").settings("trial", changes))


def _publish(path: Path, cases: Iterable[tuple[CaseResult, PointCloud]]) -> None:
    """Publish cases of the family that the folder is named for, as the next version."""
    publish_cases(str(path), Schema.of(get_family(path.name)), cases, "made for the pages")


def _demo_cases() -> Iterator[tuple[CaseResult, PointCloud]]:
    """Waves at the points outside each design's cylinder."""
    family, settings = get_family("cylinder-flow"), demo_settings()
    for number, design in enumerate(family.design_space.sample(24, "sobol", 42)):
        wave = travelling_wave(110 + number, 0.5 + 0.02 * number, number, NUM_FRAMES)
        centre = np.array([design["center_x"], design["center_y"]])
        free = np.linalg.norm(wave.points[:, :2] - centre, axis=1) > design["radius"]
        of_points = ("points", "volumes", "distance", "direction")
        cloud = replace(
            wave,
            time=INTERVAL_S * np.arange(1, NUM_FRAMES + 1),
            fields={name: values[:, free] for name, values in wave.fields.items()},
            **{name: getattr(wave, name)[free] for name in of_points},
        )
        provenance = {"wall_time_s": {"mesh": 1.0, "solve": 9.0}, "mesh": {"cells": 110 + number}}
        yield CaseResult(family.point(design, settings), "accepted", provenance=provenance), cloud


def _pipe_cases(
    first: int, last: int, split: Split | None
) -> Iterator[tuple[CaseResult, PointCloud]]:
    shapes = SPACE.sample(52, "uniform", 1)
    designs = get_family("branched-pipe").design_space.sample(52, "uniform", 1)
    for number in range(first, last):
        result = _pipe_result(designs[number], PIPES_SIZE, split)
        yield result, duct(60, shapes[number], seed=number)


def _meshed_cases(
    designs: Sequence[dict[str, float]], sizes: Sequence[float]
) -> Iterator[tuple[CaseResult, PointCloud]]:
    """Designs on meshes of several sizes, finer ones with a little more loss of pressure."""
    (shape,) = SPACE.sample(1, "sobol", 1)
    for size in sizes:
        for design in designs:
            yield _pipe_result(design, size, None, 1 - 1e-3 * size**2), duct(20, shape, seed=1)


def _pipe_result(
    design: dict[str, float], mesh_size: float, split: Split | None, factor: float = 1.0
) -> CaseResult:
    family, velocity = get_family("branched-pipe"), design["inlet_velocity"]
    figures = {
        "pressure_loss": factor * velocity**2,
        "branch1_share": factor * (0.4 + 0.01 * velocity),
        "peak_speed": factor * 1.5 * velocity,
    }
    provenance = {"figures": figures, "wall_time_s": {"mesh": 1.0, "solve": 9.0}}
    point = family.point(design, family.settings("trial", {"mesh_size": mesh_size}))
    return CaseResult(point, "accepted", split=split, provenance=provenance)


def _pump_cases() -> Iterator[tuple[CaseResult, PointCloud]]:
    """Ducts at a constant distance from an impeller."""
    family, shapes = get_family("centrifugal-pump"), SPACE.sample(12, "sobol", 1)
    for number, design in enumerate(family.design_space.sample(12, "sobol", 1)):
        figures = {
            "head": 90.0 + 0.1 * design["impeller_radius"] - 2 * design["inlet_velocity"],
            "shaft_power": 1e5,
            "efficiency": 0.5 + 0.03 * design["inlet_velocity"],
        }
        point = family.point(design, family.settings("trial"))
        cloud = duct(60, shapes[number], seed=number)
        away = np.full((cloud.num_points, 1), 1.0, "f4")
        along = np.array([1, 0, 0], "f4") * away[..., None]
        distant = replace(
            cloud,
            patch_kinds=(*cloud.patch_kinds, "impeller"),
            distance=np.concatenate([cloud.distance, away], axis=1),
            direction=np.concatenate([cloud.direction, along], axis=1),
        )
        yield CaseResult(point, "accepted", provenance={"figures": figures}), distant


def _link(folder: Path, name: str, target: str) -> None:
    link = folder / name
    link.unlink(missing_ok=True)
    link.symlink_to(Path("../" * name.count("/")) / target)
