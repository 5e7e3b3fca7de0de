"""Write log lines as text or as JSON objects, each with the ids of what it is about.

Lines are text by default. As JSON, a line of a case has its dataset, its id and the flow run,
whichever process writes it, and a line of a training its run and experiment:

    with about(dataset=url, case=point.id):
        logger.info("meshed")

    {"time": "2026-03-01T10:00:00.000Z", "level": "INFO", "logger": "simgen.solving",
     "message": "meshed", "flow_run": "…", "dataset": "s3://bucket/store/cylinder-flow",
     "case": "b0159c13a91f", "host": "node-3", "process": 4711}

A process decides which of the two where it begins (`start`); what runs for it elsewhere applies its
`log_context()`. JSON lines hold no values of secret variables and no passwords of URLs.
"""

import json
import logging
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

Format = Literal["text", "json"]
PACKAGES = ("simgen", "courant", "flows")
HIDDEN = "***"
_SECRET_NAME = re.compile(r"(KEY|KEY_ID|SECRET|TOKEN|PASSWORD|PASS|AUTH_STRING)$")
_USER_INFO = re.compile(r"(?<=://)[^/@\s]+@")
#: What each line has; all else are ids.
_FIXED = {"time", "level", "logger", "host", "process", "exception"}
#: A shorter value would be found in words that have nothing to do with it.
_SHORTEST_SECRET = 8
#: Put on a record by Prefect's loggers, and the name that it has here.
_OF_RECORDS = {"flow_run_id": "flow_run", "task_run_id": "task_run"}

_fields: ContextVar[Mapping[str, str]] = ContextVar("fields of log lines")


@dataclass(frozen=True)
class LogContext:
    """How a process writes lines, and the ids in each of them; picklable."""

    format: Format = "text"
    fields: Mapping[str, str] = field(default_factory=dict)

    def apply(self) -> None:
        """Write lines from now on like the process that has sent this."""
        global _here
        _here = self
        if self.format != "json":
            return
        lines = logging.StreamHandler()
        lines.setFormatter(JsonLines())
        logging.basicConfig(handlers=[lines], force=True)
        for name in PACKAGES:
            logging.getLogger(name).setLevel(logging.INFO)

    def apply_in_training(self) -> None:
        """Do the same in a worker that trains; its lines as text go to standard output."""
        if self.format == "json":
            self.apply()
            return
        plain: dict[str, Any] = {"stream": sys.stdout, "format": "%(message)s", "force": True}
        logging.basicConfig(level=logging.WARNING, **plain)
        logging.getLogger("courant").setLevel(logging.INFO)


_here = LogContext()


def start(wanted: Format) -> None:
    """Decide how this process writes lines; text leaves logging as it is."""
    LogContext(wanted, _here.fields).apply()


def is_json() -> bool:
    return _here.format == "json"


def set_field(name: str, value: str) -> None:
    """Give every further line of this process a field."""
    global _here
    _here = LogContext(_here.format, {**_here.fields, name: value})


@contextmanager
def about(**fields: str) -> Iterator[None]:
    """Give the lines that are written inside of the block these fields."""
    token = _fields.set({**_fields.get({}), **fields})
    try:
        yield
    finally:
        _fields.reset(token)


def fields_here() -> dict[str, str]:
    """Return the fields of a line that would be written now."""
    return {**_here.fields, **_fields.get({})}


def log_context() -> LogContext:
    """Return what a process needs that is given a part of this one's work."""
    return LogContext(_here.format, fields_here())


class JsonLines(logging.Formatter):
    """Format a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for given, name in _OF_RECORDS.items():
            if getattr(record, given, None):
                line[name] = str(getattr(record, given))
        line |= fields_here()
        line |= {"host": platform.node(), "process": record.process}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return without_secrets(json.dumps(line, ensure_ascii=False, default=str))


def line_of(text: str) -> str:
    """Return a line for people as a line of JSON."""
    record = {"name": "flows", "levelno": logging.INFO, "levelname": "INFO", "msg": text}
    return JsonLines().format(logging.makeLogRecord(record))


def parse_line(line: str) -> tuple[dict[str, str], str]:
    """Return the ids and the message of a line of JSON; of any other line itself."""
    try:
        read = json.loads(line) if line.startswith('{"time"') else {}
    except ValueError:
        read = {}
    message = read.pop("message", line)
    return {name: str(read[name]) for name in read.keys() - _FIXED}, str(message)


def without_secrets(text: str) -> str:
    """Replace values of variables that hold secrets, and users and passwords of URLs."""
    secrets = {
        value
        for name, value in os.environ.items()
        if len(value) >= _SHORTEST_SECRET and _SECRET_NAME.search(name)
    }
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN).replace(json.dumps(secret)[1:-1], HIDDEN)
    return without_user_info(text)


def without_user_info(text: str) -> str:
    """Replace users and passwords of URLs."""
    return _USER_INFO.sub(f"{HIDDEN}@", text)


def size_text(num_bytes: float) -> str:
    """Write bytes in the unit that suits them."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= scale:
            return f"{num_bytes / scale:.3g} {unit}"
    return f"{num_bytes:.0f} B"


def duration_text(seconds: float) -> str:
    """Write a duration in the unit that suits it."""
    for unit, scale in (("h", 3600.0), ("min", 60.0)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds:.3g} s"
