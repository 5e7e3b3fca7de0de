"""Start a private Ray for this process.

Notable features:
- Every listener is on 127.0.0.1. Ray only does so when the node's own address is loopback, and by
  default it never is: Ray takes `127.0.0.1` for a mistake and uses the machine's address instead,
  unless clusters are switched off.
- Clients have to show a token, drawn anew each time. It is passed only through the environment:
  Ray's processes inherit it, and no command line, log or record holds it. Other users of the
  machine cannot read it.
- Ray's sockets, logs and packages are kept in a folder that only this user can enter. Ray's own
  default lets everybody write there.
- The folder is removed with the process; that of a killed process by the next command
  (`ray_folder`).
"""

from __future__ import annotations

import atexit
import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import ray
from ray._private import ray_constants
from ray._private.node import Node
from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]

from courant.loopback import LOOPBACK
from courant.ray_folder import make_ray_folder, remove_abandoned_rays, remove_ray_folder
from courant.ray_patience import patient_start

_folders: list[Path] = []


def start_embedded_ray(**options: Any) -> None:
    """Start a Ray for this process and connect to it; `options` are those of `ray.init`.

    It ends with the process.
    """
    remove_abandoned_rays()
    folder = _private_folder()
    _require_a_token()
    _stay_on_loopback()
    with patient_start(), _without(_services_for_others(**options)):
        ray.init(
            address="local",
            include_dashboard=False,
            _node_ip_address=LOOPBACK,
            # Ray opens its folder to everybody, so it gets one inside a private one.
            _temp_dir=str(folder / "ray"),
            **options,
        )


def is_embedded() -> bool:
    """Tell whether this process is connected to a Ray of its own."""
    return ray.is_initialized() and ray.util.get_node_ip_address() == LOOPBACK


def lost_embedded_ray() -> str | None:
    """Say what of an embedded Ray has died; None if all is well or the Ray belongs to others."""
    node = ray._private.worker._global_node
    if node is None or not is_embedded():
        return None
    for name in (ray_constants.PROCESS_TYPE_GCS_SERVER, ray_constants.PROCESS_TYPE_RAYLET):
        for one in node.all_processes.get(name, []):
            if one.process.poll() is not None:
                return f"the embedded Ray has lost its {name} (exit code {one.process.returncode})"
    return None


def remove_embedded_ray() -> None:
    """Remove the folder of this process's Ray, for exits that skip `atexit`."""
    for folder in _folders:
        remove_ray_folder(folder)


def _services_for_others(log_to_driver: bool = True, **_: object) -> list[str]:
    """Name what Ray starts beside the node itself, each of which takes seconds of a core.

    The autoscaler's monitor has no nodes to add, nobody asks for the server of the dashboard, and
    logs that the driver does not print need not be followed.
    """
    return ["start_monitor", "start_api_server"] + ["start_log_monitor"] * (not log_to_driver)


@contextmanager
def _without(starts: list[str]) -> Iterator[None]:
    with ExitStack() as stack:
        for start in starts:
            stack.enter_context(patch.object(Node, start, lambda *given, **named: None))
        yield


def _require_a_token() -> None:
    """Set a new token for this process and its children.

    Ray has read the mode before, when it was imported.
    """
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


def _stay_on_loopback() -> None:
    """Make Ray accept loopback as an address, here and in the processes that it starts."""
    os.environ[ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR] = "0"
    ray_constants.ENABLE_RAY_CLUSTER = False


def _private_folder() -> Path:
    """Make a private folder for this process, removed at its end."""
    folder, lock = make_ray_folder()

    def remove() -> None:
        ray.shutdown()
        remove_ray_folder(folder)
        lock.close()

    atexit.register(remove)
    _folders.append(folder)
    return folder
