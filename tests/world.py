"""Two datasets that are known in closed form, and runs trained on them, built once on a machine.

- waves: a wave carried through the cylinder's channel, a transient 2D family
- ducts: straight ducts that widen and bend a little, a steady 3D family
- pipes: ducts that pass for branched pipes, so that their designs can be meshed

`World` builds each part when a test first asks for it, under a lock, for all workers of pytest.
Nobody changes a part: a test that does publishes its own, or works on a copy.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock

import simgen
from bench.synthetic_cases import publish_cases
from courant.evaluation.evaluate import evaluate
from courant.experiment import Experiment
from courant.recipes import get_recipe
from courant.runs.directory import RunDirectory
from courant.training.train import fit
from simgen.case import CaseResult, Field
from simgen.cases import get_family
from simgen.design_space import DesignPoint, DesignSpace, Parameter
from simgen.point_cloud import BoundaryCloud, PointCloud
from simgen.store.schema import Schema

INTERVAL_S = 1.0
NUM_FRAMES = 30


def travelling_wave(
    num_points: int, speed: float, seed: int, num_frames: int = NUM_FRAMES
) -> PointCloud:
    """A wave carried downstream at `speed` m/s through the cylinder's channel, one snapshot a
    second.
    """
    generator = np.random.default_rng(seed)
    points = np.zeros((num_points, 3))
    points[:, :2] = generator.uniform((-20, -10), (40, 10), (num_points, 2))
    x, y = points[:, 0], points[:, 1]
    time = INTERVAL_S * np.arange(1, num_frames + 1)
    phase = 0.3 * (x - speed * time[:, None])
    velocity = np.stack(
        [1 + 0.5 * np.sin(phase), 0.3 * np.cos(phase) * (1 - (y / 10) ** 2)], axis=-1
    )
    distance = np.stack([x + 20, 40 - x, 10 - np.abs(y), np.hypot(x, y)], axis=1)
    direction = np.zeros((num_points, 4, 3))
    direction[:, 0, 0], direction[:, 1, 0], direction[:, 2, 1] = -1, 1, np.where(y >= 0, 1, -1)
    direction[:, 3, :2] = -points[:, :2] / np.hypot(x, y)[:, None]
    return PointCloud(
        points=points.astype("f4"),
        volumes=np.ones(num_points, "f4"),
        distance=distance.astype("f4"),
        direction=direction.astype("f4"),
        patch_kinds=("inlet", "outlet", "wall", "cylinder"),
        time=time,
        fields={
            "velocity": velocity.astype("f4"),
            "kinematic_pressure": np.ones((num_frames, num_points, 1), "f4"),
        },
        boundary=BoundaryCloud(
            points=np.array([[-20.0, 0, 0]], "f4"),
            normals=np.array([[-1.0, 0, 0]], "f4"),
            areas=np.ones(1, "f4"),
            patch=np.zeros(1, "u1"),
            fields={
                "velocity": np.ones((num_frames, 1, 2), "f4"),
                "kinematic_pressure": np.ones((num_frames, 1, 1), "f4"),
            },
        ),
    )


def design_point(number: float, num_frames: int = NUM_FRAMES) -> DesignPoint:
    """Different points of the cylinder family's design space for different numbers."""
    family = get_family("cylinder-flow")
    settings = family.settings("trial", {"end_time": num_frames * INTERVAL_S})
    return family.point({"radius": 1.0 + 0.25 * number, "center_x": 0.0, "center_y": 0.0}, settings)


Change = Callable[[PointCloud], PointCloud]


def publish_waves(url: str, num_cases: int = 5, change: Change = lambda cloud: cloud) -> str:
    """A published dataset of waves, each with its own points, their number, and speed: 3 train, 1
    validation, 1 test.
    """
    cases: list[Any] = []
    for number in range(num_cases):
        cloud = travelling_wave(40 + 7 * number, speed=0.2 + 0.1 * number, seed=number)
        solved = {"wall_time_s": {"solve": 1.0}}
        result = CaseResult(design_point(number), "accepted", provenance=solved)
        cases.append((result, change(cloud)))
    return publish_cases(url, Schema.of(get_family("cylinder-flow")), cases)


SAMPLED = {"anchor_kind": "sampled", "decoder_depth": 0}
"""Anchors and decoder of the paper's model, which the demo has not"""


def tiny_experiment(**training: Any) -> Experiment:
    """Seconds of training on waves, with everything that the real recipes have."""
    return get_recipe("cylinder-flow-demo").derive(
        name="tiny",
        model=SAMPLED | {"width": 24, "num_anchors": 8, "num_levels": 1},
        data={
            "anchor_start": "box",
            "window_steps": 2,
            "step_s": 3.0,
            "start_s": 0.0,
            "stride_s": 1.0,
            "points_per_sample": 24,
            "queries_per_sample": 24,
            "mirror_y": False,
            "shift": 0.0,
        },
        training={
            "optimiser": "adamw",
            "epochs": 4,
            "batch_size": 8,
            "samples_per_epoch": 48,
            "learning_rate": 3e-3,
            "warmup_steps": 0,
            "schedule": "two-phase",
            "validate_every": 1,
            "validation_windows": 8,
            "checkpoint_every": 2,
            **training,
        },
    )


KINDS = ("inlet", "outlet", "wall")
SPACE = DesignSpace(
    (
        Parameter("speed", "m/s", 3.0, 10.0, "mean velocity at the inlet"),
        Parameter("half_width", "m", 0.5, 1.0),
        Parameter("bend", "1", 0.0, 1.0),
        Parameter("swirl", "1", 0.0, 1.0),
        Parameter("roughness", "1", 0.0, 1.0),
    )
)
SCHEMA = Schema(
    family="branched-pipe",
    family_revision=1,
    dimension=3,
    transient=False,
    patch_kinds=KINDS,
    fields=(
        Field("velocity", "m/s", ("x", "y", "z"), "U"),
        Field("kinematic_pressure", "m2/s2", ("p",), "p"),
    ),
    parameters=SPACE.parameters,
)
LENGTH = 4.0


def _velocity(points: np.ndarray, parameters: dict[str, float]) -> np.ndarray:
    x, y, z = points.T
    profile = (1 - (y / parameters["half_width"]) ** 2) * (1 - (z / parameters["half_width"]) ** 2)
    speed = parameters["speed"]
    across = parameters["bend"] * np.sin(np.pi * x / LENGTH)
    return np.stack(
        [speed * profile, 0.2 * speed * profile * parameters["swirl"], speed * profile * across],
        axis=-1,
    )


def duct(num_points: int, parameters: dict[str, float], seed: int) -> PointCloud:
    """Cells scattered in the duct, 16 inlet, 16 outlet and 48 wall faces; walls carry a (solved)
    slip that nobody prescribed.
    """
    generator, h = np.random.default_rng(seed), parameters["half_width"]
    points = generator.uniform((0, -h, -h), (LENGTH, h, h), (num_points, 3))
    x, y, z = points.T
    to_wall = h - np.maximum(np.abs(y), np.abs(z))
    direction = np.zeros((num_points, 3, 3))
    direction[:, 0, 0], direction[:, 1, 0] = -1, 1
    sideways = np.abs(y) > np.abs(z)
    direction[sideways, 2, 1], direction[~sideways, 2, 2] = (
        np.sign(y[sideways]),
        np.sign(z[~sideways]),
    )
    patch = np.repeat([0, 1, 2], [16, 16, 48])
    faces = generator.uniform((0, -h, -h), (LENGTH, h, h), (80, 3))
    faces[:16, 0], faces[16:32, 0], faces[32:, 1] = 0, LENGTH, np.where(faces[32:, 1] > 0, h, -h)
    normals = np.zeros((80, 3))
    normals[:16, 0], normals[16:32, 0], normals[32:, 1] = -1, 1, np.sign(faces[32:, 1])

    def pressure(x: np.ndarray) -> np.ndarray:
        return (parameters["speed"] ** 2 * (LENGTH - x) / 10)[:, None]

    on_faces = _velocity(faces, parameters)
    on_faces[32:] = 0.1 * parameters["speed"]
    return PointCloud(
        points=points.astype("f4"),
        volumes=np.ones(num_points, "f4"),
        distance=np.stack([x, LENGTH - x, to_wall], axis=1).astype("f4"),
        direction=direction.astype("f4"),
        patch_kinds=KINDS,
        time=None,
        fields={
            "velocity": _velocity(points, parameters).astype("f4"),
            "kinematic_pressure": pressure(x).astype("f4"),
        },
        boundary=BoundaryCloud(
            points=faces.astype("f4"),
            normals=normals.astype("f4"),
            areas=np.ones(80, "f4"),
            patch=patch.astype("u1"),
            fields={
                "velocity": on_faces.astype("f4"),
                "kinematic_pressure": pressure(faces[:, 0]).astype("f4"),
            },
        ),
    )


def publish_ducts(
    url: str, num_cases: int = 10, solved_scale: float = 1.0, change: Change = lambda cloud: cloud
) -> str:
    """A published dataset of ducts, each with its own number of points.

    `solved_scale` multiplies every solved value, cells and faces, the inlet's velocity aside: what
    a model must not see.
    """
    cases: list[Any] = []
    for number, parameters in enumerate(SPACE.sample(num_cases, "sobol", 1)):
        cloud = duct(60 + 7 * number, parameters, seed=number)
        for values in (*cloud.fields.values(), cloud.boundary.fields["kinematic_pressure"]):
            values *= solved_scale
        cloud.boundary.fields["velocity"][cloud.boundary.patch != 0] *= solved_scale
        point = DesignPoint("branched-pipe", 1, parameters, {"mesh_size": 0.1})
        solved = {"wall_time_s": {"mesh": 0.5, "solve": 20.0}}
        cases.append((CaseResult(point, "accepted", provenance=solved), change(cloud)))
    return publish_cases(url, SCHEMA, cases)


def tiny_steady(**training: Any) -> Experiment:
    """Seconds of training on ducts, with everything that the real recipes have."""
    return get_recipe("branched-pipe-demo").derive(
        name="tiny-steady",
        model=SAMPLED | {"width": 24, "num_anchors": 8, "num_levels": 1},
        data={
            "anchor_start": "box",
            "points_per_sample": 40,
            "queries_per_sample": 48,
            "scaled_by": {},  # ducts have parameters of their own
        },
        training={
            "optimiser": "adamw",
            "epochs": 4,
            "batch_size": 2,
            "samples_per_epoch": 24,
            "learning_rate": 3e-3,
            "warmup_steps": 0,
            "validate_every": 1,
            "checkpoint_every": 2,
            **training,
        },
    )


FAMILY = get_family("branched-pipe")
SETTINGS = FAMILY.settings("trial", {"mesh_size": 12.0})
DESIGN = {
    "baffle_angle": 30.0,
    "aperture": 28.0,
    "duct_angle": 95.0,
    "curvature_angle": 130.0,
    "inlet_velocity": 6.0,
}
NUM_CASES = 6


def share(number: int) -> float:
    """The flow split that a case has on record."""
    return 0.4 + 0.02 * number


def trained_on_pipes(
    folder: Path,
    num_cases: int = NUM_CASES,
    figures: Callable[[int, DesignPoint], dict[str, float]] = lambda number, _: {
        "branch1_share": share(number)
    },
) -> str:
    """Publish the cases below `folder`, and return a run that was trained on them."""
    torch.set_num_threads(1)
    cases: list[Any] = []
    designs = FAMILY.design_space.sample(num_cases, "sobol", 1)
    for number, shape in enumerate(SPACE.sample(num_cases, "sobol", 1)):
        point = FAMILY.point(designs[number], SETTINGS)
        result = CaseResult(point, "accepted", provenance={"figures": figures(number, point)})
        cases.append((result, duct(60, shape, seed=number)))
    url = publish_cases(str(folder / "store" / "branched-pipe"), Schema.of(FAMILY), cases)
    run = RunDirectory(folder / "runs" / "pipes")
    fit(tiny_steady(epochs=1), simgen.open_dataset(url), run)
    return run.url


class World:
    """The shared datasets and runs, each built once below `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def waves(self) -> str:
        """5 cases: 3 train, 1 validation, 1 test."""
        return self._once("waves/store/cylinder-flow", publish_waves)

    def ducts(self) -> str:
        """16 cases."""
        return self._once("ducts/store/branched-pipe", lambda url: publish_ducts(url, 16))

    def waves_run(self) -> str:
        """A transient run of one epoch, evaluated."""
        return self._once("waves/runs/tiny", lambda url: _train(self.waves(), url, tiny_experiment))

    def ducts_run(self) -> str:
        """A steady run of one epoch, evaluated."""
        return self._once("ducts/runs/tiny", lambda url: _train(self.ducts(), url, tiny_steady))

    def pipes_run(self) -> str:
        """A steady run of one epoch whose designs can be meshed."""
        self._once("pipes", lambda url: trained_on_pipes(Path(url)))
        return str(self.folder / "pipes/runs/pipes")

    def _once(self, name: str, build: Callable[[str], object]) -> str:
        place = self.folder / name
        note = self.folder / f"{name.replace('/', '-')}.built"
        with FileLock(note.with_suffix(".lock")):
            if not note.exists():
                build(str(place))
                note.touch()
        return str(place)


def _train(url: str, run: str, experiment: Callable[..., Experiment]) -> None:
    torch.set_num_threads(1)
    fit(experiment(epochs=1), simgen.open_dataset(url), RunDirectory(run))
    evaluate(run)
