"""Train on this machine: in this process, or in several that share batches.

On a Ray cluster `courant.training.ray_train` does the same.
"""

from __future__ import annotations

import contextvars
import logging
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as distributed
import torch.multiprocessing as multiprocessing

import simgen
from courant.experiment import Experiment, TrainingConfig
from courant.runs import record as records
from courant.runs.checkpoint import checkpoint_epochs
from courant.runs.directory import RunDirectory, absolute_url
from courant.training.train import OnEpoch, TrainingError, fit, set_up_run
from simgen.errors import InputError, StoreError
from simgen.log_lines import LogContext, log_context
from simgen.machine import usable_cores

if TYPE_CHECKING:
    from simgen.store.read import Dataset

logger = logging.getLogger("courant.training")

POLL_S = 1.0
INTERFACE = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
"""Where workers of one machine talk to each other; they meet through a file"""
PATIENCE = timedelta(hours=2)
"""How long workers wait for each other, as for the first one's validation"""
ATTEMPTS = 4


def train(
    experiment: Experiment,
    dataset_url: str,
    version: str | None,
    runs_url: str,
    *,
    on_epoch: OnEpoch | None = None,
) -> str:
    """Train on a dataset version (None: the newest); return the URL, `<runs_url>/<name>-<hash>`.

    A finished run of the same experiment on the same snapshot is returned at once; an unfinished
    one resumes. `on_epoch` is called in this process, with each new epoch in order. Raises
    InputError, InUseError and TrainingError as `fit` does, the last also if workers keep dying.
    """
    dataset, run = begin_run(experiment, dataset_url, version, runs_url, records.ENDING_S)
    if records.is_finished(run):
        return run.url
    device = device_of(experiment.training)
    if experiment.training.workers == 1:
        use_threads(usable_cores())
        try:
            fit_on_record(experiment, dataset, run, device, on_epoch=on_epoch)
        finally:
            torch.set_flush_denormal(False)  # the caller's own numbers keep their whole range
    else:
        with following(run, on_epoch):
            _run_workers(experiment, dataset, run, device)
    check_finished(run)
    return run.url


def begin_run(
    experiment: Experiment, dataset_url: str, version: str | None, runs_url: str, ending_s: float
) -> tuple[Dataset, RunDirectory]:
    """Open the dataset; set up the run's directory where it is neither finished nor in use."""
    dataset = simgen.open_dataset(absolute_url(dataset_url), version)
    run = RunDirectory(runs_url) / experiment.run_id(dataset.snapshot_id)
    if not records.is_finished(run):
        records.check_unused(run, ending_s)
        set_up_run(experiment, dataset, runs_url)
    return dataset, run


def use_threads(num: int) -> None:
    """Compute on so many threads, and take subnormal numbers as zero; call it before anything else.

    Far from an anchor a Gaussian window's weight and gradient are below 1e-38, with which a CPU
    computes so slowly that a training step takes three times as long.
    """
    torch.set_num_threads(num)
    torch.set_flush_denormal(True)


def device_of(training: TrainingConfig) -> str:
    """Return where processes of this machine train; InputError for GPUs that are not there."""
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return "cuda" if use_gpus(training, found, "this machine") else "cpu"


def use_gpus(training: TrainingConfig, found: float, where: str) -> bool:
    """Decide whether each worker trains on a GPU; InputError where that is asked for in vain."""
    if training.use_gpu is True and found < training.workers:
        raise InputError(
            f"training.use_gpu asks for {training.workers} GPUs, {where} has {found:g}; set it to"
            ' "auto", or add GPUs'
        )
    return bool(training.use_gpu) and found >= training.workers


def fit_on_record(
    experiment: Experiment,
    dataset: Dataset,
    run: RunDirectory,
    device: torch.device | str,
    *,
    on_epoch: OnEpoch | None = None,
    is_first: bool = True,
) -> None:
    """Run the whole fit; the first worker records errors that no other attempt can cure."""
    try:
        fit(experiment, dataset, run, device=device, on_epoch=on_epoch)
    except records.InUseError:
        raise  # the record is that of the other process
    except (InputError, TrainingError) as error:
        if is_first:
            records.write_status(run, "failed", reason=str(error))


def _run_workers(experiment: Experiment, dataset: Dataset, run: RunDirectory, device: str) -> None:
    """Train in several processes; all start again from a checkpoint where one dies."""
    world, place = experiment.training.workers, (dataset.url, dataset.version)
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    for left in reversed(range(ATTEMPTS)):
        with tempfile.TemporaryDirectory(prefix="courant-workers-") as folder:
            meeting = f"file://{folder}/join"
            arguments = (world, meeting, experiment, place, run, device, log_context())
            try:
                # Ctrl-C reaches workers too, and would end those that start in a traceback.
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
                try:
                    workers = multiprocessing.spawn(_work, arguments, world, join=False)
                finally:
                    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
                while not workers.join(0.5):
                    pass
                return
            except Exception as error:  # that a process died or raised
                if left and isinstance(error, multiprocessing.ProcessExitedException):
                    continue
                last = str(error).strip().splitlines()[-1]
                raise TrainingError(
                    f"{run.url}: training failed ({last}); train again to go on from the last"
                    " checkpoint"
                ) from error


def _work(
    rank: int,
    world: int,
    meeting: str,
    experiment: Experiment,
    place: tuple[str, str],
    run: RunDirectory,
    kind: str,
    logs: LogContext,
) -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    logs.apply()
    use_threads(max(1, usable_cores() // world))
    os.environ |= INTERFACE
    device = torch.device(kind, rank) if kind == "cuda" else torch.device(kind)
    distributed.init_process_group(
        "nccl" if kind == "cuda" else "gloo",
        init_method=meeting,
        rank=rank,
        world_size=world,
        timeout=PATIENCE,
    )
    try:
        fit_on_record(experiment, simgen.open_dataset(*place), run, device, is_first=rank == 0)
    finally:
        distributed.destroy_process_group()


def check_finished(run: RunDirectory) -> None:
    """Raise TrainingError, with the recorded reason, where the run has not come to its end."""
    status = records.read_status(run)
    if status.state != "finished":
        raise TrainingError(
            status.reason or f"{run.url}: the workers ended without finishing; train again to go on"
        )


@contextmanager
def following(run: RunDirectory, on_epoch: OnEpoch | None) -> Iterator[None]:
    """Call `on_epoch`, in a thread, for each epoch that appears in the run's metrics meanwhile."""
    if on_epoch is None:
        yield
        return
    seen = max(checkpoint_epochs(run), default=0)
    # Epochs after the last checkpoint are trained again; until then their old records are there.
    stale = [record for record in records.read_records(run) if record.epoch > seen]
    stop, trouble = threading.Event(), list[Exception]()

    def follow() -> None:
        nonlocal seen
        is_last = False
        while not is_last and not trouble:
            is_last = stop.wait(POLL_S)
            try:
                for record in records.read_records(run):
                    if record.epoch > seen and record not in stale:
                        seen = record.epoch
                        on_epoch(record)
            except StoreError as error:
                logger.warning("%s", error)
            except Exception as error:
                trouble.append(error)

    # The caller's context variables are copied: through them Prefect knows which task is reporting.
    follower = threading.Thread(
        target=contextvars.copy_context().run, args=(follow,), name="follow-metrics", daemon=True
    )
    follower.start()
    try:
        yield
    finally:
        stop.set()
        follower.join()
    if trouble:
        raise trouble[0]
