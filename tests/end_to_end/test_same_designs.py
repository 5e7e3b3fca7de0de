"""Two `courant generate` of the same designs at once, on one scratch disk and into one dataset."""

import os
import re
import signal
from pathlib import Path

import pytest

import simgen
from simgen.store.verify import verify
from tests.end_to_end.conftest import solvers, wait_for
from tests.end_to_end.interrupting import done_cases, start_courant

pytestmark = [pytest.mark.end_to_end, pytest.mark.openfoam]

CASES = 4
COMMAND = ["generate", "cylinder-flow", "--cases", str(CASES), "--set", "end_time=60", "--store"]


def accepted_lines(output: bytes) -> list[tuple[str, bool]]:
    """Of each case that a run told of: its id, and whether this run solved it."""
    return [
        (case, "solved by another run" not in rest)
        for case, rest in re.findall(r"case (\w{12})  accepted  (.*)", output.decode())
    ]


def check_dataset(url: str) -> None:
    dataset = simgen.open_dataset(url)
    assert len(dataset) == CASES
    assert dataset.version == "v1", "the second run had nothing to add"
    assert all(len(case.time) == 60 and case.time[0] == 1 for case in dataset)
    assert verify(dataset).findings == []


def test_both_end_well_and_every_case_is_solved_once_and_complete(prefect_server, tmp_path):
    scratch, store = tmp_path / "scratch", str(tmp_path / "store")
    environment = {**prefect_server, "COURANT_SCRATCH": str(scratch)}
    runs = [start_courant(environment, *COMMAND, store) for _ in range(2)]
    try:
        outputs = [run.communicate(timeout=480)[0] for run in runs]
    finally:
        for run in runs:
            run.kill()
    assert [run.returncode for run in runs] == [0, 0], b"\n".join(outputs).decode()
    check_dataset(f"{store}/cylinder-flow")
    told = [line for output in outputs for line in accepted_lines(output)]
    dataset = set(simgen.open_dataset(f"{store}/cylinder-flow").cases())
    assert {case for case, _ in told} == dataset
    assert sum(own for _, own in told) == CASES, "none is solved twice"
    assert not list(scratch.iterdir())


def test_the_second_takes_over_what_the_first_was_killed_over(prefect_server, tmp_path):
    scratch, store = tmp_path / "scratch", str(tmp_path / "store")
    environment = {**prefect_server, "COURANT_SCRATCH": str(scratch)}
    runs = [start_courant(environment, *COMMAND, store)]
    try:
        wait_for(lambda: solvers(scratch), 240)
        for solver in solvers(scratch):  # however long the second run takes to come up
            os.kill(solver, signal.SIGSTOP)
        runs.append(start_courant(environment, *COMMAND, store))
        wait_for(lambda: waiting(scratch), 240)
        runs[0].kill()
        output, _ = runs[1].communicate(timeout=480)
    finally:
        for run in runs:
            run.kill()
    assert runs[1].returncode == 0, output.decode()
    assert len(done_cases(f"{store}/cylinder-flow")) == CASES
    check_dataset(f"{store}/cylinder-flow")


def waiting(scratch: Path) -> bool:
    """Whether more processes have a case's lock open than there are locks."""
    opened = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            opened += [file.readlink() for file in (process / "fd").iterdir()]
        except OSError:
            continue
    locks = [file for file in opened if file.parent == scratch and file.suffix == ".lock"]
    return len(locks) > len(set(locks))
