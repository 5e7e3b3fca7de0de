"""Record a run while it trains: metrics, status, trackers, and the batch at which it diverged."""

from __future__ import annotations

import logging
import math
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
import torch.distributed as distributed
from torch import Tensor

from courant.experiment import Experiment
from courant.runs.checkpoint import Checkpoint, not_finite
from courant.runs.directory import RunDirectory
from courant.runs.record import (
    EpochRecord,
    describe_run,
    environment,
    read_records,
    write_records,
    write_status,
)
from courant.runs.tracking.trackers import Tracker, open_trackers
from courant.training.errors import TrainingError
from courant.training.task import Task
from simgen.errors import SimgenError
from simgen.log_lines import about

if TYPE_CHECKING:
    from simgen.store.access.reader import Dataset

logger = logging.getLogger("courant.training")


def ids_in_lines(
    experiment: Experiment, dataset: Dataset, run: RunDirectory
) -> AbstractContextManager[None]:
    """Give the log lines within a block the ids of a training."""
    name = run.url.rsplit("/", 1)[-1]
    return about(dataset=dataset.url, training_run=name, experiment=experiment.name)


class RunLog:
    """The record of one start of a run.

    The first worker writes it; any worker records its own failure.
    """

    def __init__(self, run: RunDirectory, rank: int) -> None:
        self._run, self._rank = run, rank
        self._records: list[EpochRecord] = []
        self._trackers: list[Tracker] = []

    def open(
        self, task: Task, dataset: Dataset, device: torch.device, world: int, first_epoch: int
    ) -> None:
        """Write the run's description, and drop epochs from `first_epoch` on from the record.

        These are trained again. Called on every worker: where the first fails, all raise, or the
        others would wait for it at their first step.
        """
        trouble: SimgenError | None = None
        if self._rank == 0:
            try:
                self._open(task, dataset, device, world, first_epoch)
            except SimgenError as error:
                trouble = error
        told = [None if trouble is None else str(trouble)]
        if world > 1:
            distributed.broadcast_object_list(told, src=0, device=device)
        if trouble is not None:
            raise trouble
        if told[0] is not None:
            raise TrainingError(told[0])

    def _open(
        self, task: Task, dataset: Dataset, device: torch.device, world: int, first_epoch: int
    ) -> None:
        describe_run(self._run, task.experiment, dataset, task.normaliser)
        self._run.write_json("environment.json", environment(device, world))
        write_status(self._run, "running")
        self._records = [record for record in read_records(self._run) if record.epoch < first_epoch]
        write_records(self._run, self._records)
        self._trackers = open_trackers(self._run, task.experiment, first_epoch)
        train = task.train
        samples = train.num_batches * task.experiment.training.batch_size
        logger.info(
            "%s: %d training cases, %d different samples, %d an epoch,"
            " %.0f MB in memory, %s, %d threads",
            task.experiment.name,
            train.num_cases,
            train.num_samples,
            samples,
            train.num_bytes / 1e6,
            device,
            torch.get_num_threads(),
        )

    def write(self, record: EpochRecord) -> None:
        """Record a finished epoch."""
        self._records.append(record)
        write_records(self._run, self._records)
        for tracker in self._trackers:
            tracker.epoch(record)

    def finish(self, task: Task, state: Checkpoint) -> None:
        """Record the end of the last epoch, once the best weights are there.

        A kill between the last checkpoint and its weights leaves those of an earlier one.
        TrainingError where none are the best, because no validation loss was finite, and where the
        best are not finite.
        """
        if not state.best_epoch:
            raise self._failed(
                "no validation loss was a finite number: look at metrics.jsonl, and at the"
                " validation cases or a lower training.learning_rate"
            )
        if (name := not_finite(state.best)) is not None:
            raise self._failed(
                f"{name} of the best weights, of epoch {state.best_epoch}, holds values that are"
                " not finite: train again in another folder, with a lower training.learning_rate"
            )
        state.write_best(self._run)
        training = task.experiment.training
        samples = task.train.num_batches * training.batch_size * training.epochs
        samples_per_s = samples / max(state.seconds["train"], 1e-9)
        self._run.write_json(
            "timings.json",
            {
                **state.seconds,
                "samples_per_s": samples_per_s,
                "different_samples": task.train.num_samples,
            },
        )
        best_loss = state.best_loss if math.isfinite(state.best_loss) else None
        write_status(
            self._run,
            "finished",
            epochs=state.epoch,
            best_epoch=state.best_epoch,
            best_loss=best_loss,
        )
        self._end_trackers("finished")

    def diverged(
        self,
        task: Task,
        epoch: int,
        batch: int,
        loss: float,
        norm: float,
        learning_rate: float,
        samples: Tensor,
    ) -> TrainingError:
        """Put the batch on record; return the error to raise."""
        reason = f"loss {loss:g}, gradient norm {norm:g} in epoch {epoch}, batch {batch}"
        failure = {
            "reason": reason,
            "epoch": epoch,
            "batch": batch,
            "learning_rate": learning_rate,
            "windows": task.train.describe(samples),
        }
        name = f"failure-worker-{self._rank}.json"
        self._run.write_json(name, failure)
        message = (
            f"training diverged: {reason}; the batch is on record in {self._run.url}/{name}; "
            f"{_way_out(learning_rate)}"
        )
        return self._failed(message)

    def far_off(
        self, epoch: int, loss: float, start_loss: float, learning_rate: float
    ) -> TrainingError:
        """Return the error to raise for an epoch whose mean loss is far above the start's."""
        return self._failed(
            f"training diverged: mean loss {loss:g} in epoch {epoch}, {start_loss:g} at its start;"
            f" {_way_out(learning_rate)}"
        )

    def _failed(self, message: str) -> TrainingError:
        if self._rank == 0:
            write_status(self._run, "failed", reason=message)
            self._end_trackers("failed")
        return TrainingError(message)

    def _end_trackers(self, state: str) -> None:
        for tracker in self._trackers:
            tracker.end(state)


def _way_out(learning_rate: float) -> str:
    return f"lower training.learning_rate (now {learning_rate:g}) or add training.warmup_steps"
