"""kill -9 of a solver, of a worker process and of the driver while 24 cylinder cases are generated,
and what was lost by it.

A first version of some cases is published, then all are asked for: a solver is killed, a worker,
and with half of the cases on record the driver. The same command again has to finish the work. What
is checked is a table; the study fails where a line of it does.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np

from bench.report import publish
from simgen.errors import SimgenError
from simgen.store.read import Dataset, open_dataset
from simgen.store.verify import verify
from tests.end_to_end.conftest import BIN, done_cases, solvers, start_courant, wait_for
from tests.end_to_end.processes import parent

CASES, FIRST, END_S = 24, 4, 150
PATIENCE_S, LOOK_S = 240.0, 0.1
_ENDED = re.compile(r"^case (\w+)  (accepted|rejected|failed)", re.MULTILINE)


class InterruptedRun:
    """One dataset under `folder`, and commands that are asked to fill it.

    `interrupted` counts the solver runs of each case that a kill has ended; `ended` holds (case,
    status) of every line that a finished command printed.
    """

    def __init__(self, folder: Path) -> None:
        self.url = f"{folder}/store/cylinder-flow"
        self._scratch = folder / "scratch"
        around = ("--store", f"{folder}/store", "--retry-failed", "--set", f"end_time={END_S}")
        self._command = ("generate", "cylinder-flow", *around, "--cases")
        self._environment = {
            **os.environ,
            "COURANT_SCRATCH": str(self._scratch),
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "COLUMNS": "250",
        }
        self._seen: dict[int, str] = {}
        self._stop = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)
        self.interrupted: Counter[str] = Counter()
        self.ended: list[tuple[str, str]] = []

    def __enter__(self) -> InterruptedRun:
        self._watch.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stop.set()
        self._watch.join()

    @property
    def starts(self) -> Counter[str]:
        """The solver runs of each case."""
        return Counter(self._seen.values())

    def finish(self, cases: int) -> None:
        """The command to its end."""
        driver = start_courant(self._environment, *self._command, str(cases))
        self._listen(driver)
        if driver.returncode:
            raise SimgenError(
                f"`courant generate` of {cases} cases ended with exit code {driver.returncode}"
            )

    def kill_one_after_the_other(self, cases: int) -> None:
        """The same command, of which a solver, a worker and, with half of the cases on record, the
        driver are killed.
        """
        driver = start_courant(self._environment, *self._command, str(cases))

        def running() -> list[int]:
            return [process for process in solvers(self._scratch) if process in self._seen]

        def kill(process: int, *interrupted: int) -> None:
            self.interrupted.update(self._seen[solver] for solver in interrupted)
            os.kill(process, signal.SIGKILL)

        try:
            wait_for(running, PATIENCE_S)
            victim = running()[0]
            kill(victim, victim)
            wait_for(lambda: set(running()) - {victim}, PATIENCE_S)
            other = min(set(running()) - {victim})
            kill(parent(other), other)
            wait_for(lambda: len(done_cases(self.url)) >= cases // 2 and running(), PATIENCE_S)
            kill(driver.pid, *running())
        finally:
            driver.kill()
            self._listen(driver)
        wait_for(lambda: not solvers(self._scratch), PATIENCE_S)

    def _listen(self, driver: subprocess.Popen[bytes]) -> None:
        output, _ = driver.communicate()
        print(output.decode(), flush=True)
        self.ended += _ENDED.findall(output.decode())

    def _look(self) -> None:
        while not self._stop.wait(LOOK_S):
            for process in solvers(self._scratch):
                try:
                    self._seen.setdefault(process, Path(f"/proc/{process}/cwd").resolve().name)
                except OSError:  # it has ended meanwhile
                    continue


def main(out: Path, short: bool) -> None:
    cases, first = (8, 2) if short else (CASES, FIRST)
    folder = out / "interruptions"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    began = time.monotonic()
    with InterruptedRun(folder) as run:
        run.finish(first)
        content = _content(open_dataset(run.url, "v1"))
        run.kill_one_after_the_other(cases)
        damaged = len(verify(open_dataset(run.url, "v1")).findings)
        on_record = set(done_cases(run.url))
        ended_before = len(run.ended)
        run.finish(cases)
    failed = {case for case, status in run.ended[:ended_before] if status == "failed"}
    again = {case for case, _ in run.ended[ended_before:]} & on_record - failed
    needless = [case for case, starts in run.starts.items() if starts > 1 + run.interrupted[case]]
    v1, v2 = open_dataset(run.url, "v1"), open_dataset(run.url, "v2")
    others, found = len(v2.design) - len(v2), [len(verify(each).findings) for each in (v1, v2)]
    runs, killed = run.starts.total(), run.interrupted.total()
    same_splits = all(v1[case].split == v2[case].split for case in v1.cases())
    checked: list[tuple[str, object, bool]] = [
        ("cases on record when the driver was killed", len(on_record), len(on_record) < cases),
        ("of them failed: the killed solver's", len(failed), len(failed) == 1),
        ("damage found in v1 directly after the kills", damaged, damaged == 0),
        ("accepted cases in v2, in the end", len(v2), len(v2) == cases),
        ("cases in v2 that are not accepted", others, len(v2.design) == cases),
        ("solved cases that were solved again", len(again), not again),
        ("solver runs, interrupted ones included", runs, runs >= cases),
        ("solver runs that a kill ended", killed, killed >= 3),
        ("cases with more solver runs than these and one", len(needless), not needless),
        ("v1: findings of verify", found[0], not found[0]),
        ("v2: findings of verify", found[1], not found[1]),
        ("v1: snapshot, splits, every array's bytes as before", "", _content(v1) == content),
        ("v1's cases are in the same split in v2", "", same_splits),
    ]
    rows = [
        {"checked": what, "found": value, "holds": "yes" if holds else "NO"}
        for what, value, holds in checked
    ]
    publish(out, "interruptions", rows, cases=cases, seconds=time.monotonic() - began)
    if not all(holds for _, _, holds in checked):
        raise SimgenError(
            f"an interrupted generation lost or repeated work; its dataset is kept at {run.url}"
        )


def _content(dataset: Dataset) -> str:
    """A hash over the version's snapshot, its splits and the bytes of all arrays."""
    digest = hashlib.sha256(dataset.snapshot_id.encode())
    for case in dataset:
        digest.update(f"{case.id} {case.split}".encode())
        for name, values in sorted(case.read().items()):
            digest.update(name.encode() + np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()
