"""One attempt at the job: the command in a terminal of its own, watched from outside, and struck.

A strike returns what it did; None where its victim is not there.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench.chaos.schedule import CASES, EPOCHS, KINDS, Fault, Moment
from bench.chaos.site import Site, deployment_run
from tests.end_to_end.conftest import solvers
from tests.end_to_end.processes import lives, parent, tree
from tests.end_to_end.terminal import Terminal, open_terminal

LOOK_S = 0.05
#: Seconds that an attempt may take: 40 on two quiet cores, 15 times as long on crowded ones.
BOUND_S = 600.0
SETTINGS = {"end_time": 60, "mesh_size": 2}
_CASE = re.compile(r"case (\w{12})  (accepted|rejected|failed)")
_EPOCH = re.compile(r"epoch (\d+)/\d+  loss")
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of all that our commands leave behind, so that it is found."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(without: set[int]) -> list[int]:
    """Living processes that this one has started, without some and what those have started."""
    spared = {process for root in without for process in tree(root)} | {os.getpid()}
    return [process for process in tree(os.getpid()) if process not in spared and lives(process)]


class LogFile:
    """What was written to a log from now on."""

    def __init__(self, path: Path) -> None:
        self._path, self._start = path, path.stat().st_size

    @property
    def printed(self) -> str:
        with self._path.open("rb") as file:
            file.seek(self._start)
            return file.read().decode(errors="replace")

    @property
    def num_blocks(self) -> int:
        return self._path.stat().st_size


class Progress(NamedTuple):
    """What a command has printed so far."""

    num_blocks: int
    cases: list[tuple[str, str]]
    """With their states"""
    epoch: int
    has_begun_training: bool

    @classmethod
    def of(cls, output: Terminal | LogFile, known: Progress | None) -> Progress:
        """Read it again only when there is more."""
        num_blocks = output.num_blocks
        if known is not None and known.num_blocks == num_blocks:
            return known
        text = output.printed
        epoch = max(map(int, _EPOCH.findall(text)), default=0)
        begun = re.search(r"^run \S", text, re.MULTILINE) is not None
        return cls(num_blocks, _CASE.findall(text), epoch, begun)


@dataclass
class Watch:
    """The solver runs and the printed cases of a schedule, from its first attempt to its last."""

    scratch: Path
    solving: dict[int, str] = field(default_factory=dict)
    """Solvers at work: process id -> case"""
    starts: list[str] = field(default_factory=list)
    recorded: set[str] = field(default_factory=set)
    """Cases that a command has printed as accepted, which it does once they are committed"""
    solved_again: list[str] = field(default_factory=list)

    def look(self, progress: Sequence[Progress]) -> None:
        """Take note of solvers and cases that are new."""
        alive = {}
        for process in solvers(self.scratch):
            try:
                # A directory that was deleted under its solver keeps a name with a mark.
                place = str(Path(f"/proc/{process}/cwd").readlink()).removesuffix(" (deleted)")
            except OSError:  # it has ended meanwhile
                continue
            alive[process] = Path(place).name
        for process in alive.keys() - self.solving.keys():
            self.starts.append(alive[process])
            if alive[process] in self.recorded:
                self.solved_again.append(alive[process])
        self.solving = alive
        accepted = {case for of in progress for case, state in of.cases if state == "accepted"}
        self.recorded |= accepted


@dataclass
class Attempt:
    """A start of the command, the strikes that it took, and how it ended."""

    site: Site
    experiment: str
    watch: Watch
    trained_before: bool
    began: float = field(default_factory=time.monotonic)
    terminals: list[Terminal] = field(default_factory=list)
    struck: list[tuple[Fault, str]] = field(default_factory=list)
    in_time: bool = True
    took_to_end_s: float | None = None
    """From the last strike to the end of the commands; None where nothing struck"""
    progress: dict[int, Progress] = field(default_factory=dict)
    """By the number of the terminal; of a deployment it is its worker's log"""

    @property
    def first(self) -> Terminal:
        return self.terminals[0]

    @property
    def code(self) -> int:
        return self.first.process.returncode

    @property
    def trained(self) -> bool:
        """Whether a command has printed the last epoch."""
        return any(each.epoch >= EPOCHS for each in self.progress.values())

    def start_command(self) -> None:
        """Once at the beginning; a second time for the same command twice."""
        base = self.site.base
        if self.site.schedule.deployed:
            asked = {"cases": CASES, "settings": SETTINGS, "experiment": self.experiment}
            command = deployment_run(base, f"{base}/report", **asked)
        else:
            settings = [f"--set={name}={value}" for name, value in SETTINGS.items()]
            around = ("--experiment", self.experiment, "--out", base)
            command = ("courant", "run", "cylinder-flow", f"--cases={CASES}", *settings, *around)
        self.terminals.append(open_terminal(self.site.environment, *command))

    def run(self, faults: Sequence[Fault], strike: Strike) -> None:
        """From start to end; the first of the faults strikes at its moment, then the next."""
        ahead, reached_at, last_strike = list(faults), None, 0.0
        log = LogFile(self.site.worker_log) if self.site.schedule.deployed else None
        solved_before = len(self.watch.starts)

        def look() -> None:
            outputs: Sequence[Terminal | LogFile] = self.terminals if log is None else [log]
            for number, output in enumerate(outputs):
                self.progress[number] = Progress.of(output, self.progress.get(number))
            self.watch.look(list(self.progress.values()))

        self.start_command()
        while any(terminal.process.poll() is None for terminal in self.terminals):
            look()
            self.site.tend()
            if ahead and self._reached(ahead[0].moment, len(self.watch.starts) - solved_before):
                reached_at = reached_at or time.monotonic()
                if time.monotonic() - reached_at >= ahead[0].moment.delay_s:
                    what = strike(self, ahead[0])
                    if what is not None:
                        self.struck.append((ahead.pop(0), what))
                        last_strike, reached_at = time.monotonic(), None
            if time.monotonic() - self.began > BOUND_S:
                self.in_time = False
                break
            time.sleep(LOOK_S)
        if self.struck:
            self.took_to_end_s = time.monotonic() - last_strike
        look()
        for terminal in self.terminals:
            terminal.close()

    def _reached(self, moment: Moment, num_solvers: int) -> bool:
        """Whether the job is where the fault is to strike."""
        first = self.progress[0]
        if moment.stage == "starting":
            return True
        if moment.stage == "solving":
            return num_solvers >= moment.count and bool(self.watch.solving)
        if moment.stage == "recorded":
            return len(first.cases) >= moment.count
        if moment.stage == "training":
            begun = any(each.has_begun_training for each in self.progress.values())
            return begun and first.epoch >= moment.count
        return self.trained_before or first.epoch >= EPOCHS


Strike = Callable[[Attempt, Fault], str | None]


def strike(attempt: Attempt, fault: Fault) -> str | None:
    """Let the fault strike."""
    return _STRIKES[fault.kind](attempt, fault)


def _solver(attempt: Attempt, fault: Fault) -> int | None:
    return min(attempt.watch.solving, default=None)


def _worker(attempt: Attempt, fault: Fault) -> int | None:
    """The process that solves a case: it has started the guard of a solver."""
    with contextlib.suppress(OSError):
        return parent(parent(min(attempt.watch.solving))) if attempt.watch.solving else None
    return None


def _driver(attempt: Attempt, fault: Fault) -> int | None:
    process = attempt.first.process
    return process.pid if process.poll() is None else None


def _signal(
    victim: Callable[[Attempt, Fault], int | None],
    number: signal.Signals,
    attempt: Attempt,
    fault: Fault,
) -> str | None:
    """Send the signal; a process that it stops goes on later."""
    process = victim(attempt, fault)
    if process is None:
        return None
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return None
    if number == signal.SIGSTOP:
        attempt.site.later(fault.lasts_s, partial(_continue, process))
        return f"SIGSTOP of {process} for {fault.lasts_s} s"
    return f"{number.name} of {process}"


def _continue(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGCONT)


def _prefect_worker(attempt: Attempt, fault: Fault) -> str | None:
    worker = attempt.site.worker
    if worker is None or worker.poll() is not None:
        return None
    worker.kill()
    worker.wait()
    attempt.site.later(fault.lasts_s, attempt.site.start_worker)
    return f"SIGKILL of {worker.pid}, another after {fault.lasts_s} s"


def _ctrl_c(attempt: Attempt, fault: Fault) -> str | None:
    times = 1 + int(fault.strength * 2.999)
    with contextlib.suppress(OSError):
        for _ in range(times):
            attempt.first.press_ctrl_c()
        return f"Ctrl-C, {times} times"
    return None


def _second_command(attempt: Attempt, fault: Fault) -> str | None:
    attempt.start_command()
    return f"the same command as {attempt.terminals[-1].process.pid}"


def _delete_scratch(attempt: Attempt, fault: Fault) -> str | None:
    if not attempt.watch.solving:
        return None
    directory = attempt.site.scratch / min(attempt.watch.solving.values())
    shutil.rmtree(directory, ignore_errors=True)
    return f"rm -r {directory.name}"


def _restart_s3(attempt: Attempt, fault: Fault) -> str | None:
    s3 = attempt.site.servers.s3
    s3.kill()
    s3.start()
    return "the S3 server killed and started again"


def _s3(attempt: Attempt, fault: Fault) -> str | None:
    proxy = attempt.site.proxy
    assert proxy is not None
    attempt.site.later(fault.lasts_s, proxy.heal)
    status = {"S3 answers 500": "500 Internal Error", "S3 answers 503": "503 Slow Down"}
    if fault.kind in status:
        proxy.answer(status[fault.kind])
        return f"{status[fault.kind]} for {fault.lasts_s} s"
    if fault.kind == "S3 slow":
        proxy.delay_s = round(0.05 + 0.5 * fault.strength, 2)
        return f"{proxy.delay_s} s a block for {fault.lasts_s} s"
    proxy.cut_bodies_after = 200 + int(4000 * fault.strength)
    proxy.cut()
    return f"cut after {proxy.cut_bodies_after} bytes for {fault.lasts_s} s"


def _fill(place: Callable[[Attempt], Path], attempt: Attempt, fault: Fault) -> str:
    """Leave no byte of the file system; its space is there again later."""
    filler = place(attempt) / ".filler"
    written = 0
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    written += file.write(b"\0" * size)
    attempt.site.later(fault.lasts_s, partial(filler.unlink, missing_ok=True))
    return f"the last {written / 1e6:.0f} MB taken for {fault.lasts_s} s"


def _scratch(attempt: Attempt) -> Path:
    return attempt.site.scratch


def _store(attempt: Attempt) -> Path:
    return Path(attempt.site.base)


def _set_clock_back(attempt: Attempt, fault: Fault) -> str | None:
    seconds = int(30 + fault.strength**2 * 7200)
    attempt.site.set_clock(-seconds)
    attempt.site.later(fault.lasts_s, partial(attempt.site.set_clock, 0))
    return f"{seconds} s back for {fault.lasts_s} s"


def _restart_postgres(attempt: Attempt, fault: Fault) -> str | None:
    attempt.site.servers.postgres.restart()
    return "stopped at once and started again"


_KILL, _STOP = signal.SIGKILL, signal.SIGSTOP
_STRIKES: dict[str, Strike] = {
    "solver killed": partial(_signal, _solver, _KILL),
    "worker killed": partial(_signal, _worker, _KILL),
    "driver killed": partial(_signal, _driver, _KILL),
    "Prefect worker killed": _prefect_worker,
    "solver stopped": partial(_signal, _solver, _STOP),
    "worker stopped": partial(_signal, _worker, _STOP),
    "driver stopped": partial(_signal, _driver, _STOP),
    "Ctrl-C": _ctrl_c,
    "driver terminated": partial(_signal, _driver, signal.SIGTERM),
    "same command twice": _second_command,
    "scratch deleted": _delete_scratch,
    "S3 restarted": _restart_s3,
    "S3 slow": _s3,
    "S3 answers 500": _s3,
    "S3 answers 503": _s3,
    "S3 cuts bodies": _s3,
    "scratch full": partial(_fill, _scratch),
    "store full": partial(_fill, _store),
    "clock set back": _set_clock_back,
    "PostgreSQL restarted": _restart_postgres,
}
assert _STRIKES.keys() == KINDS.keys()
