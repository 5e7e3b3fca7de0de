"""Connect to Ray: to the cluster of RAY_ADDRESS, else to one that lives with this process.

Ray of one process listens on loopback alone, its clients show a token, and its files are in a
folder that only this user can enter. Ray reads this from the environment when it is imported, so
this module has to be the first to import it.
"""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from courant.runs.directory import RunDirectory
from simgen.errors import InputError, first_line
from simgen.machine import usable_cores

if TYPE_CHECKING:
    import pyarrow.fs  # type: ignore[import-untyped]

WORKER_ENVIRONMENT = {"OMP_WAIT_POLICY": "passive"}
"""Threads that wait for one another must sleep: spinning ones take the cores from those that they
wait for. OpenMP reads this when torch is loaded, so it has to be in the worker's environment."""
GPUS_ON_DEMAND = "COURANT_GPUS_ON_DEMAND"  # on a head whose nodes come on demand: their GPUs
LONGEST_FOLDER = 24  # paths of Unix sockets end at 107 bytes, of which Ray takes some 75


def _prepare() -> None:
    """Set what Ray reads when it is imported, unless a cluster's settings are to be used."""
    wanted = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    base = wanted if len(wanted) <= LONGEST_FOLDER else "/tmp"
    folder = tempfile.mkdtemp(prefix="courant-ray-", dir=base)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ |= {
        # Its documented use is on other systems; it makes loopback the node's address.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_TMPDIR": folder,
    }
    usual = {
        **WORKER_ENVIRONMENT,
        # Ray makes its workers yield to every other process; here they are the main work.
        "RAY_worker_niceness": "0",
        # On a crowded machine workers and agents take longer than Ray waits by itself.
        "RAY_prestart_worker_first_driver": "0",
        "RAY_worker_register_timeout_seconds": "600",
        "RAY_agent_register_timeout_ms": "150000",
    }
    os.environ |= {**usual, **os.environ}


os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# Silences a warning on machines without a GPU; it is Ray's coming default.
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
# A worker of Ray has imported it already.
if not os.environ.get("RAY_ADDRESS") and "ray" not in sys.modules:
    _prepare()

import ray  # noqa: E402


def connect_ray(quiet: bool = True, begin_worker: Callable[[], None] | None = None) -> None:
    """Connect once; workers of a cluster call `begin_worker` first. InputError without Ray."""
    if ray.is_initialized():
        return
    options: dict[str, Any] = {
        "namespace": "courant",
        "log_to_driver": not quiet,
        "logging_level": logging.WARNING,
    }
    if not os.environ.get("RAY_ADDRESS"):
        options |= {"address": "local", "include_dashboard": False, "num_cpus": usable_cores()}
    elif begin_worker is not None:
        options["runtime_env"] = {"worker_process_setup_hook": begin_worker}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(**options)
    except Exception as error:  # of a node that is too slow, Ray raises no class of its own
        address = os.environ.get("RAY_ADDRESS")
        where = f"the Ray cluster at {address} (RAY_ADDRESS)" if address else "Ray"
        raise InputError(f"cannot start {where}: {first_line(error)}") from error
    finally:
        # Ray's own handler ends the process without a word.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


@contextmanager
def ray_session(quiet: bool) -> Iterator[None]:
    """Use the connected Ray, else connect for the body."""
    if ray.is_initialized():
        yield
        return
    connect_ray(quiet)
    try:
        yield
    finally:
        ray.shutdown()


def ray_storage(folder: RunDirectory) -> tuple[str, pyarrow.fs.FileSystem | None]:
    """Keep Ray's notes beside the run, on the same storage, which every node reaches."""
    if "://" not in folder.url:
        return folder.url, None
    import pyarrow.fs  # a second of a core, for those whose runs are on S3

    return folder.path(""), pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(folder.filesystem))


def available_gpus() -> float:
    """Count the GPUs that are there, or that the cluster adds when they are asked for."""
    return max(float(ray.cluster_resources().get("GPU", 0)), gpus_on_demand())


def gpus_on_demand() -> float:
    """Return how many GPUs the cluster grows to; 0 where it does not grow."""
    given = os.environ.get(GPUS_ON_DEMAND) or "0"
    if not given.isdecimal():
        raise InputError(f"{GPUS_ON_DEMAND} is {given!r}; give a whole number of GPUs, such as 2")
    return float(given)
