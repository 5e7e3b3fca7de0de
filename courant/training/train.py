"""Train: plain PyTorch, in one process or in each of several that share batches.

Notable features:
- Exact resume: samples, learning rate and random draws depend on (seed, epoch, step) alone and
  everything else is in the checkpoint, so a run killed anywhere resumes as if nothing had happened,
  bitwise on one CPU worker.
- Trajectories that fit stay on the training device, others are streamed, with the same batches.
- A loss or gradient that is not finite never reaches the weights: it stops the run with the batch
  on record, or is skipped and counted. So does a loss far above that of the start.
- The host waits for a GPU once in `CHECK_EVERY` steps; a step may be one CUDA graph
  (`courant.training.step`).
- Validation has the same samples at every epoch, with every mesh point, as predictions have.

    dataset = simgen.open_dataset("demo-run/store/cylinder-flow")
    fit(recipes.cylinder_flow_demo(), dataset, RunDirectory("runs/try"))

Read from `fit` downwards: `Fitting` is the run in memory, `Task` its data and loss, `Validation`
measures an epoch and `RunLog` records it.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NoReturn, TypeVar, cast

import numpy as np
import torch
import torch.distributed as distributed
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from courant.data.batch import Batch, Batches, BatchOrder, seeded
from courant.data.geometry import AnchorChoice
from courant.data.normalisation import Normaliser
from courant.ensemble import MembersApart
from courant.experiment import Experiment
from courant.field_model import TrainsApart
from courant.models import build
from courant.problems import Problem, open_problem
from courant.problems.problem import Samples
from courant.runs.checkpoint import (
    Checkpoint,
    load_optimiser,
    read_latest_checkpoint,
    write_checkpoint,
)
from courant.runs.directory import RunDirectory
from courant.runs.record import (
    EpochRecord,
    describe_run,
    environment,
    heartbeat,
    is_finished,
    read_records,
    write_records,
    write_status,
)
from courant.runs.trackers import Tracker, open_trackers
from courant.training.loss import Loss, WithSpread, masked_sum
from courant.training.optimiser import WeightAverage, learning_rate_of, make_optimiser
from courant.training.step import (
    OptimiserStep,
    check_batch_divides,
    check_graphs,
    flops_per_sample,
    rank_and_world,
)
from simgen.errors import InputError, SimgenError
from simgen.log_lines import about

if TYPE_CHECKING:
    from simgen.store.read import Dataset

logger = logging.getLogger("courant.training")
OnEpoch = Callable[[EpochRecord], None]
PARTS = ("load", "train", "validation", "checkpoint")
"""The parts of a run's time"""
FAR = 1e3
"""How many times that of the start, or 1, an epoch's loss may be; predicting the mean has 1"""
CHECK_EVERY = 64
"""Steps on a GPU between looks at their losses; on a CPU each step is checked"""
MAX_CASES = 32
MAX_POINTS = 65_536
"""Of all cases together: more would not move the anchors by a cell"""
T = TypeVar("T")


class TrainingError(SimgenError):
    """The training cannot continue: a loss is not finite or far off, or a worker failed."""


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
    ids = about(dataset=dataset.url, training_run=run.name, experiment=experiment.name)
    with ids, heartbeat(run) if rank == 0 else nullcontext():
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


def set_up_run(experiment: Experiment, dataset: Dataset, runs_url: str) -> RunDirectory:
    """Make the run's directory and write down what is trained on what; train nothing yet.

    InputError where the experiment does not fit the dataset, StoreError where the directory cannot
    be written.
    """
    _grid_of(experiment, dataset)
    run = RunDirectory(runs_url) / experiment.run_id(dataset.snapshot_id)
    describe_run(run, experiment, dataset, open_problem(experiment, dataset).normaliser)
    return run


@dataclass(frozen=True)
class Task:
    """An experiment with its data on the training device."""

    problem: Problem
    train: Batches
    validation: Validation | None
    """None where the version has no validation case"""
    grid: tuple[int, ...] = ()
    """The shape of the grid that all cases are; empty where the loss needs none"""
    anchors: Tensor | None = None
    """(L, 3), where learned anchors start; None where the model's own start stands"""

    @property
    def experiment(self) -> Experiment:
        return self.problem.experiment

    @property
    def normaliser(self) -> Normaliser:
        return self.problem.normaliser

    @property
    def loss(self) -> Loss:
        return Loss.of(self.experiment.training, self.normaliser, self.grid)

    @classmethod
    def load(
        cls,
        experiment: Experiment,
        dataset: Dataset,
        device: torch.device,
        rank: int = 0,
        world: int = 1,
    ) -> Task:
        """Read the training and validation splits.

        InputError where experiment and dataset do not fit together. Training batches are those of
        worker `rank` of `world`.
        """
        problem, training = open_problem(experiment, dataset), experiment.training
        grid = _grid_of(experiment, dataset)
        if not dataset.cases("train"):
            raise InputError(
                f"dataset {dataset.url} {dataset.version} has no accepted case to train on;"
                " generate more cases"
            )
        order = BatchOrder(
            training.batch_size, training.samples_per_epoch, training.seed, rank, world
        )
        train = problem.training(dataset, order, device)
        validation = None
        if dataset.cases("validation"):
            samples = problem.validation(dataset, training.validation_windows, device)
            validation = Validation(samples, problem.normaliser)
        anchors = anchor_start(experiment, dataset, problem.normaliser)
        return cls(problem, train, validation, grid, anchors)

    def trained(self, model: nn.Module) -> nn.Module:
        """Return what training steps call: the model, or with what else the loss needs of it.

        InputError for a model that cannot tell it.
        """
        if isinstance(model, TrainsApart):
            return MembersApart([self.trained(member) for member in model.trained_apart()])
        return WithSpread(model) if self.experiment.training.locality_weight else model

    def training_loss(self, trained: nn.Module, batch: Batch) -> Tensor:
        """Return the loss of a batch, of what `trained` made of a model."""
        weight = self.experiment.training.locality_weight
        inputs, queries = batch.for_model(self.experiment.model)
        mask = (batch.query_mask,) if weight else ()
        with self._precision(batch):
            made = trained(inputs, queries, self.problem.num_steps, *mask)
        if not isinstance(made, list):
            return self._loss_of(made, batch, weight)
        return torch.stack([self._loss_of(each, batch, weight) for each in made]).mean()

    def _loss_of(self, made: Tensor | tuple[Tensor, Tensor], batch: Batch, weight: float) -> Tensor:
        """Return the loss of a prediction, or of a prediction and the spread beside it."""
        if isinstance(made, Tensor):
            return self.loss(made, batch)
        prediction, spread = made
        return self.loss(prediction, batch) + weight * spread.float().mean()

    def predict(self, model: nn.Module, batch: Batch) -> Tensor:
        """Predict (B, T, M, C) standardised, in the experiment's precision; T = 1 if steady."""
        inputs, queries = batch.for_model(self.experiment.model)
        with self._precision(batch):
            prediction: Tensor = model(inputs, queries, self.problem.num_steps)
        return prediction

    def _precision(self, batch: Batch) -> torch.autocast:
        bfloat16 = self.experiment.training.precision == "bfloat16"
        return torch.autocast(batch.points.device.type, torch.bfloat16, enabled=bfloat16)


def _grid_of(experiment: Experiment, dataset: Dataset) -> tuple[int, ...]:
    """Return the shape of the cases' grid, if the loss has derivatives along it.

    InputError where the cases are not all one grid of three points or more along each axis.
    """
    if not experiment.training.derivative_weight:
        return ()
    grid = dataset.schema.grid_shape
    if grid is None or min(grid) < 3:
        raise InputError(
            f"training.derivative_weight: the cases of {dataset.url} are no common structured grid;"
            " set it to 0"
        )
    return grid


def anchor_start(experiment: Experiment, dataset: Dataset, normaliser: Normaliser) -> Tensor | None:
    """Return where learned anchors start, (L, 3) in normalised coordinates.

    They are sampled from the union of the training cases' cells as anchors of one cloud are, so
    that trainings with different seeds start from the same anchors. None where the experiment has
    no learned anchors, or lets them start anywhere.
    """
    num_anchors = experiment.model.num_learned_anchors
    if experiment.data.anchor_start == "box" or not num_anchors:
        return None
    cases = dataset.cases("train")
    chosen = cases[:: -(-len(cases) // MAX_CASES)]
    clouds = []
    for case in chosen:
        points = normaliser.points(dataset[case].points)
        clouds.append(points[:: max(1, -(-len(points) * len(chosen) // MAX_POINTS))])
    union = torch.from_numpy(np.concatenate(clouds))[None]
    choice = AnchorChoice(num_anchors, by=experiment.data.anchors_by)
    return choice.among(union)[0]


@torch.no_grad()
def place_learned_anchors(model: nn.Module, start: Tensor | None) -> None:
    """Put a model's learned anchors at `start` (L, 3), and those of each member of an ensemble.

    They stay where they are if that is None.
    """
    if start is None:
        return
    for member in model.trained_apart() if isinstance(model, TrainsApart) else (model,):
        anchors = member.learned_anchors
        assert isinstance(anchors, Tensor)
        anchors.copy_(start[:, : anchors.shape[1]])


@dataclass(frozen=True)
class Validation:
    """Fixed samples of the validation split."""

    batches: Samples
    normaliser: Normaliser

    @torch.no_grad()
    def measure(self, predict: Callable[[Batch], Tensor], loss: Loss) -> tuple[float, float]:
        """Measure loss and NMAE of the fixed samples.

        The loss is in standardised space, averaged over samples; NMAE in physical units as
        `courant.evaluation.metrics` defines it: sums over all points of all samples, and the mean
        of fields with different units. Fields that are zero in all samples are left out; where all
        are, it is the sum of the errors themselves.
        """
        num_samples, loss_sum = 0, 0.0
        fields = [channel.field for channel in self.normaliser.channels]
        errors, sizes = dict.fromkeys(fields, 0.0), dict.fromkeys(fields, 0.0)
        for batch in self.batches():
            device = batch.targets.device
            std, mean = (
                torch.tensor(values, device=device)
                for values in (self.normaliser.std, self.normaliser.mean)
            )
            prediction, count = predict(batch).float(), len(batch.targets)
            num_samples += count
            loss_sum += count * float(loss(prediction, batch))
            if batch.scale is not None:
                std, mean = (value * batch.scale[:, None, None] for value in (std, mean))
            error = (prediction - batch.targets).abs() * std
            size = (batch.targets * std + mean).abs()
            for field in errors:
                columns = [number for number, name in enumerate(fields) if name == field]
                errors[field] += float(masked_sum(error[..., columns], batch.query_mask))
                sizes[field] += float(masked_sum(size[..., columns], batch.query_mask))
        # Nothing is relative to a field that is zero wherever it is validated.
        shares = [errors[field] / sizes[field] for field in errors if sizes[field] > 0]
        nmae = sum(shares) / len(shares) if shares else sum(errors.values())
        return loss_sum / num_samples, nmae


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
            len(train.samples),
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
        for name in (name for name, each in state.best.items() if not each.isfinite().all()):
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
                "different_samples": len(task.train.samples),
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


class EpochClock:
    """Measure an epoch: its time, the processor's part of it, and the waits for the next batch."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._began, self._processor_began = time.perf_counter(), time.process_time()
        self.seconds = self.processor_s = self.waited_s = 0.0

    def watch(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield the batches, with each one's waiting time counted.

        On a GPU, copies that run beside the computation do not count.
        """
        iterator = iter(batches)
        while True:
            began = time.perf_counter()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            finally:
                self.waited_s += time.perf_counter() - began
            yield batch

    def stop(self) -> None:
        """End the epoch.

        Processor time is that of all threads of this process on a CPU, whoever else uses the
        machine; on a GPU it is the time for which the device was held.
        """
        self.seconds = time.perf_counter() - self._began
        used = time.process_time() - self._processor_began
        self.processor_s = self.seconds if self._device.type == "cuda" else used


def peak_memory_gb(device: torch.device) -> float | None:
    """Return the peak memory that this process allocated on the GPU; on a CPU its peak size.

    None on a CPU under Windows.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e9
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
