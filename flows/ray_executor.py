"""Give work to the nodes of a Ray cluster, each piece with the cores that it takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import ray

from courant.ray_session import connect_ray
from flows.executor import ATTEMPTS, PAUSE_S, check_cores, may_pass
from simgen.log_lines import LogContext, log_context

Result = TypeVar("Result")

LEAST_AT_ONCE = 32
"""Cases under way on however small a cluster: it may grow"""


class RayExecutor:
    """Tasks of Ray."""

    def __init__(self, cores: int) -> None:
        connect_ray()
        check_cores(cores, max(_cores_of_nodes(), default=0))
        self._cores = cores
        self._run = ray.remote(num_cpus=cores, max_retries=ATTEMPTS - 1)(_run)

    def at_once(self) -> int:
        """Return twice what there is room for: no node waits, and a cluster may grow."""
        room = sum(node // self._cores for node in _cores_of_nodes())
        return max(LEAST_AT_ONCE, 2 * room)

    def submit(self, function: Callable[..., Result], *arguments: Any) -> Future[Result]:
        reference = self._run.remote(function, arguments, log_context())
        future: Future[Result] = Future()

        def ended(done: Future[Any]) -> None:
            error = done.exception()
            if error is None:
                future.set_result(done.result())
            else:
                future.set_exception(getattr(error, "cause", None) or error)

        reference.future().add_done_callback(ended)
        return future

    def close(self, interrupted: bool) -> None:
        """Disconnect: Ray ends the tasks of a driver that has gone."""
        if interrupted:
            ray.shutdown()


def _run(function: Callable[..., Any], arguments: tuple[Any, ...], logs: LogContext) -> Any:
    logs.apply()
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return function(*arguments)
        except Exception as error:
            if attempt == ATTEMPTS or not may_pass(error):
                raise
        time.sleep(PAUSE_S)
    raise AssertionError


def _cores_of_nodes() -> list[int]:
    return [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
