"""One Ray for the whole run: joined where RAY_ADDRESS names one, embedded otherwise, and shared by all stages."""

from __future__ import annotations

import importlib
import logging
import os
import time

import ray

from flows.settings import load_settings
from simgen.errors import InputError


def ensure_ray() -> None:
    """Connect this process to Ray, once; later calls do nothing."""
    if ray.is_initialized():
        return
    address = load_settings().ray_address
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Silences a warning on machines without a GPU; it is Ray's coming default.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    options: dict[str, object] = {"namespace": "courant", "log_to_driver": False, "logging_level": logging.WARNING}
    if address is None:
        # Embedded: no dashboard, which would take a second core-minute to start, and nothing that listens beyond loopback.
        os.environ.setdefault("RAY_AUTH_MODE", "disabled")
        # Ray lets its workers yield to every other process of the machine; here they are the work.
        os.environ.setdefault("RAY_worker_niceness", "0")
        options |= {"address": "local", "include_dashboard": False, "num_cpus": len(os.sched_getaffinity(0))}
    else:
        options["address"] = address
    try:
        ray.init(**options)
    except (ConnectionError, TimeoutError, RuntimeError, ValueError) as error:
        where = f"the Ray cluster at {address} (RAY_ADDRESS)" if address else "an embedded Ray"
        raise InputError(f"cannot start {where}: {str(error).splitlines()[0]}") from error


def warm_workers() -> None:
    """Have one worker for each core import what cases need, all at once: some seconds that no solver then waits for."""
    cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
    ray.get([_import_case_modules.remote() for _ in range(cores)])


@ray.remote
def _import_case_modules() -> None:
    importlib.import_module("flows.generate_dataset")
    importlib.import_module("simgen.convert")
    importlib.import_module("simgen.solve_case")
    # Long enough that the next of these calls goes to another worker.
    time.sleep(0.3)
