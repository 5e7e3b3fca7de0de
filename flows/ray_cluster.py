"""One Ray for the whole run: joined where RAY_ADDRESS names one, embedded otherwise, and shared by all stages."""

from __future__ import annotations

import importlib
import json
import logging
import os
import time
from typing import Any
from urllib.parse import urlsplit

import ray

from courant.ray_embedded import lost_embedded_ray, remove_embedded_ray, start_embedded_ray
from flows.ending import leave_nothing, need
from flows.settings import LOOPBACK, load_settings
from simgen.errors import InputError


def ensure_ray() -> None:
    """Connect this process to Ray, once; later calls do nothing."""
    if ray.is_initialized():
        return
    address = load_settings().ray_address
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Silences a warning on machines without a GPU; it is Ray's coming default.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    options: dict[str, Any] = {"namespace": "courant", "log_to_driver": False, "logging_level": logging.WARNING}
    try:
        if address is None:
            # Ray lets its workers yield to every other process of the machine; here they are the work.
            os.environ.setdefault("RAY_worker_niceness", "0")
            # On loopback, behind a token, and without a dashboard, which would take a second core-minute to start.
            start_embedded_ray(num_cpus=len(os.sched_getaffinity(0)), **options)
            leave_nothing(remove_embedded_ray)
            need(_lost_ray)
        else:
            ray.init(address=address, runtime_env={"env_vars": _worker_variables()}, **options)
    except Exception as error:  # of a node that is too slow, Ray raises no class of its own
        where = f"the Ray cluster at {address} (RAY_ADDRESS)" if address else "an embedded Ray"
        raise InputError(f"cannot start {where}: {str(error).splitlines()[0]}") from error


def _lost_ray() -> str | None:
    lost = lost_embedded_ray()
    kept = "what was done is kept, and the same command goes on from here"
    return f"{lost}; {kept}" if lost else None


def _worker_variables() -> dict[str, str]:
    """Prefect's threads in the cluster's workers look for its API in their environment, which is not this process's."""
    job = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}"))
    given = (job.get("runtime_env") or {}).get("env_vars") or {}
    names = ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING")
    return {name: os.environ[name] for name in names if name in os.environ and name not in given}


def check_prefect_reach() -> None:
    """InputError where cases would run on machines that cannot reach Prefect's API, whose tasks they are."""
    hosts = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
    if len(hosts) > 1 and urlsplit(os.environ["PREFECT_API_URL"]).hostname in LOOPBACK:
        raise InputError(
            f"the Ray cluster has {len(hosts)} machines, and Prefect's API is on one of them; start `prefect server start --host 0.0.0.0` "
            "where all of them reach it, and set PREFECT_API_URL to its address"
        )


def warm_workers() -> None:
    """Have one worker for each core import what cases need, all at once: some seconds that no solver then waits for."""
    cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
    ray.get([_import_case_modules.remote() for _ in range(cores)])


@ray.remote
def _import_case_modules() -> None:
    importlib.import_module("flows.solve_cases")
    importlib.import_module("simgen.convert")
    importlib.import_module("simgen.solve_case")
    # Long enough that the next of these calls goes to another worker.
    time.sleep(0.3)
