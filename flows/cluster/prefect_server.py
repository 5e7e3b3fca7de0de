"""Run a Prefect server for this command alone: on loopback, with a password, ended with it.

It runs in a session of its own, so that Ctrl-C in a terminal reaches only the command: the server
has to learn how the run ended.
"""

from __future__ import annotations

import atexit
import contextlib
import http.client
import os
import secrets
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

from courant.loopback import LOOPBACK, free_ports
from flows.ending import leave_nothing
from flows.settings import OWN_PREFECT
from flows.terminal import errors
from simgen.errors import InputError

#: Below the ports that the system gives to outgoing connections, which could take ours while the
#: server is away.
PORTS = range(20000, 30000)
START_S = 300.0
STOP_S = 3.0
ANSWER_S = 10.0
#: A server that dies more often is not restarted again.
RESTARTS = 5


class PrefectServer:
    """The server as a child process, which ends with this one in any case."""

    def __init__(self) -> None:
        self.port = next(free_ports(PORTS))
        self.password = f"courant:{secrets.token_hex(32)}"
        self._stopped = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def api_url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}/api"

    @property
    def client_variables(self) -> dict[str, str]:
        """Return the environment variables of a process that talks to this server."""
        return {
            "PREFECT_API_URL": self.api_url,
            "PREFECT_API_AUTH_STRING": self.password,
            # Each client of a server without this protection would ask it first.
            "PREFECT_CLIENT_CSRF_SUPPORT_ENABLED": "false",
            OWN_PREFECT: "1",
        }

    def start(self) -> None:
        """Start it, without waiting until it answers."""
        self._launch()
        atexit.register(self.stop)
        leave_nothing(self.stop)

    def wait_until_it_answers(self) -> None:
        """Wait for it, and from then on restart it when it dies; InputError where it does not."""
        self._wait()
        threading.Thread(target=self._keep, name="keep-prefect", daemon=True).start()

    def _wait(self) -> None:
        deadline = time.monotonic() + START_S
        while not answers(self.api_url):
            process = self._process
            if process is None:
                return
            if process.poll() is not None or time.monotonic() > deadline:
                raise InputError(
                    f"Prefect's server did not start on {LOOPBACK}:{self.port}; "
                    "`prefect server start` tells more, and PREFECT_API_URL "
                    "names one that runs already"
                )
            time.sleep(0.1)

    def _keep(self) -> None:
        """Restart it when it dies, on its port and database: clients keep asking for longer."""
        for _ in range(RESTARTS):
            process = self._process
            if process is None:
                return
            process.wait()
            if self._stopped.wait(0.2):
                return
            errors.print("Prefect's server died; starting it again", highlight=False)
            self._launch()
            with contextlib.suppress(InputError):
                self._wait()

    def stop(self) -> None:
        """End it, first gently."""
        self._stopped.set()
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._guard is not None:
            self._guard.kill()
            self._guard.wait()

    def _launch(self) -> None:
        import prefect

        packages = Path(prefect.__file__).parent.parent
        uvicorn = [sys.executable, "-m", "uvicorn", "--app-dir", str(packages), "--factory"]
        self._process = subprocess.Popen(
            [
                *uvicorn,
                "prefect.server.api.server:create_app",
                "--host",
                LOOPBACK,
                "--port",
                str(self.port),
                "--log-level",
                "error",
            ],
            env=self._variables(),
            start_new_session=True,
            stdin=subprocess.DEVNULL,
        )
        if self._guard is not None:
            self._guard.kill()
            self._guard.wait()
        # After a kill -9 no code of this process runs any more, but the shell's pipe closes.
        self._guard = subprocess.Popen(
            ["sh", "-c", f"read _; kill {self._process.pid} 2>/dev/null"],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def _variables(self) -> dict[str, str]:
        return {
            **os.environ,
            "PREFECT_UI_ENABLED": "0",
            # It serves one command: nobody reads its events, or has automations on it, and states
            # of tasks are written many at a time.
            "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_ENABLED": "false",
            "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "false",
            "PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "false",
            "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "500",
            "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "2",
            # Prefect marks a server that belongs to one process by these two.
            "PREFECT__SERVER_EPHEMERAL": "1",
            "PREFECT__SERVER_FINAL": "1",
            "PREFECT_SERVER_API_AUTH_STRING": self.password,
        }


def answers(api_url: str) -> bool:
    """Tell whether a server is there, the one thing it says without a password."""
    try:
        with urllib.request.urlopen(f"{api_url}/health", timeout=ANSWER_S):
            return True
    except urllib.error.HTTPError as error:
        # A proxy may ask for authentication: the server is there. One of 500 and more, such as 502,
        # says that it has no answer of the server.
        return error.code < 500
    except (OSError, ValueError, http.client.HTTPException):  # no server, or no address of one
        return False
