"""`courant generate` in processes that are killed, with every solver run on record."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections import Counter
from pathlib import Path

from simgen.errors import SimgenError
from tests.end_to_end.conftest import BIN, solvers, wait_for
from tests.end_to_end.interrupting import done_cases, parent, start_courant

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
