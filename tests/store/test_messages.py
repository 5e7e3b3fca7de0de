"""What a failure is called: by what went wrong, whatever the store's path spells."""

import os
import stat

import pytest

import simgen
from bench.damage import NOBODY, objects, snapshot_of
from simgen.errors import StoreError
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
