"""Begin the logs of a process as COURANT_LOG_FORMAT says, and gather those of an embedded Ray.

Ray keeps what its processes print in files of its own, which an embedded Ray takes along when it
ends. As JSON their lines are therefore sent to the process that has started it, through a socket
in a folder that only its user can enter. On a cluster each node's processes write to Ray's files,
where the cluster's own log collection reads them.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import shutil
import socket
import sys
import tempfile
import threading
from io import TextIOBase
from pathlib import Path
from typing import IO, cast

from flows import terminal
from flows.ending import leave_nothing
from flows.settings import load_settings
from simgen import log_lines

MAX_LINE = 2**18
"""Bytes of a line that is relayed; the kernel's limit for a datagram is near"""


def start_logs() -> None:
    """Begin the logs of this process.

    As JSON, whatever a person would be told on standard error becomes a line too.
    """
    if load_settings().log_format == "text" or log_lines.is_json():
        return
    # What the command prints as text is the lines' message now.
    os.environ["PREFECT_LOGGING_LEVEL"] = "INFO"
    log_lines.start("json")
    terminal.errors.file = cast(IO[str], PrintedLines())
    _let_prefect_speak()


def take_up(given: log_lines.Carried) -> None:
    """Write lines in this process of Ray's like the one that has sent its work."""
    given.take_up()
    if log_lines.is_json():
        _let_prefect_speak()


def _let_prefect_speak() -> None:
    """Raise the level of Prefect's loggers where Prefect was imported with another one."""
    if "prefect" in sys.modules:
        logging.getLogger("prefect").setLevel(logging.INFO)


def know_flow_run() -> None:
    """Give all further lines the id of the flow run that this process carries out.

    Of a flow that runs inside of another one, the id is that of the outermost.
    """
    from prefect.context import FlowRunContext

    context = FlowRunContext.get()
    run = context.flow_run if context else None
    if run is not None and (
        run.parent_task_run_id is None or "flow_run" not in log_lines.fields_here()
    ):
        log_lines.set_field("flow_run", str(run.id))


def know_submitter() -> None:
    """Give the lines of a submitted job the id of the flow run that waits for it."""
    config = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}"))
    if flow_run := (config.get("metadata") or {}).get("flow_run"):
        log_lines.set_field("flow_run", str(flow_run))


class PrintedLines(TextIOBase):
    """Turn what is printed for a person into log lines."""

    def __init__(self) -> None:
        self._begun = ""

    def isatty(self) -> bool:
        return False

    def write(self, text: str) -> int:
        *whole, self._begun = (self._begun + text).split("\n")
        for line in filter(str.strip, whole):
            level, message = log_lines.level_of(line)
            logging.getLogger("flows").log(level, message)
        return len(text)


def relay_lines() -> None:
    """Write the lines of this process's embedded Ray on its own standard error."""
    if not log_lines.is_json():
        return
    folder = Path(tempfile.mkdtemp(prefix="courant-log-"))
    inbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    inbox.bind(str(folder / "lines"))
    log_lines.relay_through(str(folder / "lines"))

    def close() -> None:
        _write_waiting(inbox)
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(close)
    leave_nothing(close)
    threading.Thread(target=_relay_all, args=(inbox,), name="relay-lines", daemon=True).start()


def _relay_all(inbox: socket.socket) -> None:
    while True:
        line = inbox.recv(MAX_LINE).decode(errors="replace")
        with contextlib.suppress(OSError):  # nobody reads them any more; their writers go on
            log_lines.write_line(line)


def _write_waiting(inbox: socket.socket) -> None:
    """Write what was sent and not yet read."""
    try:
        while True:
            line = inbox.recv(MAX_LINE, socket.MSG_DONTWAIT)
            log_lines.write_line(line.decode(errors="replace"))
    except OSError:
        return
