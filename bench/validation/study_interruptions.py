"""`courant generate` in processes that are killed, with every solver run on record."""

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
from typing import Any

import numpy as np

from bench.report import publish
from simgen.errors import SimgenError
from simgen.store.read import Dataset, open_dataset
from simgen.store.verify import verify
from tests.end_to_end.conftest import BIN, done_cases, solvers, start_courant, wait_for
from tests.end_to_end.processes import parent

PATIENCE_S = 240.0
LOOK_S = 0.1
_ENDED = re.compile(r"^case (\w+)  (accepted|rejected|failed)", re.MULTILINE)


class InterruptedRun:
    """One dataset under `folder`, and commands that are asked to fill it.

    `starts` counts the solver runs of each case, `interrupted` those that a kill has ended; `told`
    holds (case, status) of every line that a finished command printed.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self.url = f"{folder}/store/cylinder-flow"
        self._scratch = folder / "scratch"
        self._command = (
            "generate",
            "cylinder-flow",
            "--store",
            f"{folder}/store",
            "--retry-failed",
            *options,
        )
        self._environment = {
            **os.environ,
            "COURANT_SCRATCH": str(self._scratch),
            "PREFECT_HOME": str(folder / "prefect"),
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "COLUMNS": "250",
        }
        self._seen: dict[int, str] = {}
        self._stop = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)
        self.interrupted: Counter[str] = Counter()
        self.told: list[tuple[str, str]] = []

    def __enter__(self) -> InterruptedRun:
        self._watch.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stop.set()
        self._watch.join()

    @property
    def starts(self) -> Counter[str]:
        return Counter(self._seen.values())

    def finish(self, cases: int) -> None:
        """The command to its end."""
        driver = start_courant(self._environment, *self._command, "--cases", str(cases))
        self._listen(driver)
        if driver.returncode:
            raise SimgenError(
                f"`courant generate` of {cases} cases ended with exit code {driver.returncode}"
            )

    def kill_one_after_the_other(self, cases: int) -> None:
        """The same command, of which a solver, a Ray worker and, with half of the cases on record,
        the driver are killed.
        """
        driver = start_courant(self._environment, *self._command, "--cases", str(cases))
        try:
            wait_for(self._running, PATIENCE_S)
            victim = self._running()[0]
            self._kill(victim, victim)
            wait_for(lambda: set(self._running()) - {victim}, PATIENCE_S)
            running = min(set(self._running()) - {victim})
            self._kill(parent(running), running)
            wait_for(
                lambda: len(done_cases(self.url)) >= cases // 2 and self._running(), PATIENCE_S
            )
            self._kill(driver.pid, *self._running())
        finally:
            driver.kill()
            self._listen(driver)
        wait_for(lambda: not solvers(self._scratch), PATIENCE_S)

    def _running(self) -> list[int]:
        return [process for process in solvers(self._scratch) if process in self._seen]

    def _kill(self, process: int, *interrupted: int) -> None:
        self.interrupted.update(self._seen[solver] for solver in interrupted)
        os.kill(process, signal.SIGKILL)

    def _listen(self, driver: subprocess.Popen[bytes]) -> None:
        output, _ = driver.communicate()
        print(output.decode(), flush=True)
        self.told += _ENDED.findall(output.decode())

    def _look(self) -> None:
        while not self._stop.wait(LOOK_S):
            for process in solvers(self._scratch):
                try:
                    self._seen.setdefault(process, Path(f"/proc/{process}/cwd").resolve().name)
                except OSError:  # it has ended meanwhile
                    continue


CASES, FIRST, END_S = 24, 4, 150


def main(out: Path, short: bool) -> None:
    cases, first = (8, 2) if short else (CASES, FIRST)
    folder = out / "interruptions"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    began = time.monotonic()
    with InterruptedRun(folder, "--set", f"end_time={END_S}") as run:
        run.finish(first)
        content = _content(open_dataset(run.url, "v1"))
        run.kill_one_after_the_other(cases)
        damaged = len(verify(open_dataset(run.url, "v1")).findings)
        on_record = set(done_cases(run.url))
        told_before = len(run.told)
        run.finish(cases)
    seconds = time.monotonic() - began
    failed = {case for case, status in run.told[:told_before] if status == "failed"}
    solved_again = {case for case, _ in run.told[told_before:]} & on_record - failed
    needless = [case for case, starts in run.starts.items() if starts > 1 + run.interrupted[case]]
    v1, v2 = open_dataset(run.url, "v1"), open_dataset(run.url, "v2")
    rows = [
        _line("cases on record when the driver was killed", len(on_record), len(on_record) < cases),
        _line("of them failed: the killed solver's", len(failed), len(failed) == 1),
        _line("damage found in v1 directly after the kills", damaged, damaged == 0),
        _line("accepted cases in v2, in the end", len(v2), len(v2) == cases),
        _line(
            "cases in v2 that are not accepted", len(v2.design) - len(v2), len(v2.design) == cases
        ),
        _line("solved cases that were solved again", len(solved_again), not solved_again),
        _line(
            "solver runs, interrupted ones included",
            run.starts.total(),
            run.starts.total() >= cases,
        ),
        _line(
            "solver runs that a kill ended", run.interrupted.total(), run.interrupted.total() >= 3
        ),
        _line(
            "cases with more solver runs than one and their interrupted ones",
            len(needless),
            not needless,
        ),
        *(_verified(version) for version in (v1, v2)),
        _line(
            "v1: snapshot, splits and every array's bytes are as they were",
            "",
            _content(v1) == content,
        ),
        _line(
            "v1's cases are in the same split in v2",
            "",
            all(v1[case].split == v2[case].split for case in v1.cases()),
        ),
    ]
    publish(out, "interruptions", rows, cases=cases, seconds=seconds)
    if not all(row["holds"] == "yes" for row in rows):
        raise SimgenError(
            f"an interrupted generation lost or repeated work; its dataset is kept at {run.url}"
        )


def _line(what: str, found: object, holds: bool) -> dict[str, Any]:
    return {"checked": what, "found": found, "holds": "yes" if holds else "NO"}


def _verified(dataset: Dataset) -> dict[str, Any]:
    found = verify(dataset)
    what = (
        f"{dataset.version}: findings of verify over {found.num_cases} cases, {found.num_chunks}"
        " chunks"
    )
    return _line(what, len(found.findings), not found.findings)


def _content(dataset: Dataset) -> str:
    """A hash over the version's snapshot, its splits and the bytes of all arrays."""
    digest = hashlib.sha256(dataset.snapshot_id.encode())
    for case in dataset:
        digest.update(f"{case.id} {case.split}".encode())
        for name, values in sorted(case.read().items()):
            digest.update(name.encode() + np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()
