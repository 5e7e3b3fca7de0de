"""Provide Prefect's API: the server of PREFECT_API_URL, else one that ends with this process.

The work does not depend on the server. A server of our own is restarted when it dies. If another
server goes away, cases are still solved and committed and epochs trained, and a line says that the
server is awaited. Only after COURANT_PREFECT_PATIENCE_S does the command end.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from flows.cluster.flow_runs import owned_flow_runs
from flows.cluster.prefect_server import PrefectServer, answers
from flows.ending import need
from flows.settings import load_settings
from flows.terminal import errors
from simgen.errors import InputError

Result = TypeVar("Result")

LOOK_S = 2.0

#: Never closed: Prefect sends the last of its log at exit, and the server stops after that.
_for_the_process = contextlib.ExitStack()


@contextlib.contextmanager
def prefect_api(meanwhile: Callable[[], Result]) -> Iterator[Result]:
    """Provide one API server for this process and its Ray workers, or each would start its own.

    `meanwhile` is called while it starts, and gives the block its value.
    """
    with errors.status("starting"):
        from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

        url = PREFECT_API_URL.value()
        if url:
            other = OtherServer(url, load_settings().prefect_patience_s)
            other.wait_until_it_answers()
            need(other.lost)
            started = meanwhile()
        else:
            server = PrefectServer()
            server.start()
            settings = {PREFECT_API_URL: server.api_url, PREFECT_API_AUTH_STRING: server.password}
            _for_the_process.enter_context(temporary_settings(settings))
            # Prefect's own threads in Ray's workers see only the environment, not the settings of a
            # task.
            os.environ |= server.client_variables
            started = meanwhile()
            server.wait_until_it_answers()
        from flows.cluster.prefect_clients import keep_asking

        keep_asking()
    with owned_flow_runs():
        yield started


class OtherServer:
    """A server that this command has not started.

    A thread polls it every LOOK_S, because it may not answer.
    """

    def __init__(self, url: str, patience_s: float) -> None:
        self._url, self._patience_s = url, patience_s
        self._answered = time.monotonic()
        self._away = False

    def wait_until_it_answers(self) -> None:
        """Wait for the server, then keep watching it; InputError where it stays away."""
        while not self._look():
            if (lost := self.lost()) is not None:
                raise InputError(lost)
            time.sleep(LOOK_S)
        threading.Thread(target=self._follow, name="watch-prefect", daemon=True).start()

    def lost(self) -> str | None:
        """Return the command's last line, once the server has been away for too long."""
        if time.monotonic() - self._answered <= self._patience_s:
            return None
        return (
            f"Prefect's server at {self._url} (PREFECT_API_URL) has not answered for "
            f"{self._patience_s:g} s; what was done is kept: start it, or unset PREFECT_API_URL, "
            "and run the same again"
        )

    def _follow(self) -> None:
        while True:
            self._look()
            time.sleep(LOOK_S)

    def _look(self) -> bool:
        """Check whether it answers; print a line when that changes."""
        there = answers(self._url)
        if there:
            self._answered = time.monotonic()
            if self._away:
                errors.print("Prefect's server answers again", highlight=False)
        elif not self._away:
            wait = f"waiting up to {self._patience_s:g} s (COURANT_PREFECT_PATIENCE_S)"
            line = f"Prefect's server at {self._url} does not answer; {wait}"
            errors.print(line, highlight=False, soft_wrap=True)
        self._away = not there
        return there
