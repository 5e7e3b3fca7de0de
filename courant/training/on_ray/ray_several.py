"""Train with several workers, or on a cluster: Ray Train places, joins and restarts them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import ray.train
import ray.train.torch
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from ray.train.v2._internal.constants import HEALTH_CHECK_INTERVAL_S_ENV_VAR

from courant.cpu_arithmetic import use_threads
from courant.ray_embedded import is_embedded
from courant.runs.directory import RunDirectory
from courant.runs.record import EpochRecord
from courant.training.on_ray.ray_session import ray_storage
from courant.training.on_ray.ray_torch import OneMachine, OneMachineTrainer
from courant.training.on_ray.recorded_fit import fit_on_record
from simgen.machine import usable_cores

# Threads that wait for one another must sleep: spinning ones take the cores from those that they
# wait for, and a step on two busy cores was eight times slower. OpenMP reads this when torch is
# loaded, so it has to be in the worker's environment.
WORKER_ENVIRONMENT = {"OMP_WAIT_POLICY": "passive"}
POLL_S = 0.25
"""Ray's controller asks the workers this often; their reports and their end wait for it. Its own
two seconds cost each checkpoint one and a half.
"""


def train_on_several(
    config: dict[str, Any], run: RunDirectory, num_workers: int, use_gpu: bool, num_retries: int
) -> None:
    """Run the whole fit in the workers, and again from a checkpoint where one fails or dies.

    Raises what Ray Train raises.
    """
    os.environ.setdefault(HEALTH_CHECK_INTERVAL_S_ENV_VAR, str(POLL_S))
    storage, filesystem = ray_storage(run)
    embedded = is_embedded()
    trainer = (OneMachineTrainer if embedded else TorchTrainer)(
        _work,
        train_loop_config=config,
        torch_config=OneMachine() if embedded else None,
        scaling_config=ScalingConfig(num_workers=num_workers, use_gpu=use_gpu),
        run_config=RunConfig(
            name="ray",
            storage_path=storage,
            storage_filesystem=filesystem,
            failure_config=FailureConfig(max_failures=num_retries),
            worker_runtime_env={"env_vars": WORKER_ENVIRONMENT},
        ),
    )
    _beside_the_main_thread(trainer.fit)


def _beside_the_main_thread(work: Callable[[], object]) -> None:
    """Run it in a thread and wait.

    In the main thread Ray Train handles Ctrl-C itself, takes its time, and calls it a failure.
    """
    trouble: list[BaseException] = []

    def do() -> None:
        try:
            work()
        except BaseException as error:
            trouble.append(error)

    # A daemon, because after an interruption nobody waits for it.
    thread = threading.Thread(target=do, name="ray-train", daemon=True)
    thread.start()
    thread.join()
    if trouble:
        raise trouble[0]


def _work(config: dict[str, Any]) -> None:
    """Run the whole fit in each worker of Ray Train."""
    context = ray.train.get_context()
    use_threads(max(1, usable_cores() // context.get_local_world_size()))
    fit_on_record(
        config, ray.train.torch.get_device(), context.get_world_rank() == 0, on_checkpoint=_report
    )


def _report(record: EpochRecord) -> None:
    """Report to Ray.

    Only with checkpoints: a report waits for Ray's controller, which polls.
    """
    ray.train.report(asdict(record))
