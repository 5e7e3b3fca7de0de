"""A dataset of schema version 1 is read as it was written, and upgraded by the first writer that
opens it.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr

import simgen
from simgen.store.access import content
from simgen.store.access.repository import BRANCH, open_repository
from simgen.store.access.writer import DatasetWriter
from simgen.store.format.schema_1 import is_schema_1
from tests.store.conftest import ARCHIVED, ARCHIVED_SCHEMA, add, make_cloud, make_result

ARCHIVE = Path(__file__).parents[1] / "data" / "schema-1.tar.gz"


@pytest.fixture
def old_url(tmp_path) -> str:
    shutil.unpack_archive(ARCHIVE, tmp_path)
    shutil.move(tmp_path / "schema-1", tmp_path / "cylinder-flow")
    return str(tmp_path / "cylinder-flow")


def seen_by_a_reader(dataset):
    """All that a reader sees of a version."""
    return {
        case.id: (
            case.parameters,
            case.provenance,
            case.gates,
            case.log_tail,
            case.split,
            [
                values.tolist()
                for values in (case.points, case.volumes, case.distance, case.direction, case.time)
            ],
            [
                values.tolist()
                for values in (case.boundary.points, case.boundary.normals, case.boundary.areas)
            ],
            case.boundary.patch.tolist(),
            case["velocity"][:].tolist(),
            case.boundary["velocity"][:].tolist(),
        )
        for case in dataset
    }


def test_version_1_has_everything_that_version_2_has(old_url):
    dataset = simgen.open_dataset(old_url)
    case = dataset[0]
    assert case.distance.shape == (case.num_points, 4)
    assert case.direction.shape == (case.num_points, 4, 3)
    assert case.boundary.normals.shape == (len(case.boundary.areas), 3)
    assert case.boundary.patch.dtype == np.uint8
    assert case.provenance["solver_version"]
    assert set(case.read()) == set(content.arrays(case))
    assert case.to_xarray()["distance"].dims == ("point", "patch_kind")
    assert set(dataset.design["status"]) >= {"accepted"}


def test_the_first_writer_upgrades_the_tables_and_leaves_every_version_as_it_was(old_url):
    before = simgen.open_dataset(old_url)
    seen, statistics = seen_by_a_reader(before), before.statistics
    writer = DatasetWriter.open(old_url, ARCHIVED_SCHEMA)
    root = zarr.open_group(open_repository(old_url).readonly_session(BRANCH).store, mode="r")
    assert not is_schema_1(root)
    assert "cases" not in root["design"].attrs
    again = simgen.open_dataset(old_url, before.version)
    assert again.snapshot_id == before.snapshot_id
    assert seen_by_a_reader(again) == seen
    number = next(n for n in range(60, 64) if make_result(n, family=ARCHIVED).id not in seen)
    (added,) = add(writer, number, family=ARCHIVED)
    grown = simgen.open_dataset(old_url, writer.publish())
    assert seen_by_a_reader(grown).items() >= seen.items(), (
        "a case has changed or moved between splits"
    )
    np.testing.assert_array_equal(grown[added].direction, make_cloud(number).direction)
    assert grown.statistics.keys() == statistics.keys()
