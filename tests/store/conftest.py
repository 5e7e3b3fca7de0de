"""Small synthetic cases in the real family's schema."""

import numpy as np
import pytest

from simgen.case import CaseFamily, CaseResult, Gate
from simgen.cases import get_family
from simgen.point_cloud import BoundaryCloud, PointCloud
from simgen.store.read import Dataset, open_dataset
from simgen.store.schema import Schema
from simgen.store.write import DatasetWriter

FAMILY = get_family("cylinder-flow")
SCHEMA = Schema.of(FAMILY)
#: Of each case, one a second.
NUM_SNAPSHOTS = 6


def make_cloud(
    seed: int = 0, num_points: int = 40, num_snapshots: int = NUM_SNAPSHOTS
) -> PointCloud:
    generator = np.random.default_rng(seed)
    points = generator.uniform(-10, 10, (num_points, 3)) * (1, 1, 0)
    faces = 12
    fields = {"velocity": 2, "kinematic_pressure": 1}
    return PointCloud(
        points=points.astype("f4"),
        volumes=generator.uniform(0.1, 1, num_points).astype("f4"),
        distance=generator.uniform(0, 5, (num_points, 4)).astype("f4"),
        direction=generator.normal(size=(num_points, 4, 3)).astype("f4"),
        patch_kinds=FAMILY.patch_kinds,
        time=np.arange(1.0, num_snapshots + 1),
        fields={
            name: generator.normal(size=(num_snapshots, num_points, c)).astype("f4")
            for name, c in fields.items()
        },
        boundary=BoundaryCloud(
            points=generator.uniform(-10, 10, (faces, 3)).astype("f4"),
            normals=generator.normal(size=(faces, 3)).astype("f4"),
            areas=np.ones(faces, "f4"),
            patch=generator.integers(0, 4, faces).astype("u1"),
            fields={
                name: generator.normal(size=(num_snapshots, faces, c)).astype("f4")
                for name, c in fields.items()
            },
        ),
    )


def make_result(
    number: int, status: str = "accepted", reason: str = "", family: CaseFamily = FAMILY
) -> CaseResult:
    point = family.point(
        family.design_space.sample(64)[number],
        family.settings("trial", {"end_time": NUM_SNAPSHOTS}),
    )
    gates = (
        Gate("mass imbalance", 1e-9, "<= 0.001", True),
        Gate("never finite", float("nan"), "<= 1", False),
    )
    provenance = {
        "wall_time_s": {"mesh": 0.5, "solve": 2.0},
        "solver_version": "OpenFOAM v1912",
        "residuals": {"p": [[0.1, 0.5]]},
    }
    return CaseResult(point, status, reason, gates, "last line" if reason else "", provenance)  # type: ignore[arg-type]


def record(
    writer: DatasetWriter,
    result: CaseResult,
    cloud: PointCloud | None = None,
    num_left: int | None = None,
) -> None:
    """Write and commit one case."""
    fork = writer.fork()
    fork.write(result, cloud)
    writer.commit([fork], num_left)


def add(writer: DatasetWriter, *numbers: int, family: CaseFamily = FAMILY) -> list[str]:
    """Write and commit accepted cases, each through a fork of its own; their ids."""
    results = [make_result(number, family=family) for number in numbers]
    for number, result in zip(numbers, results, strict=True):
        record(writer, result, make_cloud(number))
    return [result.id for result in results]


def publish(writer: DatasetWriter, *numbers: int) -> Dataset:
    """Add accepted cases, and open the version of all."""
    add(writer, *numbers)
    return open_dataset(writer.url, writer.publish())


@pytest.fixture
def url(tmp_path) -> str:
    return str(tmp_path / "store" / "cylinder-flow")


@pytest.fixture
def writer(url) -> DatasetWriter:
    return DatasetWriter.open(url, SCHEMA)
