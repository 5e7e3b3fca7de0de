"""The Slurm job, with programs that only note how they were called in place of the real ones."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.infra.files import INFRA

SCRIPT = INFRA / "slurm/courant.sbatch"
#: Notes its name, arguments and some of its environment; then does what a test says.
PROGRAM = """#!/bin/bash
name=${0##*/}
echo "$name $* | $RAY_ADDRESS | $RAY_AUTH_TOKEN_PATH | $PREFECT_API_URL" >> "$NOTES"
case "$name $1" in
"prefect server" | "ray start") exec sleep 600 ;;
"srun --nodes="*) exec sleep 600 ;;
"srun --overlap") while [ "$1" != rm ]; do shift; done; "$@" ;;
"courant train")
    trap 'exit 130' INT
    while :; do sleep 0.1; done
    ;;
"courant generate")
    # A real one waits for the cluster too; this one would end before its neighbours have begun.
    until grep -q "^ray start --head" "$NOTES" && grep -q "^srun --nodes=" "$NOTES"; do
        sleep 0.1
    done
    ;;
"courant fail") exit 3 ;;
esac
"""


@pytest.fixture
def job(tmp_path: Path) -> dict[str, str]:
    """The environment of a job on three nodes."""
    programs = tmp_path / "venv/bin"
    programs.mkdir(parents=True)
    for name in ("courant", "prefect", "ray", "srun", "scontrol", "getent"):
        (programs / name).write_text(PROGRAM)
        (programs / name).chmod(0o755)
    (programs / "getent").write_text("#!/bin/sh\necho 192.0.2.7 STREAM $2\n")
    (tmp_path / "home").mkdir()
    return {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(tmp_path / "home"),
        "NOTES": str(tmp_path / "notes"),
        "COURANT_ENV": str(tmp_path / "venv"),
        "COURANT_SCRATCH": str(tmp_path / "scratch"),
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_SUBMIT_DIR": str(tmp_path),
        "SLURM_JOB_NUM_NODES": "3",
        "SLURM_CPUS_ON_NODE": "64",
        "SLURM_GPUS_ON_NODE": "4",
        "SLURMD_NODENAME": "localhost",
    }


def notes(job: dict[str, str]) -> dict[str, list[str]]:
    """Calls by program."""
    found: dict[str, list[str]] = {}
    path = Path(job["NOTES"])
    for line in path.read_text().splitlines() if path.exists() else []:
        found.setdefault(line.split()[0], []).append(line)
    return found


def start(job: dict[str, str], *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [SCRIPT, *arguments], env=job, stderr=subprocess.PIPE, start_new_session=True
    )


@pytest.mark.parametrize("nodes", ["1", "3"])
def test_only_the_jobs_own_folder_of_a_scratch_place_is_removed(
    job: dict[str, str], nodes: str
) -> None:
    """A user names a place that other jobs and other things use too."""
    place = Path(job["COURANT_SCRATCH"])
    own = place / f"courant-{job['SLURM_JOB_ID']}"
    other = place / "courant-1/case"
    for folder in (own, other):
        folder.mkdir(parents=True)
    (place / "thesis.tex").write_text("years of work")
    process = start({**job, "SLURM_JOB_NUM_NODES": nodes}, "fail")
    assert process.wait(120) == 3, "the exit code is the command's"
    assert ("srun" in notes(job)) == (nodes == "3") and "scontrol" not in notes(job)
    assert (place / "thesis.tex").exists() and other.exists()
    assert not own.exists()


def test_a_command_runs_on_all_nodes_and_leaves_nothing(job: dict[str, str]) -> None:
    process = start(job, "generate", "cylinder-flow", "--cases", "200")
    assert process.wait(120) == 0
    called = notes(job)
    number = int(job["SLURM_JOB_ID"])
    address, api = f"192.0.2.7:{20000 + number % 5000}", 25000 + number % 5000
    command, ray_address, token, url = called["courant"][0].split(" | ")
    assert command == "courant generate cylinder-flow --cases 200"
    assert ray_address == address
    assert url == f"http://192.0.2.7:{api}/api"
    assert token == f"{job['HOME']}/.courant-{number}/ray"
    (head,) = (line for line in called["ray"] if " --head " in line)
    assert "--num-cpus=64" in head and "--num-gpus=4" in head
    joined = called["srun"][0]
    assert "--nodes=2" in joined and "--exclude=localhost" in joined
    assert f"ray start --address={address} --block" in joined
    assert list(Path(job["HOME"]).iterdir()) == [], "no secret is left"


def test_a_job_that_cannot_run_ends_with_a_line_before_the_command(job: dict[str, str]) -> None:
    def errors_of(**changed: str) -> bytes:
        process = start({**job, **changed}, "generate", "cylinder-flow")
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 1 and not {"courant", "ray"} & set(notes(job))
        return errors

    assert b"/nowhere has no courant; set COURANT_ENV" in errors_of(COURANT_ENV="/nowhere")
    # A head that only itself can reach.
    (Path(job["COURANT_ENV"]) / "bin/getent").write_text("#!/bin/sh\necho 127.0.1.1 STREAM $2\n")
    assert b"127.0.1.1" in errors_of()


def test_before_its_time_is_up_the_command_is_interrupted_and_the_job_queued_again(
    job: dict[str, str],
) -> None:
    process = start(job, "train", "s3://bucket/store/cylinder-flow")
    deadline = time.monotonic() + 120
    while "courant" not in notes(job):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    time.sleep(0.2)  # its trap is set a moment after its note
    process.send_signal(signal.SIGUSR1)
    assert process.wait(120) != 0
    assert notes(job)["scontrol"][0].startswith(f"scontrol requeue {job['SLURM_JOB_ID']} ")
