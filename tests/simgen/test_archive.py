"""Archives of raw cases: whole, without the early snapshots of those that went wrong, locally and
on S3.
"""

import tarfile

import fsspec
import pytest

from simgen.errors import StoreError
from simgen.solving.archive import archive_case

LOGS_AND_MESH = {"system/controlDict", "constant/polyMesh/points", "icoFoam.logfile", "0/U"}
FILES = LOGS_AND_MESH | {"1/U", "2/U"}


@pytest.fixture
def case(tmp_path):
    directory = tmp_path / "scratch" / "0123456789ab"
    for name in FILES:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(name)
    return directory


def names(url, **options):
    with (
        fsspec.open(url, "rb", **options) as file,
        tarfile.open(fileobj=file, mode="r:gz") as archive,
    ):
        return {member.name.partition("/")[2] for member in archive if member.isfile()}


def test_a_raw_case_is_kept_whole_and_a_failed_one_with_its_last_time(case, tmp_path):
    store = f"{tmp_path}/store/cylinder-flow"
    assert names(archive_case(case, store, "raw")) == FILES
    url = archive_case(case, store, "failed")
    assert url == f"{tmp_path}/store/failed/cylinder-flow/0123456789ab.tar.gz"
    assert names(url) == LOGS_AND_MESH | {"2/U"}


def test_an_archive_that_could_not_be_replaced_is_as_it_was(case, tmp_path, monkeypatch):
    url = archive_case(case, f"{tmp_path}/store/cylinder-flow", "raw")

    def full(packed, target, length):
        target.write(packed.read(10))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("simgen.solving.archive.shutil.copyfileobj", full)
    with pytest.raises(StoreError, match="No space left"):
        archive_case(case, f"{tmp_path}/store/cylinder-flow", "raw")
    assert "1/U" in names(url)
    assert len(list((tmp_path / "store/raw/cylinder-flow").iterdir())) == 1
    monkeypatch.undo()
    (tmp_path / "a-file").touch()
    with pytest.raises(StoreError, match=r"/a-file/failed/cylinder-flow/0123456789ab\.tar\.gz"):
        archive_case(case, f"{tmp_path}/a-file/cylinder-flow", "failed")


def test_on_s3(case, s3):
    store = f"{s3.url}/archive/cylinder-flow"
    url = archive_case(case, store, "failed")
    assert url == f"{s3.url}/archive/failed/cylinder-flow/{case.name}.tar.gz"
    assert "icoFoam.logfile" in names(url)
