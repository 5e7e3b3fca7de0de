"""What a failure is called: by what went wrong, whatever the store's path spells."""

import os
import stat
from pathlib import Path

import icechunk
import pytest

import simgen
from bench.damage import NOBODY, objects, snapshot_of
from simgen.errors import StoreError
from simgen.store.versions import damage_in, explain, translated
from simgen.store.write import DatasetWriter
from tests.store.conftest import SCHEMA, publish


@pytest.mark.parametrize(
    "name", ["host:403", "forbidden", "connection-timeout", "no space left", "404"]
)
def test_a_path_is_no_reason(tmp_path, name):
    url = str(tmp_path / name / "cylinder-flow")
    writer = DatasetWriter.open(url, SCHEMA)
    publish(writer, 0)
    snapshot_of(url, "v1").write_bytes(b"nonsense")
    with pytest.raises(StoreError, match=r"is damaged \(.*cannot be decoded") as error:
        simgen.open_dataset(url)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("id", ["18EA4404AAF8B6A6FDF9983D", "18EA4403AAF8B6A6FDF9983D"])
def test_the_id_of_a_request_is_no_reason(id):
    answer = f'unhandled error (SignatureDoesNotMatch) aws_request_id:\n "{id}"'
    assert damage_in(icechunk.IcechunkError(answer)) is None
    assert "refused the credentials" in explain("s3://bucket/x", answer)
    undecodable = f"  0: icechunk::fetch_snapshot with id={id} at src/refs.rs:403 |-> I/O error"
    assert damage_in(icechunk.IcechunkError(undecodable)) == "an object cannot be decoded"


@pytest.mark.parametrize("kind", ["snapshots", "chunks", "manifests", "refs"])
def test_a_file_that_may_not_be_read_is_called_so_and_not_damaged(writer, url, kind, tmp_path):
    publish(writer, 0)
    for folder in [tmp_path, *tmp_path.parents]:
        folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
    for path in objects(url, kind):
        path.chmod(0)
    if os.geteuid() == 0:
        os.seteuid(NOBODY)
    try:
        with pytest.raises(StoreError, match=r"(?i)cannot be used: permission denied; ") as error:
            simgen.open_dataset(url)[0].read()
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
    assert "damaged" not in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "place", ["refs/tag.v1/ref.json", "config.yaml", "snapshots/X", "chunks/X"]
)
def test_a_fifo_in_place_of_a_file_is_told_and_not_waited_for(writer, url, place):
    publish(writer, 0)
    path = Path(url, place)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    for attempt in (lambda: simgen.open_dataset(url), lambda: DatasetWriter.open(url, SCHEMA)):
        with pytest.raises(StoreError, match=f"{place} is damaged .it is a FIFO"):
            attempt()


def test_a_machine_without_memory_is_no_damage():
    with pytest.raises(MemoryError), translated("store"):
        raise MemoryError("Unable to allocate 8 GiB")
    assert damage_in(TypeError("'int' object is not subscriptable"))
