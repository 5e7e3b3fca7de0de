"""Tell how many GPUs a cluster has, those included that it adds on demand.

Ray counts the GPUs of the nodes that are there. Of a cluster whose GPU nodes come when something
asks for them, and go again, it says none: nobody would ask. COURANT_GPUS_ON_DEMAND in the
environment of its head says how many it can have at most.
"""

from __future__ import annotations

import os

import ray

from simgen.errors import InputError

VARIABLE = "COURANT_GPUS_ON_DEMAND"


def gpus_to_be_had() -> float:
    """Count the GPUs that are there, or that the cluster adds for those who ask."""
    return max(float(ray.cluster_resources().get("GPU", 0)), gpus_on_demand())


def gpus_on_demand() -> float:
    """Return how many GPUs the cluster grows to; 0 where it does not grow."""
    given = os.environ.get(VARIABLE) or "0"
    if not given.isdecimal():
        raise InputError(f"{VARIABLE} is {given!r}; give a whole number of GPUs, such as 2")
    return float(given)
