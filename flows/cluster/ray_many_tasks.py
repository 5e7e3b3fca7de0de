"""Submit thousands of tasks of one flow run to Ray, at little cost for each.

prefect-ray exports a function of its own for each task, which Ray's head keeps as long as it runs,
and serialises Prefect's settings and the flow anew. Within a flow run they are the same for all
tasks: here they are made once, and each task travels with nothing but its own parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import ray
from prefect.context import serialize_context
from prefect_ray import RayTaskRunner
from prefect_ray.context import RemoteOptionsContext
from prefect_ray.task_runners import PrefectRayFuture


class ManyTasksRunner(RayTaskRunner[Any]):
    """Runs tasks on Ray whose parameters are plain values, none of them another task's future."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._functions: dict[str, Any] = {}
        self._context: ray.ObjectRef | None = None

    def submit(  # type: ignore[override]
        self, task: Any, parameters: dict[str, Any], wait_for: Any = None, dependencies: Any = None
    ) -> PrefectRayFuture[Any]:
        """Submit a task; RuntimeError for one that waits for others."""
        if wait_for:
            raise RuntimeError("tasks of this runner wait for no others")
        if self._context is None:
            self._context = ray.put(serialize_context())
        task_run_id = uuid4()
        remote = self._function(RemoteOptionsContext.get().current_remote_options or {})
        reference = remote.options(name=task.name).remote(
            task=task,
            task_run_id=task_run_id,
            parameters=parameters,
            dependencies=dependencies,
            context=self._context,
        )
        return PrefectRayFuture(task_run_id=task_run_id, wrapped_future=reference)

    def _function(self, options: Mapping[str, Any]) -> Any:
        """Return the function on Ray for these resources, exported once."""
        key = repr(sorted(options.items()))
        if key not in self._functions:
            made = ray.remote(**options) if options else ray.remote
            self._functions[key] = made(self._run_prefect_task)
        return self._functions[key]
