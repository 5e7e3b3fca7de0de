"""What each kind of fault does. A strike tells what it did; None where its victim is not there."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.chaos.attempt import Attempt
from bench.chaos.kinds import KINDS
from bench.chaos.schedule import Fault
from tests.end_to_end.interrupting import parent

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
    attempt.site.servers.s3.restart()
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
