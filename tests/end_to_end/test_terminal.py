"""Ctrl-C at a terminal, at any moment of a command; further faults are those of `bench/chaos`."""

import json

import pytest

from tests.end_to_end.conftest import solvers, wait_for
from tests.end_to_end.processes import lives
from tests.end_to_end.terminal import Terminal, in_a_terminal
from tests.world import publish_waves, tiny_experiment

pytestmark = pytest.mark.end_to_end

BAR_S = 5
LAST_LINE = "interrupted; the same command goes on from here"


def interrupt(job: Terminal) -> None:
    """Press Ctrl-C: the command ends within the bar, with its line, and leaves no process."""
    assert job.process.poll() is None, job.printed
    seconds, processes = job.interrupt()
    assert (job.process.returncode, job.last_line) == (130, LAST_LINE), job.printed
    assert "Traceback" not in job.printed
    assert seconds < BAR_S
    wait_for(lambda: not any(map(lives, processes)), 1)


@pytest.mark.openfoam
@pytest.mark.parametrize("moment", ["the first bar", "a solver"])
def test_ctrl_c_ends_a_command_that_solves(environment, tmp_path, moment):
    scratch = tmp_path / "scratch"
    command = ["generate", "cylinder-flow", "--cases", "4", "--store", str(tmp_path / "s")]
    with in_a_terminal({**environment, "COURANT_SCRATCH": str(scratch)}, *command) as job:
        if moment == "a solver":
            wait_for(lambda: solvers(scratch) or job.process.poll() is not None, 300)
        else:
            wait_for(lambda: job.num_blocks or job.process.poll() is not None, 300)
        interrupt(job)


@pytest.mark.parametrize(("command", "workers"), [("train", 1), ("train", 2), ("sweep", 1)])
def test_ctrl_c_ends_a_command_that_trains(environment, tmp_path, command, workers):
    dataset = publish_waves(str(tmp_path / "store/cylinder-flow"))
    experiment = tiny_experiment(epochs=50_000, workers=workers)
    (tmp_path / "endless.json").write_text(experiment.model_dump_json())
    space = {"design": "grid", "parameters": {"model.num_anchors": [4, 8]}}
    (tmp_path / "space.yaml").write_text(json.dumps(space))
    given = ["--experiment", str(tmp_path / "endless.json"), "--runs", str(tmp_path / "runs")]
    given += ["--space", str(tmp_path / "space.yaml")] if command == "sweep" else []
    with in_a_terminal(environment, command, dataset, *given) as job:
        wait_for(lambda: list(tmp_path.rglob("metrics.jsonl")) or job.process.poll(), 300)
        interrupt(job)
