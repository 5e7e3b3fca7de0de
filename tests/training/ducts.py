"""A steady flow that is known in closed form, as cases of a steady 3D family: straight ducts that
widen and bend a little.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from courant.experiment import Experiment
from courant.recipes.branched_pipe import branched_pipe_demo
from simgen.case import CaseResult, Field
from simgen.design_space import DesignPoint, DesignSpace, Parameter
from simgen.point_cloud import BoundaryCloud, PointCloud
from simgen.store.schema import Schema
from simgen.store.write import DatasetWriter

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
            "kinematic_pressure": (parameters["speed"] ** 2 * (LENGTH - x) / 10)[:, None].astype(
                "f4"
            ),
        },
        boundary=BoundaryCloud(
            points=faces.astype("f4"),
            normals=normals.astype("f4"),
            areas=np.ones(80, "f4"),
            patch=patch.astype("u1"),
            fields={
                "velocity": on_faces.astype("f4"),
                "kinematic_pressure": (
                    parameters["speed"] ** 2 * (LENGTH - faces[:, :1]) / 10
                ).astype("f4"),
            },
        ),
    )


def publish_ducts(url: str, num_cases: int = 10, solved_scale: float = 1.0) -> str:
    """A published dataset of ducts, each with its own number of points.

    `solved_scale` multiplies every solved value, cells and faces, the inlet's velocity aside: what
    a model must not see.
    """
    writer = DatasetWriter.open(url, SCHEMA)
    fork = writer.fork()
    for number, parameters in enumerate(SPACE.sample(num_cases, "sobol", 1)):
        cloud = duct(60 + 7 * number, parameters, seed=number)
        for values in (*cloud.fields.values(), cloud.boundary.fields["kinematic_pressure"]):
            values *= solved_scale
        cloud.boundary.fields["velocity"][cloud.boundary.patch != 0] *= solved_scale
        point = DesignPoint("branched-pipe", 1, parameters, {"mesh_size": 0.1})
        fork.write(
            CaseResult(point, "accepted", provenance={"wall_time_s": {"mesh": 0.5, "solve": 20.0}}),
            cloud,
        )
    writer.commit([fork])
    writer.publish("ducts")
    return url


def tiny_steady(**training: Any) -> Experiment:
    """Seconds of training on ducts, with everything that the real recipes have."""
    return branched_pipe_demo().derive(
        name="tiny-steady",
        model={"width": 24, "num_anchors": 8, "num_levels": 1},
        # Ducts have parameters of their own.
        data={"points_per_sample": 40, "queries_per_sample": 48, "scaled_by": {}},
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
