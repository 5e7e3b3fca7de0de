"""Tell how many cases there is room for on Ray's nodes."""

from __future__ import annotations

import time
from functools import lru_cache

import ray

from simgen.errors import InputError

#: Cases under way on however small a cluster: it may grow.
LEAST_AT_ONCE = 32
#: Ray is asked for its nodes so often, whatever the number of cases.
LOOK_S = 2.0


def check_cores(cores: int) -> None:
    """InputError where no node has as many: its tasks would wait for ever."""
    _cores_at.cache_clear()
    most = max(_cores_of_nodes(), default=0)
    if cores > most:
        raise InputError(
            f"a case was given {cores} cores, the largest machine has {most}; lower --cores"
        )


def at_once(cores: int) -> int:
    """Return how many cases may be under way.

    These are twice those that there is room for: no machine waits, and a cluster that grows on
    demand sees some.
    """
    return max(LEAST_AT_ONCE, 2 * room(cores))


def room(cores: int) -> int:
    """Return how many cases run at the same time."""
    return sum(node // cores for node in _cores_of_nodes())


def _cores_of_nodes() -> list[int]:
    return _cores_at(int(time.monotonic() / LOOK_S))


@lru_cache(maxsize=1)
def _cores_at(moment: int) -> list[int]:
    return [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
