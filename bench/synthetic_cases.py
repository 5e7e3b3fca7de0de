"""Synthetic cases in the real family's schema, of any size, with a provenance as long as a real
case's.
"""

import functools
from collections.abc import Iterable

import numpy as np

from simgen.case import CaseResult, Gate
from simgen.cases import get_family
from simgen.point_cloud import BoundaryCloud, PointCloud
from simgen.store.schema import Schema
from simgen.store.write import CaseFork, DatasetWriter

FAMILY = get_family("cylinder-flow")
SCHEMA = Schema.of(FAMILY)
#: Sizes of a case of the trial preset: 13.9 MB of fields.
REAL_POINTS, REAL_FACES, REAL_SNAPSHOTS = 2309, 208, 500
MOST_CASES = 1 << 14


def synthetic_cloud(
    num_points: int, num_faces: int, num_snapshots: int, seed: int = 0
) -> PointCloud:
    """A wave that travels and decays, with noise in the last bits: about as hard to compress as a
    solved case.
    """
    generator = np.random.default_rng(seed)
    time = np.arange(1.0, num_snapshots + 1)
    points, faces = (
        generator.uniform(-10, 10, (count, 3)) * (1, 1, 0) for count in (num_points, num_faces)
    )
    kinds = len(FAMILY.patch_kinds)
    direction = generator.normal(size=(num_points, kinds, 3))
    normals = generator.normal(size=(num_faces, 3))
    return PointCloud(
        points=points.astype("f4"),
        volumes=generator.uniform(0.1, 1, num_points).astype("f4"),
        distance=generator.uniform(0, 5, (num_points, kinds)).astype("f4"),
        direction=(direction / np.linalg.norm(direction, axis=-1, keepdims=True)).astype("f4"),
        patch_kinds=FAMILY.patch_kinds,
        time=time,
        fields=_fields(points, time, seed),
        boundary=BoundaryCloud(
            points=faces.astype("f4"),
            normals=(normals / np.linalg.norm(normals, axis=-1, keepdims=True)).astype("f4"),
            areas=generator.uniform(0.1, 1, num_faces).astype("f4"),
            patch=generator.integers(0, kinds, num_faces).astype("u1"),
            fields=_fields(faces, time, seed),
        ),
    )


def _fields(points: np.ndarray, time: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    phase = 0.5 * points[:, 0] + 0.1 * seed - 0.2 * time[:, None]
    velocity = np.stack(
        [np.cos(phase) * np.exp(-(points[:, 1] ** 2) / 20), 0.3 * np.sin(phase + points[:, 1])],
        axis=-1,
    )
    pressure = (np.sin(2 * phase) * 0.1)[..., None]
    return {"velocity": velocity.astype("f4"), "kinematic_pressure": pressure.astype("f4")}


@functools.cache
def _designs() -> list[dict[str, float]]:
    return FAMILY.design_space.sample(MOST_CASES)


def synthetic_result(number: int, num_snapshots: int) -> CaseResult:
    """An accepted case with its own design, of one snapshot a second; 24 kB of provenance, most of
    it the residual history.
    """
    point = FAMILY.point(_designs()[number], FAMILY.settings("trial", {"end_time": num_snapshots}))
    residuals = {
        name: [[0.5 * step, 1e-3 / (step + number + 1)] for step in range(200)]
        for name in ("p", "Ux", "Uy")
    }
    provenance = {
        "wall_time_s": {"mesh": 0.5, "solve": 40.0},
        "solver_version": "OpenFOAM v1912",
        "residuals": residuals,
    }
    gates = tuple(Gate(f"gate {index}", 1e-9, "<= 0.001", True) for index in range(6))
    return CaseResult(point, "accepted", "", gates, "", provenance)


def publish_cases(
    url: str,
    schema: Schema,
    cases: Iterable[tuple[CaseResult, PointCloud | None]],
    message: str = "",
) -> str:
    """Write the cases in one commit, and publish them; the URL."""
    writer = DatasetWriter.open(url, schema)
    fork = writer.fork()
    for result, cloud in cases:
        fork.write(result, cloud)
    writer.commit([fork])
    writer.publish(message)
    return url


def write_cases(fork: CaseFork, numbers: range, sizes: tuple[int, int, int]) -> CaseFork:
    """Write the numbered cases, points x faces x snapshots each, through a fork, as a worker does;
    the fork.
    """
    cloud = synthetic_cloud(*sizes, seed=numbers.start)
    for number in numbers:
        fork.write(synthetic_result(number, sizes[-1]), cloud)
    return fork
