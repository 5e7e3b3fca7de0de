"""Train on a Ray cluster: Ray Train places the workers, joins them and starts them again.

The run directory holds the state. Workers read the dataset version and write checkpoints
themselves, so only URLs are passed between processes, and the driver learns of each epoch by
reading the run's metrics.
"""

import threading
from typing import Any

from courant.ray_session import WORKER_ENVIRONMENT, available_gpus, ray_session, ray_storage

# isort: split
import ray.train
import ray.train.torch
from ray.exceptions import RayTaskError
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

import simgen
from courant.experiment import Experiment, parse_experiment
from courant.runs.record import check_unused, is_finished
from courant.training import workers
from courant.training.train import OnEpoch, TrainingError
from simgen.log_lines import log_context
from simgen.machine import usable_cores

MAX_WORKER_FAILURES = 3
ENDING_S = 90.0
"""In which workers of a driver that has gone have ended; Ray itself gives them 30 s"""


def train(
    experiment: Experiment,
    dataset_url: str,
    version: str | None,
    runs_url: str,
    *,
    on_epoch: OnEpoch | None = None,
) -> str:
    """Train as `courant.training.workers.train` does, on the Ray of RAY_ADDRESS."""
    dataset, run = workers.begin_run(experiment, dataset_url, version, runs_url, ENDING_S)
    if is_finished(run):
        return run.url
    num_workers, failures = experiment.training.workers, list[BaseException]()
    with ray_session(quiet=on_epoch is not None), workers.following(run, on_epoch):
        storage, filesystem = ray_storage(run)
        gpus = workers.use_gpus(experiment.training, available_gpus(), "Ray")
        trainer = TorchTrainer(
            _work,
            torch_config=TorchConfig(timeout_s=int(workers.PATIENCE.total_seconds())),
            train_loop_config={
                "experiment": experiment.model_dump_json(),
                "dataset": (dataset.url, dataset.version),
                "run": run,
                "logs": log_context(),
            },
            scaling_config=ScalingConfig(num_workers=num_workers, use_gpu=gpus),
            run_config=RunConfig(
                name="ray",
                storage_path=storage,
                storage_filesystem=filesystem,
                failure_config=FailureConfig(max_failures=MAX_WORKER_FAILURES),
                worker_runtime_env={"env_vars": WORKER_ENVIRONMENT},
            ),
        )

        def fit() -> None:
            try:
                trainer.fit()
            except BaseException as error:
                failures.append(error)

        # In the main thread Ray Train handles Ctrl-C itself, takes its time, and calls it a
        # failure. A daemon, because after an interruption nobody waits for it.
        thread = threading.Thread(target=fit, name="ray-train", daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(0.5)  # a wait without an end may miss a signal
        if failures:
            raise TrainingError(
                f"{run.url}: training failed on Ray ({_reason(failures[0])});"
                " train again to go on from the last checkpoint"
            ) from failures[0]
    workers.check_finished(run)
    return run.url


def _work(config: dict[str, Any]) -> None:
    """Run the whole fit in each worker of Ray Train."""
    config["logs"].apply_in_training()
    context = ray.train.get_context()
    workers.use_threads(max(1, usable_cores() // context.get_local_world_size()))
    is_first = context.get_world_rank() == 0  # whose heartbeat the others would take for another's
    if is_first:  # a driver that ended late may have left a worker since
        check_unused(config["run"], ENDING_S)
    workers.fit_on_record(
        parse_experiment(config["experiment"]),
        simgen.open_dataset(*config["dataset"]),
        config["run"],
        ray.train.torch.get_device(),
        is_first=is_first,
    )


def _reason(error: BaseException) -> str:
    """Return the line that names the fault: the first failed worker's, else Ray's own."""
    failures = getattr(error, "worker_failures", None) or {}
    failed = next(iter(failures.values()), error)
    if isinstance(failed, RayTaskError):
        return f"{type(failed.cause).__name__}: {' '.join(str(failed.cause).split())}"[:500]
    lines = [line.strip() for line in str(failed).splitlines() if line.strip()]
    # The last one of a traceback; what Ray itself prints begins with the matter.
    is_traceback = any(line.startswith("Traceback ") for line in lines)
    return (lines[-1 if is_traceback else 0] if lines else type(failed).__name__)[:500]
