"""Trouble of the store, the machine and the designs, each answered in one line with a non-zero exit and nothing half-written."""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.end_to_end.conftest import BIN, SHORT, run

pytestmark = pytest.mark.end_to_end


def refused(environment, *arguments):
    done = run(environment, "courant", "generate", "cylinder-flow", "--cases", "2", *arguments)
    assert done.returncode == 1, done.stdout + done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    return lines[0]


def test_a_missing_openfoam_names_the_package_to_install(prefect_server, tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "env"):
        (tools / name).symlink_to(shutil.which(name))
    environment = {**prefect_server, "PATH": f"{BIN}:{tools}"}
    line = refused(environment, "--set", SHORT, "--store", str(tmp_path / "store"))
    assert "icoFoam is not on PATH: install it (Debian: apt-get install openfoam)" in line
    assert not (tmp_path / "store").exists()


def test_an_unwritable_store_is_named(prefect_server, tmp_path):
    (tmp_path / "file").write_text("")
    assert f"store {tmp_path}/file/cylinder-flow cannot be used" in refused(
        prefect_server, "--store", str(tmp_path / "file")
    )


def test_an_unreachable_store_is_named(prefect_server, s3_server):
    environment = {**prefect_server, **s3_server.environment, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    line = refused(environment, "--store", "s3://courant-tests/unreachable")
    assert "cannot be reached at http://127.0.0.1:9" in line


def test_wrong_keys_are_named_and_not_shown(prefect_server, s3_server):
    environment = {**prefect_server, **s3_server.environment, "AWS_SECRET_ACCESS_KEY": "wrong-secret"}
    line = refused(environment, "--store", "s3://courant-tests/denied")
    assert "refused the credentials" in line
    assert "wrong-secret" not in line


@pytest.mark.openfoam
def test_designs_that_are_all_rejected_make_no_version(prefect_server, tmp_path):
    store = str(tmp_path / "store")
    line = refused(prefect_server, "--set", "end_time=5", "--set", "time_step=1", "--store", store)
    assert "none of 2 cases was accepted" in line
    assert "maximum Courant number is" in line
    shown = run(prefect_server, "courant", "dataset", "show", f"{store}/cylinder-flow")
    assert shown.returncode == 1
    assert "has no published version yet" in shown.stderr
    assert len(list(Path(store).glob("failed/cylinder-flow/*.tar.gz"))) == 2


@pytest.mark.openfoam
def test_a_failed_case_is_archived_and_solved_again_on_request(prefect_server, tmp_path):
    store, pipe = tmp_path / "store", ("courant", "generate", "branched-pipe", "--cases", "1", "--set", "mesh_size=9")
    limited = run(prefect_server, *pipe, "--time-limit", "1", "--store", str(store))
    assert limited.returncode == 1
    assert "passed its time limit of 1 s" in limited.stderr
    (archive,) = store.glob("failed/branched-pipe/*.tar.gz")
    with tarfile.open(archive) as packed:
        log = packed.extractfile(f"{archive.name.partition('.')[0]}/simpleFoam.logfile")
        assert b"Solving for Ux" in log.read()
    retried = run(prefect_server, *pipe, "--retry-failed", "--archive-raw", "--store", str(store))
    assert retried.returncode == 0, retried.stderr
    assert (store / "raw/branched-pipe" / archive.name).is_file()


@pytest.mark.openfoam
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_scratch_disk_is_named_on_the_cases_record(prefect_server, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]).returncode:
        pytest.skip("no disk can be mounted here")
    try:
        environment = {**prefect_server, "COURANT_SCRATCH": str(disk / "scratch")}
        line = refused(environment, "--set", SHORT, "--store", str(tmp_path / "store"))
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert "the scratch disk is full" in line
    assert "COURANT_SCRATCH" in line


def test_a_run_on_a_version_that_does_not_exist_is_refused(prefect_server, tmp_path):
    done = run(prefect_server, "courant", "train", str(tmp_path / "nothing"), "--version", "v7")
    assert done.returncode == 1
    assert "there is no dataset at" in done.stderr
    assert "Traceback" not in done.stderr
