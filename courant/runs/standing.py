"""Tell whether a run is still being trained: its first worker writes a heartbeat file.

`status.json` says `running` until the training says otherwise, even after a kill -9 or a power cut.
A run whose worker is gone is *interrupted*: training it again resumes from its last checkpoint.
"""

from __future__ import annotations

import os
import platform
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from courant.runs.directory import RunDirectory
from courant.runs.record import STATUS, read_records, read_status
from courant.runs.weights import WEIGHTS
from simgen.errors import InputError, SimgenError, StoreError
from simgen.process_start import start_of
from simgen.whole_file import PARTIAL

SIGN = "heartbeat.json"
EVERY_S = 60.0
ENDING_S = 15.0
"""A process that was interrupted has ended by then"""
SILENT = timedelta(minutes=5)
"""A worker on another machine that has been silent for this long is considered gone"""


@contextmanager
def heartbeat(run: RunDirectory) -> Iterator[None]:
    """Write a heartbeat into the run every minute while the body runs, and remove it afterwards.

    Half-written files of a killed training are removed first.

    Raises InUseError while another process of this machine trains the run.
    """
    with _alone(run):
        check_unused(run)
        _write_sign(run)
    remove_leftovers(run)
    ended = threading.Event()
    beating = threading.Thread(target=_beat, args=(run, ended), name="heartbeat", daemon=True)
    beating.start()
    try:
        yield
    finally:
        ended.set()
        beating.join()
        with suppress(SimgenError):
            run.remove(SIGN)


def check_unused(run: RunDirectory) -> None:
    """Raise InUseError while another process of this machine trains the run.

    One that is just ending is waited for. Those of other machines cannot be told from lost ones.
    """
    until = time.monotonic() + ENDING_S
    while (process := _other_process(run)) is not None:
        if time.monotonic() > until:
            raise InUseError(
                f"{run.url} is being trained by process {process} of this machine; wait for it, or"
                " end it"
            )
        time.sleep(0.2)


@contextmanager
def _alone(run: RunDirectory) -> Iterator[None]:
    """Let one process of this machine at a time look at a run on disk and sign it.

    The lock is the kernel's, on the folder itself, and ends with its holder.
    """
    opened = None
    # Windows and some file systems have no such lock; the sign is looked at all the same.
    with suppress(ImportError, OSError):
        if isinstance(run.filesystem, LocalFileSystem):
            import fcntl

            folder = Path(run.path(""))
            folder.mkdir(parents=True, exist_ok=True)
            opened = os.open(folder, os.O_RDONLY)
            fcntl.flock(opened, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if opened is not None:
            os.close(opened)


class InUseError(InputError):
    """A run that another process trains."""


def _other_process(run: RunDirectory) -> int | None:
    try:
        sign = run.read_object(SIGN) if run.exists(SIGN) else {}
    except StoreError:
        return None
    process, started = sign.get("process"), sign.get("process_started")
    if sign.get("host") != platform.node() or not isinstance(process, int) or started is None:
        return None
    is_other = process != os.getpid() and start_of(process) == started
    return process if is_other else None


def standing(run: RunDirectory) -> str:
    """Return the recorded state, or `interrupted` for a run that no process works on any more.

    `waiting` before its first worker has started. StoreError where the record cannot be read.
    """
    if not run.exists(STATUS):
        return "waiting"
    state = str(read_status(run)["state"])
    return "interrupted" if state == "running" and not _is_alive(run) else state


def _beat(run: RunDirectory, ended: threading.Event) -> None:
    while not ended.wait(EVERY_S):
        # A store that is briefly unreachable is no reason to stop training.
        with suppress(SimgenError):
            _write_sign(run)


def _write_sign(run: RunDirectory) -> None:
    sign = {
        "host": platform.node(),
        "process": os.getpid(),
        "process_started": start_of(os.getpid()),
        "seen": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    run.write_json(SIGN, sign)


def _is_alive(run: RunDirectory) -> bool:
    try:
        sign = run.read_object(SIGN) if run.exists(SIGN) else {}
    except StoreError:
        return False
    process, started = sign.get("process"), sign.get("process_started")
    # Only Linux tells when a process started; elsewhere the age of the last heartbeat decides.
    if sign.get("host") == platform.node() and isinstance(process, int) and started is not None:
        return start_of(process) == started
    return _was_seen_lately(sign)


def _was_seen_lately(sign: dict[str, Any]) -> bool:
    try:
        seen = datetime.fromisoformat(str(sign.get("seen")))
        return datetime.now(UTC) - seen < SILENT
    except (ValueError, TypeError):
        return False


def check_trained(run: RunDirectory) -> None:
    """Raise InputError if there is no run, or one that has no weights yet."""
    if not run.exists("experiment.json"):
        raise InputError(
            f"{run.url} has no experiment.json; give the folder of a trained run,"
            " <runs>/<name>-<hash>"
        )
    if not run.exists(WEIGHTS):
        raise InputError(
            f"{run.url} has no {WEIGHTS}: it has not come to its first validation yet; train it"
            " further with the same command"
        )


def warn_of_unfinished(run: RunDirectory, epochs: int) -> None:
    """Warn when the weights of an unfinished run are read."""
    state = standing(run) if run.exists(STATUS) else "finished"
    if state != "finished":
        trained = read_records(run)
        done = trained[-1].epoch if trained else 0
        warnings.warn(
            f"{run.url} is {state} after epoch {done} of {epochs};"
            " the weights used are its best so far",
            stacklevel=3,
        )


#: A file that is still being written is younger.
OLD_S = 600.0


def remove_leftovers(run: RunDirectory) -> None:
    """Remove half-written files that nobody has touched for ten minutes; S3 has none."""
    if "://" in run.url:
        return
    for path in Path(run.url).rglob(f"*{PARTIAL}*"):
        # It may end, or be removed by another process, at any moment.
        with suppress(OSError):
            status = path.lstat()
            if time.time() - status.st_mtime > OLD_S:
                path.unlink()
