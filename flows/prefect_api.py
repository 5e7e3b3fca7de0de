"""Prefect's API for one process: the server that PREFECT_API_URL names, else one beside the process that ends with it."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator

from flows.terminal import errors


@contextlib.contextmanager
def prefect_api() -> Iterator[None]:
    """One API server for this process and its Ray workers, which would otherwise start one each."""
    with errors.status("starting Prefect"):
        from prefect.settings import PREFECT_API_URL, temporary_settings

        if not PREFECT_API_URL.value():
            from prefect.server.api.server import SubprocessASGIServer

            server = SubprocessASGIServer()
            server.start(timeout=120)
            # For the rest of the process: Prefect sends the last of its log at exit, and stops its server after that.
            temporary_settings({PREFECT_API_URL: server.api_url}).__enter__()
            # Prefect's own threads in Ray's workers do not see the settings that travel with a task, only the environment.
            os.environ["PREFECT_API_URL"] = server.api_url
            assert server.server_process is not None
            _end_with_this_process(server.server_process.pid)
    yield


def _end_with_this_process(server: int) -> None:
    """Prefect ends its server at exit; after a kill -9, where nothing runs at exit, the shell's pipe still closes."""
    subprocess.Popen(["sh", "-c", f"read _; kill {server} 2>/dev/null"], stdin=subprocess.PIPE, start_new_session=True)
