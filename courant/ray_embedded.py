"""A Ray of this process's own, which nobody else gets into.

Notable features:
- Every listener is on 127.0.0.1. Ray does so when the node's own address is loopback, and by itself
  it never is: Ray takes `127.0.0.1` for a slip and puts the machine's address in its place, except
  where clusters are switched off.
- Who connects has to show a token, drawn anew each time. It travels in the environment alone: Ray's
  processes inherit it, and no command line, log or record holds it. Other users of the machine
  cannot read it.
- Ray's sockets, logs and packages lie in a folder that only this user can enter. Ray's own default
  lets everybody write there.
- The folder goes with the process; one that a killed process left is removed by the next that
  starts.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from ray._private import ray_constants
from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]

LOOPBACK = "127.0.0.1"
FOLDER = "courant-ray-"
LOCK = "lock"
#: Paths of Unix sockets end at 107 bytes, of which Ray's own folders and names take about 75.
LONGEST_BASE = 24
#: Longer than anyone needs between a folder and its lock.
START_S = 60.0

_folders: list[Path] = []


def start_embedded_ray(**options: Any) -> None:
    """Start a Ray for this process and connect to it; `options` are those of `ray.init`. It ends
    with the process.
    """
    base = _base()
    _remove_abandoned(base)
    folder = _private_folder(base)
    _require_a_token()
    _stay_on_loopback()
    ray.init(
        address="local",
        include_dashboard=False,
        _node_ip_address=LOOPBACK,
        # Ray opens its folder to everybody, so it gets one inside.
        _temp_dir=str(folder / "ray"),
        **options,
    )


def is_embedded() -> bool:
    """Whether the Ray that this process is connected to is of its own making."""
    return ray.is_initialized() and ray.util.get_node_ip_address() == LOOPBACK


def lost_embedded_ray() -> str | None:
    """What of an embedded Ray has died, in words; None where all is well, or another's to look
    after.
    """
    node = ray._private.worker._global_node
    if node is None or not is_embedded():
        return None
    for name in (ray_constants.PROCESS_TYPE_GCS_SERVER, ray_constants.PROCESS_TYPE_RAYLET):
        for one in node.all_processes.get(name, []):
            if one.process.poll() is not None:
                return f"the embedded Ray has lost its {name} (exit code {one.process.returncode})"
    return None


def remove_embedded_ray() -> None:
    """Remove the folder of this process's Ray; for an end that does not wait for `atexit`."""
    for folder in _folders:
        shutil.rmtree(folder, ignore_errors=True)


def _require_a_token() -> None:
    """A new token for this process and all that it starts; Ray has read the mode before, when it
    was imported.
    """
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


def _stay_on_loopback() -> None:
    """Have Ray take loopback for an address like any other: here, and in the processes that it
    starts.
    """
    os.environ[ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR] = "0"
    ray_constants.ENABLE_RAY_CLUSTER = False


def _base() -> Path:
    """Where Ray would put its folder, unless that is too deep for its sockets."""
    wanted = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    return Path(wanted if len(wanted) <= LONGEST_BASE else "/tmp")


def _private_folder(base: Path) -> Path:
    """A folder that is locked for as long as this process lives, and removed at its end."""
    folder = Path(tempfile.mkdtemp(prefix=FOLDER, dir=base))
    # Under its final name the lock is never seen free.
    lock = (folder / f"{LOCK}.part").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    (folder / f"{LOCK}.part").rename(folder / LOCK)

    def remove() -> None:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
        lock.close()

    atexit.register(remove)
    _folders.append(folder)
    return folder


def _remove_abandoned(base: Path) -> None:
    """Remove the folders of processes that were killed: nobody holds their locks any more."""
    for folder in base.glob(f"{FOLDER}*"):
        with suppress(OSError):
            # Nobody else's: what lies there could point anywhere.
            if folder.lstat().st_uid != os.getuid() or not stat.S_ISDIR(folder.lstat().st_mode):
                continue
            if not (folder / LOCK).exists():
                # Of a Ray that wrote its last line too late, or of one that just starts.
                if time.time() - folder.lstat().st_mtime > START_S:
                    shutil.rmtree(folder, ignore_errors=True)
                continue
            with (folder / LOCK).open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
