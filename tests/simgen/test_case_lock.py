"""A case's directory belongs to one process at a time."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from simgen.case import CaseResult
from simgen.cases import get_family
from simgen.errors import InputError
from simgen.solving.case_lock import await_orphans, is_held, own_case
from simgen.solving.solve_case import read_result, solve_case, write_result
from tests.end_to_end.conftest import solvers, wait_for

FAMILY = get_family("cylinder-flow")
MIDDLE = {"radius": 1.5, "center_x": 0.0, "center_y": 1.0}
POINT = FAMILY.point(MIDDLE, FAMILY.settings("trial", {"end_time": 120.0}))
SOLVE = f"""
import sys
from pathlib import Path
from simgen.design_space import DesignPoint
from simgen.solving.solve_case import solve_case

result = solve_case({POINT!r}, Path(sys.argv[1]))
print(result.id, result.status, result.reason, flush=True)
"""
HOLD = """
import sys, time
from pathlib import Path
from simgen.solving.case_lock import own_case

with own_case("case", Path(sys.argv[1]), lambda: print("waits", flush=True)) as has_waited:
    print("owns", has_waited, flush=True)
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
        command, pipe = [sys.executable, "-c", script, *map(str, arguments)], subprocess.PIPE
        started.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True))
        return started[-1]

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


def test_a_program_of_a_killed_run_is_waited_for(tmp_path: Path) -> None:
    orphan = subprocess.Popen(["sleep", "600"], cwd=tmp_path)
    program = Path(f"/proc/{orphan.pid}/exe").resolve().name
    threading.Timer(0.5, orphan.kill).start()
    await_orphans(tmp_path, (program,))
    assert orphan.wait(0) == -signal.SIGKILL


@pytest.mark.openfoam
def test_the_second_solves_what_the_first_was_killed_over(tmp_path, start):
    first = start(SOLVE, tmp_path)
    wait_for(lambda: (tmp_path / POINT.id / "20").exists(), 600)
    second = start(SOLVE, tmp_path)
    wait_for(lambda: (tmp_path / POINT.id / "60").exists(), 600)
    assert len(solvers(tmp_path)) == 1
    first.kill()
    output, _ = second.communicate(timeout=600)
    assert output.split()[:2] == [POINT.id, "accepted"], output
    assert read_result(POINT, tmp_path / POINT.id).status == "accepted"


def test_a_planted_lock_does_not_overwrite_what_it_leads_to(tmp_path: Path) -> None:
    victim = tmp_path / "thesis.tex"
    victim.write_text("years of work")
    (tmp_path / ".case.lock").symlink_to(victim)
    with pytest.raises(InputError), own_case("case", tmp_path):
        pass
    assert victim.read_text() == "years of work"


@pytest.mark.parametrize("how", ["written by others", "another user", "is a link"])
def test_a_result_that_another_user_could_plant_is_not_taken(tmp_path: Path, how: str) -> None:
    planted = scratch = tmp_path / "scratch"
    (planted / POINT.id).mkdir(parents=True)
    write_result(CaseResult(POINT, "accepted", ""), planted / POINT.id)
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
