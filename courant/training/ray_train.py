"""Run the training loop on Ray: one CPU worker by default, a GPU if any, DDP over several.

Ray starts the processes and restarts them when one dies; the run directory holds the state. Ray
Train joins several in a torch process group; a single one on an embedded Ray does without
(`ray_alone`). Workers read the dataset version and write checkpoints themselves, so
only URLs are passed between processes, and the driver learns of each epoch by reading the run's
metrics.
"""

from __future__ import annotations

from ray.exceptions import RayTaskError

import simgen
from courant.experiment import Experiment
from courant.ray_embedded import is_embedded
from courant.ray_growth import gpus_to_be_had
from courant.runs.directory import RunDirectory, absolute_url
from courant.runs.record import is_finished
from courant.runs.standing import InUseError, check_unused
from courant.training.following import check_finished, following
from courant.training.loop import OnEpoch, TrainingError, set_up_run
from courant.training.on_ray.ray_alone import train_alone
from courant.training.on_ray.ray_session import ray_session
from simgen.errors import InputError
from simgen.log_lines import carried

MAX_WORKER_FAILURES = 3


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
    config = {
        "experiment": experiment.model_dump_json(),
        "dataset_url": dataset_url,
        "version": version,
        "run_url": run.url,
        "logs": carried(),
    }
    num_workers = experiment.training.workers
    use_gpu = _use_gpu(experiment.training.use_gpu, num_workers)
    try:
        if is_embedded() and num_workers == 1:
            train_alone(config, use_gpu, MAX_WORKER_FAILURES)
        else:
            # Ray Train takes more than a core-second to import, which one worker does not need.
            from courant.training.on_ray.ray_several import train_on_several

            train_on_several(config, run, num_workers, use_gpu, MAX_WORKER_FAILURES)
    except InUseError:
        raise
    except Exception as error:
        raise TrainingError(
            f"{run.url}: training failed on Ray ({_reason(error)});"
            " train again to go on from the last checkpoint"
        ) from error


def _reason(error: Exception) -> str:
    """Return the line that says what went wrong: the first failed worker's, else Ray's own."""
    failures = getattr(error, "worker_failures", None) or {}
    failed = next(iter(failures.values()), error)
    if isinstance(failed, RayTaskError):
        return f"{type(failed.cause).__name__}: {' '.join(str(failed.cause).split())}"[:500]
    lines = [line.strip() for line in str(failed).splitlines() if line.strip()]
    # The last one of a traceback; what Ray itself says begins with the matter.
    is_traceback = any(line.startswith("Traceback ") for line in lines)
    return (lines[-1 if is_traceback else 0] if lines else type(failed).__name__)[:500]


def _use_gpu(wanted: bool | str, workers: int) -> bool:
    available = gpus_to_be_had()
    if wanted is True and available < workers:
        raise InputError(
            f'training.use_gpu asks for {workers} GPUs, Ray has {available:g}; set it to "auto" or'
            " add GPU nodes"
        )
    return bool(wanted) and available >= workers
