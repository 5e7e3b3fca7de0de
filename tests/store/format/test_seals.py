"""What Icechunk hands over is not always what was written under that key; a seal tells."""

import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

import simgen
from bench.damage.objects import snapshot_of
from simgen.audit.verify import verify
from simgen.errors import StoreError
from simgen.store.access import content
from simgen.store.access.reader import open_unchecked
from simgen.store.access.repository import BRANCH, open_repository
from simgen.store.access.writer import DatasetWriter
from tests.store.conftest import ARCHIVED, ARCHIVED_SCHEMA, SCHEMA, add, make_cloud, make_result


@pytest.fixture
def sealed(writer, url):
    add(writer, 0, 1)
    return url


@pytest.fixture
def unsealed(tmp_path):
    """Two cases written by a release that kept no seals; the fields on the boundary of the second
    are zeros.
    """
    shutil.unpack_archive(Path(__file__).parents[1] / "data" / "unsealed.tar.gz", tmp_path)
    return str(tmp_path / "unsealed")


def tampered(url, change, schema=SCHEMA):
    """The dataset after a change behind the writer's back, published by the writer all the same:
    its seals are intact.
    """
    session = open_repository(url).writable_session(BRANCH)
    change(session.store)
    session.commit("behind the writer's back")
    DatasetWriter.open(url, schema).publish()
    return simgen.open_dataset(url)


def stored(store, key):
    return sync(store.get(key, default_buffer_prototype()))


def test_a_chunk_that_is_lost_is_an_error_and_no_zeros(sealed):
    case = make_result(0).id
    dataset = tampered(sealed, lambda store: sync(store.delete(f"cases/{case}/velocity/c/0/0/0")))
    message = f"v1: case {case}, array velocity, is damaged \\(chunk 0/0/0 is missing\\)"
    reads = (
        lambda: dataset[case]["velocity"][2:3],
        lambda: dataset[case]["velocity"].oindex[[0]],
        lambda: dataset[case].read("velocity"),
        lambda: dataset[case].to_xarray().load(),
    )
    for read in reads:
        with pytest.raises(StoreError, match=message):
            read()
    np.testing.assert_array_equal(
        dataset[make_result(1).id]["velocity"][:], make_cloud(1).fields["velocity"]
    )
    assert {finding.place for finding in verify(dataset).findings} == {"velocity chunk 0/0/0"}


def test_a_valid_chunk_of_another_place_is_an_error(sealed):
    case, other = make_result(0).id, make_result(1).id

    def swap(store):
        sync(
            store.set(
                f"cases/{case}/velocity/c/0/0/0", stored(store, f"cases/{other}/velocity/c/0/0/0")
            )
        )

    with pytest.raises(StoreError, match="chunk 0/0/0 is not what was written"):
        tampered(sealed, swap)[case]["velocity"][0]


@pytest.mark.parametrize("name", ["velocity", "boundary", "points"])
def test_metadata_that_says_something_else_is_an_error(sealed, name):
    case = make_result(0).id

    def change(store):
        node = zarr.open_group(store, path=f"cases/{case}", mode="r+")[name]
        node.attrs["unit"] = "km/h"

    dataset = tampered(sealed, change)
    with pytest.raises(StoreError, match=f"case {case}, .*its metadata is not what was written"):
        dataset[case].read() if name != "boundary" else dataset[case].boundary
    assert verify(dataset).findings


def test_a_chunk_of_zeros_is_written_and_read_like_any_other(writer, url):
    cloud = make_cloud(0)
    still = replace(
        cloud, fields={name: np.zeros_like(values) for name, values in cloud.fields.items()}
    )
    fork = writer.fork()
    fork.write(make_result(0), still)
    writer.commit([fork])
    writer.publish()
    case = simgen.open_dataset(url)[0]
    assert not case["velocity"][:].any()
    assert sync(case._group.store.exists(f"cases/{case.id}/velocity/c/0/0/0"))


def test_a_version_whose_tables_somebody_changed_is_not_opened_by_any_process(sealed, writer):
    writer.publish()
    fresh = pickle.dumps(simgen.open_dataset(sealed))
    assert pickle.loads(fresh).version == "v1"
    repository = open_repository(sealed)
    session = repository.writable_session(BRANCH)
    root = zarr.open_group(session.store, mode="r+")
    root["splits"].attrs["seed"] = 43
    root["statistics"].attrs["fields"] = {**root["statistics"].attrs["fields"], "velocity": {}}
    metadata = {**next(iter(repository.ancestry(tag="v1"))).metadata, "publication": "v2"}
    repository.create_tag("v2", snapshot_id=session.commit("2 cases", metadata=metadata))
    with pytest.raises(
        StoreError, match=r"v2: snapshot \w+ is damaged \(its tables or its record are not what"
    ):
        simgen.open_dataset(sealed)
    assert open_unchecked(sealed).version == "v2"
    assert simgen.open_dataset(sealed, "v1").version == "v1"


def test_cases_without_a_seal_are_read_and_zeros_that_were_never_written_are_told_from_lost_chunks(
    unsealed,
):
    dataset = simgen.open_dataset(unsealed)
    assert verify(dataset).findings == []
    # The archive's cases ask for the trial preset's own end time.
    designs, settings = ARCHIVED.design_space.sample(64), ARCHIVED.settings("trial")
    first, second = (ARCHIVED.point(designs[number], settings).id for number in (0, 1))
    assert "seal" not in dataset._records[first]
    np.testing.assert_array_equal(dataset[first]["velocity"][:], make_cloud(0).fields["velocity"])
    assert not dataset[second].boundary["velocity"][:].any()
    lost = tampered_unsealed(unsealed, first)
    with pytest.raises(StoreError, match=f"case {first}, .*a chunk of velocity is missing"):
        lost[first].read()
    assert not lost[second].boundary["velocity"][:].any()


def tampered_unsealed(url, case):
    writer = DatasetWriter.open(url, ARCHIVED_SCHEMA)
    add(writer, 3, family=ARCHIVED)  # something new to publish
    lost = f"cases/{case}/velocity/c/0/0/0"
    return tampered(url, lambda store: sync(store.delete(lost)), ARCHIVED_SCHEMA)


def test_new_cases_of_a_dataset_without_seals_are_sealed(unsealed):
    writer = DatasetWriter.open(unsealed, ARCHIVED_SCHEMA)
    (added,) = add(writer, 3, family=ARCHIVED)
    writer.publish()
    dataset = simgen.open_dataset(unsealed)
    assert "seal" in dataset._records[added]
    assert verify(dataset).findings == []
    assert not {"seal", "seal_at"} & set(content.design_records(dataset)[added])


def test_every_bit_of_a_versions_snapshot_header_and_tail_is_read_right_or_told(sealed, writer):
    writer.publish()
    snapshot = snapshot_of(sealed, "v1")
    original = snapshot.read_bytes()
    expected = {number: make_cloud(number).fields["velocity"] for number in (0, 1)}
    for position in [*range(60), *range(len(original) - 20, len(original))]:
        for bit in (1, 0x80):
            damaged = bytearray(original)
            damaged[position] ^= bit
            snapshot.write_bytes(damaged)
            try:
                dataset = simgen.open_dataset(sealed)
                for number, values in expected.items():
                    np.testing.assert_array_equal(
                        dataset[make_result(number).id]["velocity"][:], values
                    )
            except StoreError as error:
                assert "\n" not in str(error)
    snapshot.write_bytes(original)
