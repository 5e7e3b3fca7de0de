"""Train on the workers of one machine, in an embedded Ray.

Notable features:
- Workers join through a file. torch's own store listens on all interfaces without authentication;
  on a cluster, where workers share no disk, its port remains, and the firewall has to close it.
- Ray Train starts five processes beside its controller and the workers, each of which takes
  seconds of a core to import Ray. Four of them serve clusters, or Ray's own datasets, and are left
  out.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import ray
from ray.train import Result
from ray.train.torch import TorchConfig, TorchTrainer
from ray.train.torch.config import (
    _set_torch_distributed_env_vars,
    _setup_torch_process_group,
    _TorchBackend,
)
from ray.train.v2._internal.callbacks.datasets import DatasetsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2._internal.constants import ENABLE_PREEMPTION_WATCHER_ENV_VAR
from ray.train.v2._internal.execution.context import TrainRunContext
from ray.train.v2._internal.execution.scaling_policy import FixedScalingPolicy

#: Where workers talk to each other, once they have joined.
INTERFACE = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
#: Actors for the shards of Ray's datasets, and for the resources of a controller that has died:
#: an embedded Ray ends with its command.
LEFT_OUT = (DatasetsCallback, PlacementGroupCleanerCallback)


class OneMachineTrainer(TorchTrainer):
    """A TorchTrainer for an embedded Ray."""

    def _initialize_and_run_controller(self, **given: Any) -> Result:
        # Nobody gives notice that he takes this machine away.
        os.environ[ENABLE_PREEMPTION_WATCHER_ENV_VAR] = "0"
        given["callbacks"] = [one for one in given["callbacks"] if not isinstance(one, LEFT_OUT)]
        given["scaling_policy"] = _ResourcesAtHand(self.scaling_config)
        return super()._initialize_and_run_controller(**given)


class _ResourcesAtHand(FixedScalingPolicy):
    """A fixed number of workers, of which no autoscaler is told: there are no further nodes."""

    def after_controller_start(self, train_run_context: TrainRunContext) -> None:
        pass

    def _maybe_send_resource_request(self) -> None:
        pass


@dataclass
class OneMachine(TorchConfig):
    """torch.distributed without a port beyond loopback."""

    @property
    def backend_cls(self) -> type[_TorchBackend]:
        return _OneMachineBackend


class _OneMachineBackend(_TorchBackend):
    def on_start(self, worker_group: Any, backend_config: TorchConfig) -> None:
        """Join all workers in a process group.

        Called again, with a new file, where they were restarted.
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
    """Make the file in Ray's own folder, which is removed with it."""
    session = ray._private.worker.global_worker.node.get_session_dir_path()
    return str(Path(session) / f"torch-{uuid4().hex}")


def _talk_on_loopback() -> None:
    os.environ |= INTERFACE
