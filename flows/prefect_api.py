"""Prefect's API for one process: the server that PREFECT_API_URL names, else one of its own that
ends with it.

The work does not hang on its server. One of its own is started again when it dies; of another's its
return is waited for, with a line that says so, while cases are solved and committed and epochs
trained; only after COURANT_PREFECT_PATIENCE_S does the command end.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator

from flows.ending import need
from flows.prefect_server import PrefectServer, answers
from flows.settings import load_settings
from flows.terminal import errors
from simgen.errors import InputError

LOOK_S = 2.0

#: Never closed: Prefect sends the last of its log at exit, and the server stops after that.
_for_the_process = contextlib.ExitStack()


@contextlib.contextmanager
def prefect_api() -> Iterator[None]:
    """One API server for this process and its Ray workers, which would otherwise start one each."""
    with errors.status("starting Prefect"):
        from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

        url = PREFECT_API_URL.value()
        if url:
            other = OtherServer(url, load_settings().prefect_patience_s)
            other.wait_until_it_answers()
            need(other.lost)
        else:
            server = PrefectServer()
            server.start()
            settings = {PREFECT_API_URL: server.api_url, PREFECT_API_AUTH_STRING: server.password}
            _for_the_process.enter_context(temporary_settings(settings))
            # Prefect's own threads in Ray's workers do not see the settings that travel with a
            # task, only the environment.
            os.environ |= server.client_variables
    yield


class OtherServer:
    """A server that this command has not started: looked at every LOOK_S, in a thread of its own,
    for it may not answer.
    """

    def __init__(self, url: str, patience_s: float) -> None:
        self._url, self._patience_s = url, patience_s
        self._answered = time.monotonic()
        self._away = False

    def wait_until_it_answers(self) -> None:
        """InputError where it stays away; looks at it from then on."""
        while not self._look():
            if (lost := self.lost()) is not None:
                raise InputError(lost)
            time.sleep(LOOK_S)
        threading.Thread(target=self._follow, name="watch-prefect", daemon=True).start()

    def lost(self) -> str | None:
        """The line to end with, once it has been away for too long."""
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
        """Whether it answers; a line when that changes."""
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
