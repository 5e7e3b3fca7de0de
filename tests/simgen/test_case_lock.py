"""A case's directory belongs to one process at a time: real processes that want the same one, and
what becomes of them.
"""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from simgen.case import CaseResult
from simgen.cases import get_family
from simgen.errors import InputError
from simgen.solving.case_lock import await_orphans, is_held, own_case
from simgen.solving.solve_case import read_result, solve_case, write_result
from tests.simgen.test_solve_case import solvers_in, wait_for

FAMILY = get_family("cylinder-flow")
PARAMETERS = [{"radius": radius, "center_x": 0.0, "center_y": 1.0} for radius in (1.5, 2.0, 2.5)]
POINT = FAMILY.point(PARAMETERS[0], FAMILY.settings("trial", {"end_time": 10.0}))
SOLVE = """
import sys
from pathlib import Path
from simgen.cases import get_family
from simgen.solving.solve_case import solve_case

family = get_family("cylinder-flow")
settings = family.settings("trial", {"end_time": float(sys.argv[2])})
for parameters in %r:
    result = solve_case(family.point(parameters, settings), Path(sys.argv[1]))
    solving = result.provenance["wall_time_s"]["solve"]
    print(result.id, result.status, solving, result.reason, flush=True)
"""
HOLD = """
import sys, time
from pathlib import Path
from simgen.solving.case_lock import own_case

with own_case("case", Path(sys.argv[1]), lambda: print("waits", flush=True)) as own:
    print("owns", own.has_waited, flush=True)
    sys.stdin.readline()
"""


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.fixture
def start():
    """Start a script; it ends with the test."""
    started: list[subprocess.Popen[str]] = []

    def start_script(script: str, *arguments: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", script, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield start_script
    for process in started:
        process.kill()
        process.communicate()


def test_others_wait_for_the_first_and_get_the_case_one_after_the_other(tmp_path, start):
    first = start(HOLD, tmp_path)
    assert line(first) == "owns False"
    others = [start(HOLD, tmp_path) for _ in range(2)]
    assert [line(other) for other in others] == ["waits"] * 2
    assert is_held("case", tmp_path) and not is_held("other", tmp_path)
    first.communicate("\n")
    for other in others:
        print(file=other.stdin, flush=True)
    assert [line(other) for other in others] == ["owns True"] * 2
    assert [other.wait(600) for other in others] == [0, 0]
    assert list(tmp_path.iterdir()) == [], "the lock's file goes with the lock"


def test_owners_never_overlap_and_every_one_has_its_turn(tmp_path):
    """Threads that come and go, so that files of locks vanish under those who have just opened
    them.
    """
    inside, most = [], []

    def work(number: int) -> None:
        for _ in range(20):
            with own_case("case", tmp_path):
                inside.append(number)
                most.append(len(inside))
                time.sleep(0.001)
                inside.remove(number)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    assert (len(most), max(most)) == (160, 1)
    assert list(tmp_path.iterdir()) == []


def test_a_program_of_a_killed_run_is_waited_for_and_named_where_it_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("simgen.solving.case_lock.ORPHANS_S", 0.5)
    orphan = subprocess.Popen(["sleep", "600"], cwd=tmp_path, text=True, stdin=subprocess.PIPE)
    program = Path(f"/proc/{orphan.pid}/exe").resolve().name
    with pytest.raises(
        InputError,
        match=rf"process {orphan.pid} of a run that has ended still works in {tmp_path}: stop it",
    ):
        await_orphans(tmp_path, (program,))
    orphan.kill()
    orphan.wait()
    await_orphans(tmp_path, (program,))


@pytest.mark.openfoam
def test_two_processes_that_solve_the_same_designs_at_once_end_with_the_same_cases(tmp_path, start):
    processes = [start(SOLVE % PARAMETERS, tmp_path, 60) for _ in range(2)]
    outputs = [process.communicate(timeout=600)[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert outputs[0] == outputs[1], "one of them solved each case: wall times are the same"
    assert [told.split()[1] for told in outputs[0]] == ["accepted"] * 3


@pytest.mark.openfoam
def test_the_second_solves_what_the_first_was_killed_over(tmp_path, start):
    point = FAMILY.point(PARAMETERS[0], FAMILY.settings("trial", {"end_time": 120.0}))
    first = start(SOLVE % PARAMETERS[:1], tmp_path, 120)
    wait_for(lambda: (tmp_path / point.id / "20").exists(), 600)
    second = start(SOLVE % PARAMETERS[:1], tmp_path, 120)
    wait_for(lambda: (tmp_path / point.id / "60").exists(), 600)
    assert len(solvers_in(tmp_path)) == 1
    first.kill()
    output, _ = second.communicate(timeout=600)
    assert output.split()[:2] == [point.id, "accepted"], output
    assert read_result(point, tmp_path / point.id).status == "accepted"


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A scratch folder with a case as another user would leave it, to be published."""
    case = tmp_path / "scratch" / POINT.id
    case.mkdir(parents=True)
    write_result(CaseResult(POINT, "accepted", ""), case)
    return case.parent


@pytest.mark.parametrize("how", ["written by others", "another user", "is a link"])
def test_a_planted_result_is_not_taken(planted: Path, how: str) -> None:
    scratch = planted
    if how == "written by others":
        planted.chmod(0o777)
    elif how == "is a link":
        scratch = planted.with_name("link")
        scratch.symlink_to(planted)
    elif os.geteuid() == 0:
        os.chown(planted, 65534, 65534)
    else:
        pytest.skip("only root can give a folder to another user")
    with pytest.raises(InputError, match=how):
        solve_case(POINT, scratch)


def test_a_planted_lock_does_not_overwrite_what_it_leads_to(tmp_path: Path) -> None:
    victim = tmp_path / "thesis.tex"
    victim.write_text("years of work")
    (tmp_path / ".case.lock").symlink_to(victim)
    with pytest.raises(InputError), own_case("case", tmp_path):
        pass
    assert victim.read_text() == "years of work"
