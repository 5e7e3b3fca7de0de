"""Starting a Ray where many processes share the cores: it is waited for as long as it takes.

Ray's own bounds end it, or leave it waiting for ever, in three places:
- The process that starts it asks for its node without a pause, and for 30 s at most.
- The raylet waits 15 s, whatever is configured, for files in which its agents say the ports that
  they have found free, and then ends itself (https://github.com/ray-project/ray/issues/65983). Two
  Rays that start at the same time on two cores need longer. Here the ports are chosen beforehand
  and the files written, so that the raylet waits for nothing.
- The first driver is answered when as many workers as there are cores have registered. The raylet
  gives up on a worker after a minute, and then the driver waits for ever. Here workers start when
  they are needed, and have more time.
"""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from ray._private import services
from ray._raylet import (  # type: ignore[attr-defined]
    DASHBOARD_AGENT_LISTEN_PORT_NAME,
    METRICS_AGENT_PORT_NAME,
    METRICS_EXPORT_PORT_NAME,
    RUNTIME_ENV_AGENT_PORT_NAME,
    persist_port,
)

from courant.loopback import free_ports

#: For a node to come up in.
NODE_S = 150.0
#: For a worker to import Ray, and what Ray imports, on a crowded machine.
WORKER_S = 600
#: Of the agents' ports: above the ones that Prefect's server takes, below those that the system
#: gives to outgoing connections.
PORTS = range(30000, 32768)
_AGENT_PORTS = {
    "metrics_agent_port": METRICS_AGENT_PORT_NAME,
    "metrics_export_port": METRICS_EXPORT_PORT_NAME,
    "dashboard_agent_listen_port": DASHBOARD_AGENT_LISTEN_PORT_NAME,
    "runtime_env_agent_port": RUNTIME_ENV_AGENT_PORT_NAME,
}


@contextmanager
def patient_start(seconds: float = NODE_S, pause_s: float = 0.2) -> Iterator[None]:
    """Have Ray wait so long for its node and its agents within the block, and ask with pauses."""
    # Of the raylet's first request to an agent, which it does not survive either.
    os.environ.setdefault("RAY_agent_register_timeout_ms", str(int(seconds * 1000)))
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
    os.environ.setdefault("RAY_worker_register_timeout_seconds", str(WORKER_S))
    with (
        patch.object(services, "get_node", _asking_patiently(seconds, pause_s)),
        patch.object(services, "start_raylet", _with_ports_for_its_agents(services.start_raylet)),
    ):
        yield


def _asking_patiently(seconds: float, pause_s: float) -> Callable[[str, str], Any]:
    ask = services.get_node

    def get_node(gcs_address: str, node_id: str) -> Any:
        deadline = time.monotonic() + seconds
        while True:
            try:
                return ask(gcs_address, node_id)
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(pause_s)

    return get_node


def _with_ports_for_its_agents(start: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(start)

    def start_raylet(*positional: Any, **named: Any) -> Any:
        given = signature.bind(*positional, **named)
        for (argument, name), port in zip(_AGENT_PORTS.items(), free_ports(PORTS), strict=False):
            given.arguments[argument] = port
            persist_port(given.arguments["session_dir"], given.arguments["node_id"], name, port)
        return start(*given.args, **given.kwargs)

    return start_raylet
