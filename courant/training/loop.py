"""Train: plain PyTorch, in one process or in each of several that share batches.

Notable features:
- Exact resume: samples, learning rate and random draws depend on (seed, epoch, step) alone and
  everything else is in the checkpoint, so a run killed anywhere resumes as if nothing had happened,
  bitwise on one CPU worker.
- Trajectories that fit stay on the training device, others are streamed, with the same batches.
- A loss or gradient that is not finite never reaches the weights: it stops the run with the batch
  on record, or is skipped and counted. An epoch whose loss is far above the first one's stops it.
- The host waits for a GPU once in `CHECK_EVERY` steps; a step may be one CUDA graph
  (`courant.training.optimisation.step`).

    dataset = simgen.open_dataset("demo-run/store/cylinder-flow")
    fit(recipes.cylinder_flow_demo(), dataset, RunDirectory("runs/try"))
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NoReturn, cast

import torch
import torch.distributed as distributed
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from courant.data.batches import seeded
from courant.experiment import Experiment
from courant.models import build
from courant.runs.checkpoint import (
    Checkpoint,
    load_optimiser,
    read_latest_checkpoint,
    write_checkpoint,
)
from courant.runs.directory import RunDirectory
from courant.runs.record import EpochRecord, is_finished, read_records
from courant.runs.standing import heartbeat
from courant.training.anchor_start import place_learned_anchors
from courant.training.optimisation.averaging import WeightAverage
from courant.training.optimisation.gradients import flops_per_sample
from courant.training.optimisation.optimiser import make_optimiser
from courant.training.optimisation.schedule import learning_rate_of
from courant.training.optimisation.step import (
    OptimiserStep,
    check_batch_divides,
    check_graphs,
    rank_and_world,
)
from courant.training.run_log import RunLog, ids_in_lines
from courant.training.task import Task
from courant.training.throughput import EpochClock, peak_memory_gb
from courant.training.validation import Validation

if TYPE_CHECKING:
    from simgen.store.access.reader import Dataset

logger = logging.getLogger("courant.training")

OnEpoch = Callable[[EpochRecord], None]
PARTS = ("load", "train", "validation", "checkpoint")
"""The parts of a run's time"""
FAR = 1e3
"""How many times that of the start, or 1, an epoch's loss may be; predicting the mean has 1"""
CHECK_EVERY = 64
"""Steps on a GPU between looks at their losses; on a CPU each step is checked"""


def fit(
    experiment: Experiment,
    dataset: Dataset,
    run: RunDirectory,
    *,
    device: torch.device | str = "cpu",
    on_epoch: OnEpoch | None = None,
    on_checkpoint: OnEpoch | None = None,
) -> None:
    """Train to the experiment's last epoch from the newest checkpoint; return at once where done.

    Raises InputError where model, data and dataset do not fit together, InUseError while another
    process trains the run, TrainingError for a loss that is not finite or far above its start.
    `on_epoch` is called on the first worker alone, `on_checkpoint` on every worker.
    """
    if is_finished(run):
        return
    rank, world = rank_and_world()
    with ids_in_lines(experiment, dataset, run), heartbeat(run) if rank == 0 else nullcontext():
        fitting = Fitting.start(experiment, dataset, run, torch.device(device), rank, world)
        fitting.go_on(on_epoch, on_checkpoint)


@dataclass
class Fitting:
    """A run in this process's memory."""

    task: Task
    run: RunDirectory
    device: torch.device
    rank: int
    world: int
    model: nn.Module
    """The bare model, or the model under DistributedDataParallel"""
    bare: nn.Module
    optimiser: Optimizer
    state: Checkpoint
    average: WeightAverage | None
    step: OptimiserStep
    log: RunLog
    flops_per_sample: float | None = None
    start_loss: float | None = None
    """The first epoch's"""

    @classmethod
    def start(
        cls,
        experiment: Experiment,
        dataset: Dataset,
        run: RunDirectory,
        device: torch.device,
        rank: int,
        world: int,
    ) -> Fitting:
        """Read the data, build like `of`, and open the run's record."""
        check_batch_divides(experiment.training, world)
        check_graphs(experiment, device, world)
        began = time.perf_counter()
        task = Task.load(experiment, dataset, device, rank, world)
        loaded = time.perf_counter() - began
        fitting = cls.of(task, run, device, rank, world)
        fitting.state.seconds["load"] += loaded
        earlier = read_records(run) if fitting.state.epoch else []
        fitting.start_loss = earlier[0].train_loss if earlier else None
        fitting.log.open(task, dataset, device, world, fitting.state.epoch + 1)
        return fitting

    @classmethod
    def of(
        cls, task: Task, run: RunDirectory, device: torch.device, rank: int = 0, world: int = 1
    ) -> Fitting:
        """Build the model, and load the newest checkpoint."""
        training = task.experiment.training
        torch.manual_seed(training.seed)
        bare = build(task.experiment.model).to(device)
        place_learned_anchors(bare, task.anchors)
        model = task.trained(bare)
        if world > 1:
            gpus = [device] if device.type == "cuda" else None
            model = DistributedDataParallel(model, device_ids=gpus)
        if training.compile:
            model = cast(nn.Module, torch.compile(model))
        optimiser = make_optimiser(bare, training)
        average = WeightAverage(bare, training.ema_decay) if training.ema_decay else None
        state = read_latest_checkpoint(run, device, bare)
        if state is None:
            state = Checkpoint.before_training(bare.state_dict(), PARTS)
        else:
            bare.load_state_dict(state.model)
            load_optimiser(optimiser, state, run)
            if average is not None:
                average.load(state.average)
            logger.info("%s: going on after epoch %d of %d", run.url, state.epoch, training.epochs)
        step = OptimiserStep(task, model, bare, optimiser, average, world)
        log = RunLog(run, rank)
        return cls(
            task, run, device, rank, world, model, bare, optimiser, state, average, step, log
        )

    @property
    def experiment(self) -> Experiment:
        return self.task.experiment

    def go_on(self, on_epoch: OnEpoch | None, on_checkpoint: OnEpoch | None) -> None:
        """Train from the next epoch to the last, and close the record."""
        training = self.experiment.training
        for epoch in range(self.state.epoch + 1, training.epochs + 1):
            last = epoch == training.epochs
            record = self.epoch(epoch, validate=last or epoch % training.validate_every == 0)
            keep = last or epoch % training.checkpoint_every == 0
            if self.rank == 0:
                self.write(record, keep)
                logger.info(record.line())
                if on_epoch is not None:
                    on_epoch(record)
            if keep and on_checkpoint is not None:
                on_checkpoint(record)
        if self.rank == 0:
            self.log.finish(self.task, self.state)

    def epoch(self, epoch: int, validate: bool) -> EpochRecord:
        """Train one epoch, then validate."""
        if self.flops_per_sample is None and self.rank == 0:
            _, batch = next(iter(self.task.train.epoch(epoch)))
            self.flops_per_sample = flops_per_sample(self.task, batch)
        clock = EpochClock(self.device)
        with self.state.timed("train"):
            train_loss, first_loss, skipped = self.train_epoch(epoch, clock)
        clock.stop()
        start_loss = first_loss if self.start_loss is None else self.start_loss
        if train_loss > FAR * max(start_loss, 1.0):
            rate = self.learning_rate(epoch * self.task.train.num_batches - 1)
            raise self.log.far_off(epoch, train_loss, start_loss, rate)
        if self.start_loss is None:
            self.start_loss = train_loss
        validation_loss = validation_nmae = None
        if self.rank == 0 and validate and self.task.validation is not None:
            with self.state.timed("validation"):
                validation_loss, validation_nmae = self.validate(self.task.validation)
        self.state.epoch = epoch
        if self.rank == 0:
            self.keep_best(validation_loss)
        spent = sum(value for part, value in self.state.seconds.items() if part != "load")
        training = self.experiment.training
        samples_per_s = self.task.train.num_batches * training.batch_size / clock.seconds
        return EpochRecord(
            epoch=epoch,
            epochs=training.epochs,
            train_loss=train_loss,
            validation_loss=validation_loss,
            validation_nmae=validation_nmae,
            learning_rate=self.learning_rate(epoch * self.task.train.num_batches - 1),
            seconds=clock.seconds,
            samples_per_s=samples_per_s,
            eta_s=spent / epoch * (training.epochs - epoch),
            data_wait_share=clock.waited_s / clock.seconds,
            flops_per_s=self.flops_per_sample * samples_per_s if self.flops_per_sample else None,
            peak_memory_gb=peak_memory_gb(self.device),
            skipped_batches=skipped,
            processor_s=clock.processor_s,
        )

    def train_epoch(self, epoch: int, clock: EpochClock) -> tuple[float, float, int]:
        """Run one pass over the epoch's batches.

        Returns the mean loss over them and all workers, that of the first batch, and the number of
        skipped steps.
        """
        training = self.experiment.training
        # Random draws inside the model depend on the epoch alone, like the samples.
        drawn = seeded(training.seed, "model", epoch, self.rank)
        torch.manual_seed(int(torch.randint(2**62, (1,), generator=drawn)))
        self.model.train()
        begin = (epoch - 1) * self.task.train.num_batches
        check_every = CHECK_EVERY if self.device.type == "cuda" else 1
        losses: list[float] = []
        unseen: list[tuple[int, Tensor, Tensor]] = []
        batches = clock.watch(self.task.train.epoch(epoch))
        for number, (samples, batch) in enumerate(batches, start=begin):
            unseen.append((number, samples, self.step(batch, number, self.learning_rate(number))))
            if len(unseen) == check_every:
                losses += self.check(unseen)
                unseen.clear()
        losses += self.check(unseen)
        if not losses:
            self.refuse(number, math.nan, math.nan, samples)
        total = torch.zeros((), device=self.device)
        for loss in losses:  # one by one in float32, as the losses came
            total += loss
        sums = torch.stack([total, torch.tensor(losses[0], device=self.device)])
        if self.world > 1:
            distributed.all_reduce(sums)
        of_all, of_first = (float(each) / self.world for each in sums)
        return of_all / len(losses), of_first, self.task.train.num_batches - len(losses)

    def check(self, steps: Sequence[tuple[int, Tensor, Tensor]]) -> list[float]:
        """Collect the losses of the steps (number, samples, outcome) that were taken.

        Stops the run at one that was not, unless the experiment skips such steps.
        """
        outcomes = torch.stack([outcome for *_, outcome in steps]).tolist() if steps else []
        if self.experiment.training.nonfinite == "stop":
            for (number, samples, _), (loss, norm, taken) in zip(steps, outcomes, strict=True):
                if not taken:
                    self.refuse(number, loss, norm, samples)
        return [loss for loss, _, taken in outcomes if taken]

    def validate(self, validation: Validation) -> tuple[float, float]:
        """Compute loss and NMAE of the weights that would be kept."""
        self.bare.eval()
        with self.average.applied_to(self.bare) if self.average is not None else nullcontext():
            return validation.measure(partial(self.task.predict, self.bare), self.task.loss)

    def keep_best(self, validation_loss: float | None) -> None:
        """Keep the weights of the lowest validation loss, or the latest where none is measured."""
        kept = self.bare.state_dict() if self.average is None else self.average.weights
        if self.task.validation is None:
            self.state.keep(kept)
        elif validation_loss is not None:
            self.state.keep_best(kept, validation_loss)

    def write(self, record: EpochRecord, keep: bool) -> None:
        """Write the epoch's line, then the checkpoint, whose epochs are thus all on record."""
        with self.state.timed("checkpoint"):
            self.log.write(record)
            if keep:
                self.state.model = self.bare.state_dict()
                self.state.optimiser = self.optimiser.state_dict()
                self.state.average = self.average.weights if self.average is not None else {}
                write_checkpoint(self.run, self.state, self.experiment.training.keep_checkpoints)

    def refuse(self, step: int, loss: float, norm: float, samples: Tensor) -> NoReturn:
        """Stop the run at a loss or gradient that is not finite."""
        epoch, index = divmod(step, self.task.train.num_batches)
        raise self.log.diverged(
            self.task, epoch + 1, index + 1, loss, norm, self.learning_rate(step), samples
        )

    def learning_rate(self, step: int) -> float:
        return learning_rate_of(self.experiment.training, step, self.task.train.num_batches)
