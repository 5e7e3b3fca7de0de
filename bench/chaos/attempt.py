"""One attempt at the job: the command in a terminal of its own, struck till its end."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench.chaos.schedule import CASES, Fault, Moment
from bench.chaos.site import Site
from bench.chaos.watching import LogFile, Progress, Teller, Watch, descendants, named
from tests.end_to_end.terminal import Terminal, open_terminal

LOOK_S = 0.05
#: Seconds that an attempt may take: 40 on two quiet cores, 15 times as long on crowded ones.
BOUND_S = 600.0
Strike = Callable[["Attempt", Fault], str | None]
SETTINGS = {"end_time": 60, "mesh_size": 2}


@dataclass
class Job:
    """What is asked for, again and again until it is done."""

    site: Site
    experiment: str

    def command(self) -> tuple[str, ...]:
        if self.site.schedule.deployed:
            return self._deployment_run()
        settings = [
            part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}")
        ]
        return (
            "courant", "run", "cylinder-flow", "--cases", str(CASES), *settings,
            "--experiment", self.experiment, "--out", self.site.base,
        )  # fmt: skip

    def _deployment_run(self) -> tuple[str, ...]:
        base = self.site.base
        parameters = {
            "cases": CASES, "settings": SETTINGS, "store": f"{base}/store",
            "experiment": self.experiment, "runs": f"{base}/runs", "report": f"{base}/report",
        }  # fmt: skip
        options = [
            part
            for name, value in parameters.items()
            for part in ("--param", f"{name}={json.dumps(value)}")
        ]
        name = "generate-and-train/cylinder-flow"
        return ("prefect", "deployment", "run", name, "--watch", *options)


@dataclass
class Attempt:
    """A start of the command, the strikes that it took, and how it ended."""

    job: Job
    watch: Watch
    trained_before: bool
    began: float = field(default_factory=time.monotonic)
    terminals: list[Terminal] = field(default_factory=list)
    struck: list[tuple[Fault, str]] = field(default_factory=list)
    in_time: bool = True
    last_strike: float = 0.0
    took_to_end_s: float | None = None
    """From the last strike to the end of the commands; None where nothing struck"""
    log: LogFile | None = None

    @property
    def site(self) -> Site:
        return self.job.site

    @property
    def first(self) -> Terminal:
        return self.terminals[0]

    @property
    def code(self) -> int:
        return self.first.process.returncode

    @property
    def trained(self) -> bool:
        """Whether a command has told of the last epoch."""
        return any(map(Progress.trained, self.tellers))

    @property
    def tellers(self) -> Sequence[Teller]:
        """Where the commands tell how far they are; of a deployment it is its worker's log."""
        return self.terminals if self.log is None else [self.log]

    def start_command(self) -> None:
        """Once at the beginning; a second time for the same command twice."""
        self.terminals.append(open_terminal(self.site.environment, *self.job.command()))

    def processes(self, *names: str) -> list[int]:
        """Of the schedule; those with a name in their command line."""
        found = descendants(self.site.spared)
        return named(found, *names) if names else found

    def run(self, faults: Sequence[Fault], strike: Strike) -> None:
        """From start to end; the first of the faults strikes at its moment, then the next."""
        ahead, reached_at = list(faults), None
        if self.site.schedule.deployed:
            self.log = LogFile(self.site.worker_log)
        progress = Progress(len(self.watch.starts))
        self.start_command()
        while self._running():
            self.watch.look(self.tellers)
            self.site.tend()
            if ahead and self._reached(ahead[0].moment, progress):
                reached_at = reached_at or time.monotonic()
                if time.monotonic() - reached_at >= ahead[0].moment.delay_s:
                    what = strike(self, ahead[0])
                    if what is not None:
                        self.struck.append((ahead.pop(0), what))
                        self.last_strike = time.monotonic()
                        reached_at = None
            if time.monotonic() - self.began > BOUND_S:
                self.in_time = False
                break
            time.sleep(LOOK_S)
        if self.struck:
            self.took_to_end_s = time.monotonic() - self.last_strike
        self.watch.look(self.tellers)
        for terminal in self.terminals:
            terminal.close()

    def _has_begun_training(self) -> bool:
        return any(re.search(r"^run \S", teller.printed, re.M) for teller in self.tellers)

    def _running(self) -> bool:
        return any(terminal.process.poll() is None for terminal in self.terminals)

    def _reached(self, moment: Moment, progress: Progress) -> bool:
        """Whether the job is where the fault is to strike."""
        if moment.stage == "starting":
            return True
        if moment.stage == "solving":
            enough = progress.num_solvers(self.watch) >= moment.count
            return enough and bool(self.watch.solving)
        if moment.stage == "recorded":
            return progress.num_recorded(self.tellers[0]) >= moment.count
        if moment.stage == "training":
            return self._has_begun_training() and progress.epochs(self.tellers[0]) >= moment.count
        return self.trained_before or progress.trained(self.tellers[0])
