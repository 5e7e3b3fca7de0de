"""Prefect's log lines on a terminal or in a pipe that nobody reads any more.

A flow of a deployment writes into a pipe to the worker that has started it. Where the worker is
killed, rich takes the broken pipe for the end of the program, and the flow would end with it; its
cases and epochs need no reader.
"""

from __future__ import annotations

import logging
import os
import sys

from prefect.logging.handlers import PrefectConsoleHandler

_emit = PrefectConsoleHandler.emit


def outlive_readers() -> None:
    """Have this process go on silently where its output has no reader any more."""
    PrefectConsoleHandler.emit = _emit_or_fall_silent  # type: ignore[method-assign,assignment]


def _emit_or_fall_silent(handler: PrefectConsoleHandler, record: logging.LogRecord) -> None:
    try:
        _emit(handler, record)
    except SystemExit:  # rich has sent standard output to nowhere by now
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, sys.__stderr__.fileno() if sys.__stderr__ else 2)
        os.close(sink)
