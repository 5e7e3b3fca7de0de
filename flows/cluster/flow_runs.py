"""Mark flow runs of killed commands as crashed, since nobody told Prefect how they ended.

Each flow run of a command carries the command's process as a tag. Every command looks, when it
begins and when it ends, for runs whose process on this machine is gone, and marks them as crashed.
Otherwise a killed run would be shown as running for ever.
"""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from simgen.process_start import start_of

if TYPE_CHECKING:
    from prefect.client.schemas.filters import FlowRunFilter
    from prefect.client.schemas.objects import FlowRun
    from prefect.states import State

TAG = "courant-command"
_PREFIX = "process:"
MOST = 200
"""Runs checked at a time"""


@contextlib.contextmanager
def owned_flow_runs() -> Iterator[None]:
    """Tag the flow runs that begin in the block as this process's; close abandoned ones."""
    from prefect import tags

    close_abandoned()
    try:
        with tags(TAG, process_tag(os.getpid())):
            yield
    finally:
        close_abandoned()


def process_tag(process: int) -> str:
    """Tag a process by machine, id, and start time: ids of processes are reused."""
    return f"{_PREFIX}{platform.node()}:{process}:{start_of(process) or ''}"


def close_abandoned() -> None:
    """Mark runs whose command is gone as crashed, if Prefect's server is there."""
    from prefect.client.orchestration import get_client
    from prefect.states import Crashed

    from flows.impatience import if_the_server_is_there

    away = "runs of killed commands stay as they are"
    with if_the_server_is_there(away), get_client(sync_client=True) as client:
        for run in client.read_flow_runs(flow_run_filter=_not_ended(), limit=MOST):
            if _is_abandoned(run):
                ended: State[Any] = Crashed(message="The command that ran it was killed.")
                client.set_flow_run_state(run.id, ended, force=True)


def _not_ended() -> FlowRunFilter:
    from prefect.client.schemas.filters import (
        FlowRunFilter,
        FlowRunFilterState,
        FlowRunFilterStateType,
        FlowRunFilterTags,
    )
    from prefect.client.schemas.objects import StateType

    types = [StateType.RUNNING, StateType.PENDING, StateType.CANCELLING]
    state = FlowRunFilterState(type=FlowRunFilterStateType(any_=types))
    return FlowRunFilter(state=state, tags=FlowRunFilterTags(all_=[TAG]))


def _is_abandoned(run: FlowRun) -> bool:
    """Tell whether its process was on this machine and is gone."""
    here = f"{_PREFIX}{platform.node()}:"
    for tag in run.tags:
        if tag.startswith(here):
            process = tag.removeprefix(here).partition(":")[0]
            return process.isdecimal() and tag != process_tag(int(process))
    return False
