"""How the workers of one machine find each other: through a file, where torch would open a port to
every network.

torch's own store listens on all interfaces and asks nobody who they are. A file needs a disk that
all workers share, so this is for an embedded Ray; on a cluster torch's port remains, and its
firewall is what closes it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import ray
from ray.train.torch import TorchConfig
from ray.train.torch.config import (
    _set_torch_distributed_env_vars,
    _setup_torch_process_group,
    _TorchBackend,
)

#: Where workers talk to each other, once they have met.
INTERFACE = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}


@dataclass
class OneMachine(TorchConfig):
    """torch.distributed without a port beyond loopback."""

    @property
    def backend_cls(self) -> type[_TorchBackend]:
        return _OneMachineBackend


class _OneMachineBackend(_TorchBackend):
    def on_start(self, worker_group: Any, backend_config: TorchConfig) -> None:
        """Join all workers in a process group; called again, with a new file, where they were
        started anew.
        """
        meeting_point = f"file://{worker_group.execute_single(0, _new_file)}"
        on_gpu = worker_group.get_resources_per_worker().get("GPU", 0) > 0
        worker_group.execute(_set_torch_distributed_env_vars)
        worker_group.execute(_talk_on_loopback)
        ray.get(
            [
                worker_group.execute_single_async(
                    rank,
                    _setup_torch_process_group,
                    backend=backend_config.backend or ("nccl" if on_gpu else "gloo"),
                    world_rank=rank,
                    world_size=len(worker_group),
                    init_method=meeting_point,
                    timeout_s=backend_config.timeout_s,
                )
                for rank in range(len(worker_group))
            ]
        )


def _new_file() -> str:
    """In Ray's own folder, which goes with it."""
    session = ray._private.worker.global_worker.node.get_session_dir_path()
    return str(Path(session) / f"torch-{uuid4().hex}")


def _talk_on_loopback() -> None:
    os.environ |= INTERFACE
