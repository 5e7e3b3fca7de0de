"""A flow that is known in closed form, as cases of the cylinder family: the smallest thing worth
training on.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from courant.experiment import Experiment
from courant.recipes.cylinder_flow import cylinder_flow_demo
from simgen.case import CaseResult
from simgen.cases import get_family
from simgen.design_space import DesignPoint
from simgen.point_cloud import BoundaryCloud, PointCloud
from simgen.store.schema import Schema
from simgen.store.write import DatasetWriter

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


def publish_waves(url: str, num_cases: int = 5) -> str:
    """A published dataset of waves, each with its own points, their number, and speed: 3 train, 1
    validation, 1 test.
    """
    writer = DatasetWriter.open(url, Schema.of(get_family("cylinder-flow")))
    fork = writer.fork()
    for number in range(num_cases):
        cloud = travelling_wave(40 + 7 * number, speed=0.2 + 0.1 * number, seed=number)
        provenance = {"wall_time_s": {"solve": 1.0}}
        fork.write(CaseResult(design_point(number), "accepted", provenance=provenance), cloud)
    writer.commit([fork])
    writer.publish("waves")
    return url


def tiny_experiment(**training: Any) -> Experiment:
    """Seconds of training on waves, with everything that the real recipes have."""
    return cylinder_flow_demo().derive(
        name="tiny",
        model={"width": 24, "num_anchors": 8, "num_levels": 1},
        data={
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
