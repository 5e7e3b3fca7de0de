"""Ctrl-C at a terminal reaches every process there: seconds, one line, nobody left behind."""

import contextlib
import json
import os
import signal
import time
from pathlib import Path

import pytest

import simgen
from tests.end_to_end.conftest import run, solvers, wait_for
from tests.end_to_end.interrupting import done_cases, start_courant
from tests.end_to_end.processes import lives, tree
from tests.end_to_end.terminal import Terminal, in_a_terminal

pytestmark = [pytest.mark.end_to_end, pytest.mark.openfoam]

# A quiet machine needs a few seconds; a busy one several times as long.
BAR_S = 30
LAST_LINE = "interrupted; the same command goes on from here"


def test_ctrl_c_ends_every_stage_and_the_job_goes_on(environment, tiny_experiment, tmp_path):
    alone = {name: value for name, value in environment.items() if name != "PREFECT_API_URL"}
    alone["COURANT_SCRATCH"] = str(tmp_path / "scratch")
    experiment = json.loads(tiny_experiment.read_text())
    experiment["training"]["epochs"] = 40
    (tmp_path / "experiment.json").write_text(json.dumps(experiment))
    command = [
        "run", "cylinder-flow", "--cases", "4", "--set", "end_time=30",
        "--experiment", str(tmp_path / "experiment.json"), "--out", str(tmp_path / "out"),
    ]  # fmt: skip
    url, runs = str(tmp_path / "out/store/cylinder-flow"), tmp_path / "out/runs"
    stages = {
        "starting": lambda job: "starting Prefect" in job.printed,
        "solving and committing": lambda job: done_cases(url) and solvers(tmp_path / "scratch"),
        "training": lambda job: list(runs.glob("*/metrics.jsonl")),
    }
    for stage, reached in stages.items():
        with in_a_terminal(alone, *command) as job:
            wait_for(lambda reached=reached, job=job: reached(job) or ended(job), 300)
            assert not ended(job), job.printed
            seconds, processes = job.interrupt()
        print(f"Ctrl-C while {stage}: {seconds:.1f} s")
        assert (job.process.returncode, job.last_line) == (130, LAST_LINE), job.printed
        assert "Traceback" not in job.printed
        assert seconds < BAR_S
        wait_for(lambda processes=processes: not any(map(lives, processes)), 20)
    done = done_cases(url)
    again = run(alone, "courant", *command, timeout=400)
    assert again.returncode == 0, again.stdout + again.stderr
    assert set(done) <= set(simgen.open_dataset(url).cases())
    assert (tmp_path / "out/report/index.html").is_file()


def ended(job: Terminal) -> bool:
    return job.process.poll() is not None


@pytest.mark.parametrize("victim", ["gcs_server", "raylet"])
def test_without_ray_the_command_ends_in_one_line_and_alone(environment, tmp_path, victim):
    alone = {name: value for name, value in environment.items() if name != "PREFECT_API_URL"}
    alone["COURANT_SCRATCH"] = str(tmp_path / "scratch")
    job = start_courant(
        alone, "generate", "cylinder-flow", "--cases", "2", "--set", "end_time=60",
        "--store", str(tmp_path / "store"),
    )  # fmt: skip
    try:
        wait_for(lambda: solvers(tmp_path / "scratch"), 300)
        processes = tree(job.pid)
        os.kill(next(one for one in processes if program(one) == victim), signal.SIGKILL)
        began = time.monotonic()
        output = job.communicate(timeout=120)[0].decode()
        seconds = time.monotonic() - began
    finally:
        job.kill()
    print(f"without its {victim}: {seconds:.1f} s")
    assert job.returncode == 1
    assert f"error: the embedded Ray has lost its {victim} (exit code -9)" in output
    assert output.count("error: ") == 1
    assert "Traceback" not in output
    assert seconds < BAR_S
    wait_for(lambda: not any(map(lives, processes)), 20)


def program(process: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/exe").resolve().name
    return ""
