"""Run the training loop on Ray Train: one CPU worker by default, a GPU if any, DDP over several.

Ray starts the processes, joins them in a torch process group, and restarts them when one dies; the
run directory holds the state. Workers read the dataset version and write checkpoints themselves, so
only URLs are passed between processes, and the driver learns of each epoch by reading the run's
metrics.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import ray
import ray.train
import ray.train.torch
import torch
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from ray.train.v2._internal.constants import HEALTH_CHECK_INTERVAL_S_ENV_VAR

import simgen
from courant.experiment import Experiment, parse_experiment
from courant.ray_embedded import is_embedded
from courant.ray_growth import gpus_to_be_had
from courant.runs.directory import RunDirectory, absolute_url
from courant.runs.record import EpochRecord, is_finished, write_status
from courant.runs.standing import InUseError, check_unused
from courant.training.errors import TrainingError
from courant.training.following import check_finished, following
from courant.training.loop import OnEpoch, fit
from courant.training.ray_session import ray_session, ray_storage
from courant.training.ray_torch import OneMachine, OneMachineTrainer
from courant.training.task import set_up_run
from simgen.errors import InputError
from simgen.log_lines import carried

MAX_WORKER_FAILURES = 3
# Threads that wait for one another must sleep: spinning ones take the cores from those that they
# wait for, and a step on two busy cores was eight times slower. OpenMP reads this when torch is
# loaded, so it has to be in the worker's environment.
WORKER_ENVIRONMENT = {"OMP_WAIT_POLICY": "passive"}
POLL_S = 0.25
"""Ray's controller asks the workers this often; their reports and their end wait for it. Its own
two seconds cost each checkpoint one and a half.
"""


def train(
    experiment: Experiment,
    dataset_url: str,
    version: str | None,
    runs_url: str,
    *,
    on_epoch: OnEpoch | None = None,
) -> str:
    """Train on a dataset version (None: the newest); return the run's URL.

    It is `<runs_url>/<name>-<hash>`. A finished run of the same experiment on the same snapshot is
    returned at once, without Ray; an unfinished one resumes from its newest checkpoint. Uses the
    Ray that this process is connected to, else starts one for the time it takes. `on_epoch` is
    called in this process, with each new epoch in order.

    Raises InputError for an experiment that does not fit the dataset, InUseError while another
    process of this machine trains the run, TrainingError when the loss
    is not finite or workers keep dying, StoreError when dataset or run directory cannot be reached.
    """
    dataset = simgen.open_dataset(absolute_url(dataset_url), version)
    run = RunDirectory(runs_url) / experiment.run_id(dataset.snapshot_id)
    if is_finished(run):
        return run.url
    check_unused(run)
    set_up_run(experiment, dataset, runs_url)
    with ray_session(quiet=on_epoch is not None), following(run, on_epoch):
        _run_workers(experiment, dataset.url, dataset.version, run)
    check_finished(run)
    return run.url


def _run_workers(experiment: Experiment, dataset_url: str, version: str, run: RunDirectory) -> None:
    training = experiment.training
    os.environ.setdefault(HEALTH_CHECK_INTERVAL_S_ENV_VAR, str(POLL_S))
    storage, filesystem = ray_storage(run)
    embedded = is_embedded()
    trainer = (OneMachineTrainer if embedded else TorchTrainer)(
        _work,
        train_loop_config={
            "experiment": experiment.model_dump_json(),
            "dataset_url": dataset_url,
            "version": version,
            "run_url": run.url,
            "logs": carried(),
        },
        torch_config=OneMachine() if embedded else None,
        scaling_config=ScalingConfig(
            num_workers=training.workers, use_gpu=_use_gpu(training.use_gpu, training.workers)
        ),
        run_config=RunConfig(
            name="ray",
            storage_path=storage,
            storage_filesystem=filesystem,
            failure_config=FailureConfig(max_failures=MAX_WORKER_FAILURES),
            worker_runtime_env={"env_vars": WORKER_ENVIRONMENT},
        ),
    )
    try:
        _beside_the_main_thread(trainer.fit)
    except Exception as error:
        raise TrainingError(
            f"{run.url}: training failed on Ray ({_reason(error)});"
            " train again to go on from the last checkpoint"
        ) from error


def _reason(error: Exception) -> str:
    """Return the line that says what went wrong: the first failed worker's, else Ray's own."""
    failures = getattr(error, "worker_failures", None) or {}
    failed = next(iter(failures.values()), error)
    lines = [line.strip() for line in str(failed).splitlines() if line.strip()]
    # The last one of a traceback; what Ray itself says begins with the matter.
    is_traceback = any(line.startswith("Traceback ") for line in lines)
    return (lines[-1 if is_traceback else 0] if lines else type(failed).__name__)[:500]


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
    """Run the whole fit in each worker.

    Errors that no retry can cure go on record and end the run; Ray retries the rest.
    """
    context = ray.train.get_context()
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // context.get_local_world_size()))
    config["logs"].take_up_training()
    run = RunDirectory(config["run_url"])
    try:
        fit(
            parse_experiment(config["experiment"]),
            simgen.open_dataset(config["dataset_url"], config["version"]),
            run,
            device=ray.train.torch.get_device(),
            on_checkpoint=_report,
        )
    except InUseError:
        raise  # the record is that of the other process
    except (InputError, TrainingError) as error:
        if context.get_world_rank() == 0:
            write_status(run, "failed", reason=str(error))


def _report(record: EpochRecord) -> None:
    """Report to Ray.

    Only with checkpoints: a report waits for Ray's controller, which polls.
    """
    ray.train.report(asdict(record))


def _use_gpu(wanted: bool | str, workers: int) -> bool:
    available = gpus_to_be_had()
    if wanted is True and available < workers:
        raise InputError(
            f'training.use_gpu asks for {workers} GPUs, Ray has {available:g}; set it to "auto" or'
            " add GPU nodes"
        )
    return bool(wanted) and available >= workers
