"""Work in other processes: all of it, a bounded number at a time, and who dies is lost alone."""

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import pytest

from flows import executor as module
from flows.executor import LocalExecutor, LostWorkerError, as_they_end
from flows.solving import Execution, solve_cases
from simgen.cases import get_family
from simgen.errors import InputError, MachineError, StoreError
from simgen.machine import usable_cores
from simgen.store.schema import Schema
from simgen.store.write import DatasetWriter
from tests.end_to_end.conftest import wait_for
from tests.end_to_end.processes import lives


def process_of(number: int) -> int:
    return os.getpid()


def die_once(folder: str) -> int:
    """Kill this process at the first call."""
    if not (Path(folder) / "died").exists():
        (Path(folder) / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail_once(folder: str, error: Exception) -> str:
    if not (Path(folder) / "failed").exists():
        (Path(folder) / "failed").touch()
        raise error
    return "solved"


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "PAUSE_S", 0.0)
    with LocalExecutor(1) as opened:
        yield opened


def test_each_slot_keeps_its_process(executor: LocalExecutor) -> None:
    futures = [executor.submit(process_of, number) for number in range(8)]
    found = {future.result(60) for future in futures}
    assert 1 <= len(found) <= usable_cores() and os.getpid() not in found
    with pytest.raises(InputError, match="the largest machine has"):
        LocalExecutor(usable_cores() + 1)


def test_a_process_that_dies_is_replaced_and_its_work_tried_again(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    other = executor.submit(time.sleep, 1.0)
    assert executor.submit(die_once, str(tmp_path)).result(60) != os.getpid()
    assert other.result(60) is None, "no other work is lost"
    with pytest.raises(LostWorkerError):
        executor.submit(die).result(60)
    assert executor.submit(process_of, 1).result(60)


def test_errors_that_may_pass_are_tried_again_and_others_are_not(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    for error in (StoreError("away"), MachineError("icoFoam was killed by SIGKILL")):
        assert executor.submit(fail_once, str(tmp_path), error).result(60) == "solved"
        (tmp_path / "failed").unlink()
    with pytest.raises(InputError, match="wrong"):
        executor.submit(fail_once, str(tmp_path), InputError("wrong")).result(60)


DRIVER = """
import sys, time
from flows.executor import LocalExecutor
from tests.flows.test_executor import sleep

if __name__ == "__main__":
    with LocalExecutor(1) as executor:
        executor.submit(sleep, sys.argv[1]).result()
"""


def sleep(file: str) -> None:
    Path(f"{file}.part").write_text(str(os.getpid()))
    Path(f"{file}.part").rename(file)
    time.sleep(600)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_a_driver_that_is_interrupted_or_killed(
    number: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / "driver.py").write_text(DRIVER)
    file = tmp_path / "processes"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), *sys.path])}
    driver = subprocess.Popen(
        [sys.executable, str(tmp_path / "driver.py"), str(file)],
        env=environment,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(file.exists, 60)
        process = int(file.read_text())
        driver.send_signal(number)
        driver.wait(60)
        wait_for(lambda: not lives(process), 60)
    finally:
        driver.kill()


def test_thousands_are_submitted_a_bounded_number_at_a_time() -> None:
    under_way: queue.SimpleQueue[tuple[int, Future[int]]] = queue.SimpleQueue()
    most = 0

    def submit(item: int) -> Future[int]:
        nonlocal most
        future: Future[int] = Future()
        under_way.put((item, future))
        most = max(most, under_way.qsize())
        return future

    def work() -> None:
        while True:
            item, future = under_way.get()
            future.set_result(item)

    threading.Thread(target=work, daemon=True).start()
    ended = [done.result() for done in as_they_end(range(5_000), submit, lambda: 66)]
    assert sorted(ended) == list(range(5_000)) and most <= 66


#: Kills the worker, which has started this program by another.
DEADLY = "#!/bin/sh\nkill -9 $(awk '{print $4}' /proc/$PPID/stat)\nsleep 60\n"


@pytest.mark.openfoam
def test_a_case_that_ends_its_worker_every_time_is_on_record_as_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = get_family("cylinder-flow")
    (parameters,) = family.design_space.sample(1, "sobol", 42)
    point = family.point(parameters, family.settings("trial", {"end_time": 5, "mesh_size": 2}))
    (tmp_path / "icoFoam").write_text(DEADLY)
    (tmp_path / "icoFoam").chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("COURANT_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setattr(module, "PAUSE_S", 0.0)
    writer = DatasetWriter.open(str(tmp_path / "store/cylinder-flow"), Schema.of(family))
    solve_cases([point], writer, Execution())
    assert writer.design()[point.id]["status"] == "failed"
