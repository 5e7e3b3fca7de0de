"""Share one Ray between all stages of a run: that of RAY_ADDRESS, else an embedded one."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import ray

from courant.ray_embedded import lost_embedded_ray, remove_embedded_ray, start_embedded_ray
from flows.cluster.process_logs import relay_lines
from flows.cluster.ray_variables import workers_variables
from flows.ending import leave_nothing, need
from flows.settings import LOOPBACK, host_of, load_settings
from simgen.errors import InputError
from simgen.machine import usable_cores

#: A quiet machine needs some 5 s, a crowded one a minute.
START_S = 300.0
#: Imports under way in workers.
_warming: list[Any] = []


def ensure_ray() -> None:
    """Connect this process to Ray, once; later calls do nothing."""
    if ray.is_initialized():
        return
    address = load_settings().ray_address
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Silences a warning on machines without a GPU; it is Ray's coming default.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    options: dict[str, Any] = {
        "namespace": "courant",
        "log_to_driver": False,
        "logging_level": logging.WARNING,
    }
    try:
        with _sigterm_as_it_is():
            _connect(address, options)
    except Exception as error:  # of a node that is too slow, Ray raises no class of its own
        where = f"the Ray cluster at {address} (RAY_ADDRESS)" if address else "an embedded Ray"
        raise InputError(f"cannot start {where}: {str(error).splitlines()[0]}") from error


def _connect(address: str | None, options: dict[str, Any]) -> None:
    if address is not None:
        ray.init(
            address=address,
            runtime_env={"worker_process_setup_hook": workers_variables()},
            **options,
        )
        return
    # Ray makes its workers yield to every other process of the machine; here they are the main
    # work.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # On loopback, behind a token, and without a dashboard, which would take a second core-minute
    # to start.
    leave_nothing(remove_embedded_ray)
    relay_lines()
    with _in_time():
        start_embedded_ray(num_cpus=usable_cores(), **options)
    need(_lost_ray)


@contextlib.contextmanager
def _sigterm_as_it_is() -> Iterator[None]:
    """Keep who answers SIGTERM: Ray's own answer ends the process without a word."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


@contextlib.contextmanager
def _in_time() -> Iterator[None]:
    """End the command where the block takes too long.

    Ray's own wait for the answer of its node has no end.
    """
    deadline, over = time.monotonic() + START_S, threading.Event()

    def late() -> str | None:
        if over.is_set() or time.monotonic() < deadline:
            return None
        return f"Ray did not start within {START_S:g} s; try again, on a machine that is less busy"

    need(late)
    try:
        yield
    finally:
        over.set()


def _lost_ray() -> str | None:
    lost = lost_embedded_ray()
    kept = "what was done is kept, and the same command goes on from here"
    return f"{lost}; {kept}" if lost else None


def check_prefect_reach() -> None:
    """Raise InputError where workers on other machines could not reach Prefect's API.

    Cases are tasks of that API.
    """
    hosts = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
    if len(hosts) > 1 and host_of(os.environ["PREFECT_API_URL"]) in LOOPBACK:
        raise InputError(
            f"the Ray cluster has {len(hosts)} machines, and Prefect's API is on one of them; start"
            " `prefect server start --host 0.0.0.0` where all of them reach it, and set"
            " PREFECT_API_URL to its address"
        )


def begin_to_warm() -> None:
    """Have one worker for each core import what cases need, all at once.

    This takes some seconds, in which this process starts other things.
    """
    if not _warming:
        cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
        _warming.extend(_import_case_modules.remote() for _ in range(cores))


def warm_workers() -> None:
    """Wait until the workers have imported what cases need, so that no solver waits for it."""
    begin_to_warm()
    ray.get(_warming)
    _warming.clear()


@ray.remote
def _import_case_modules() -> None:
    importlib.import_module("flows.solve_cases")
    importlib.import_module("simgen.solving.convert")
    importlib.import_module("simgen.solving.solve_case")
    importlib.import_module("PyFoam.RunDictionary.ParsedParameterFile")
    # A family may do without gmsh, and its libraries may be missing.
    with contextlib.suppress(ImportError, OSError):
        importlib.import_module("gmsh")
    # Long enough that the next of these calls goes to another worker.
    time.sleep(0.3)
