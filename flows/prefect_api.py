"""Prefect's API for one process: the server that PREFECT_API_URL names, else one of its own that
ends with it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from flows.prefect_server import PrefectServer
from flows.terminal import errors

#: Never closed: Prefect sends the last of its log at exit, and the server stops after that.
_for_the_process = contextlib.ExitStack()


@contextlib.contextmanager
def prefect_api() -> Iterator[None]:
    """One API server for this process and its Ray workers, which would otherwise start one each."""
    with errors.status("starting Prefect"):
        from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

        if not PREFECT_API_URL.value():
            server = PrefectServer()
            server.start()
            settings = {PREFECT_API_URL: server.api_url, PREFECT_API_AUTH_STRING: server.password}
            _for_the_process.enter_context(temporary_settings(settings))
            # Prefect's own threads in Ray's workers do not see the settings that travel with a
            # task, only the environment.
            os.environ |= server.client_variables
    yield
