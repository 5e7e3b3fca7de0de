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

Read from `fit` downwards: `Task` is the data, `Fitting` the run in memory, `Validation` measures an
epoch and `RunLog` records it.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np
import torch
import torch.distributed as distributed
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from courant.data.batch import Batch, Batches, BatchOrder, seeded
from courant.data.geometry import AnchorChoice
from courant.data.normalisation import Normaliser
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
from courant.training.optimiser import WeightAverage, learning_rate_of, make_optimiser
from courant.training.step import (
    Objective,
    OptimiserStep,
    check_batch_divides,
    check_graphs,
    flops_per_sample,
    masked_sum,
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
"""Cases among whose cells learned anchors start"""
MAX_POINTS = 65_536
"""Of all these cases together: more would not move the anchors by a cell"""
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
    training, device = experiment.training, torch.device(device)
    ids = about(dataset=dataset.url, training_run=run.name, experiment=experiment.name)
    with ids, heartbeat(run) if rank == 0 else nullcontext():
        check_batch_divides(training, world)
        check_graphs(experiment, device, world)
        began = time.perf_counter()
        task = Task.load(experiment, dataset, device, rank, world)
        loaded = time.perf_counter() - began
        fitting = Fitting.of(task, run, device, rank, world)
        state, log = fitting.state, fitting.log
        state.seconds["load"] += loaded
        log.open(dataset, device, world, state.epoch + 1)
        for epoch in range(state.epoch + 1, training.epochs + 1):
            last = epoch == training.epochs
            record = fitting.epoch(epoch, validate=last or epoch % training.validate_every == 0)
            keep = last or epoch % training.checkpoint_every == 0
            if rank == 0:
                fitting.write(record, keep)
                logger.info(record.line())
                if on_epoch is not None:
                    on_epoch(record)
            if keep and on_checkpoint is not None:
                on_checkpoint(record)
        if rank == 0:
            log.finish(state)


def set_up_run(experiment: Experiment, dataset: Dataset, runs_url: str) -> RunDirectory:
    """Make the run's directory and write down what is trained on what; train nothing yet.

    InputError where the experiment does not fit the dataset, StoreError where the directory cannot
    be written.
    """
    _grid_of(experiment, dataset)
    run = RunDirectory(runs_url) / experiment.run_id(dataset.snapshot_id)
    describe_run(run, experiment, dataset, open_problem(experiment, dataset).normaliser)
    return run


# --- the data


@dataclass(frozen=True)
class Task(Objective):
    """An experiment with its data on the training device."""

    problem: Problem
    train: Batches
    validation: Validation | None
    """None where the version has no validation case"""
    grid: tuple[int, ...] = ()
    anchors: Tensor | None = None
    """(L, 3), where learned anchors start; None where the model's own start stays"""

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
        train, validation = problem.training(dataset, order, device), None
        if dataset.cases("validation"):
            samples = problem.validation(dataset, training.validation_windows, device)
            validation = Validation(samples, problem.normaliser)
        anchors = anchor_start(experiment, dataset, problem.normaliser)
        return cls(problem, train, validation, grid, anchors)


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
    return AnchorChoice(num_anchors, by=experiment.data.anchors_by).among(union)[0]


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


# --- the run


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
        state, start_loss = read_latest_checkpoint(run, device, bare), None
        if state is None:
            state = Checkpoint.before_training(bare.state_dict(), PARTS)
        else:
            bare.load_state_dict(state.model)
            load_optimiser(optimiser, state, run)
            if average is not None:
                average.load(state.average)
            earlier = read_records(run)
            start_loss = earlier[0].train_loss if earlier else None
            logger.info("%s: going on after epoch %d of %d", run.url, state.epoch, training.epochs)
        step = OptimiserStep(task, model, bare, optimiser, average, world)
        return cls(
            task=task,
            run=run,
            device=device,
            rank=rank,
            world=world,
            model=model,
            bare=bare,
            optimiser=optimiser,
            state=state,
            average=average,
            step=step,
            log=RunLog(run, rank, task),
            start_loss=start_loss,
        )

    def epoch(self, epoch: int, validate: bool) -> EpochRecord:
        """Train one epoch, then validate."""
        task, training = self.task, self.task.experiment.training
        if self.flops_per_sample is None and self.rank == 0:
            _, batch = next(iter(task.train.epoch(epoch)))
            self.flops_per_sample = flops_per_sample(task, batch)
        clock = EpochClock(self.device)
        with self.state.timed("train"):
            train_loss, first_loss, skipped = self.train_epoch(epoch, clock)
        clock.stop()
        num_batches = task.train.num_batches
        rate = learning_rate_of(training, epoch * num_batches - 1, num_batches)
        start_loss = first_loss if self.start_loss is None else self.start_loss
        if train_loss > FAR * max(start_loss, 1.0):
            raise self.log.failed(
                f"training diverged: mean loss {train_loss:g} in epoch {epoch}, {start_loss:g} at"
                f" its start; {_way_out(rate)}"
            )
        if self.start_loss is None:
            self.start_loss = train_loss
        validation_loss = validation_nmae = None
        if self.rank == 0 and validate and task.validation is not None:
            with self.state.timed("validation"):
                validation_loss, validation_nmae = self.validate(task.validation)
        self.state.epoch = epoch
        if self.rank == 0:
            # The weights of the lowest validation loss, or the latest where none is measured.
            kept = self.bare.state_dict() if self.average is None else self.average.weights
            if task.validation is None:
                self.state.keep(kept)
            elif validation_loss is not None:
                self.state.keep_best(kept, validation_loss)
        spent = sum(value for part, value in self.state.seconds.items() if part != "load")
        samples_per_s = num_batches * training.batch_size / clock.seconds
        return EpochRecord(
            epoch=epoch,
            epochs=training.epochs,
            train_loss=train_loss,
            validation_loss=validation_loss,
            validation_nmae=validation_nmae,
            learning_rate=rate,
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
        training, num_batches = self.task.experiment.training, self.task.train.num_batches
        # Random draws inside the model depend on the epoch alone, like the samples.
        drawn = seeded(training.seed, "model", epoch, self.rank)
        torch.manual_seed(int(torch.randint(2**62, (1,), generator=drawn)))
        self.model.train()
        check_every = CHECK_EVERY if self.device.type == "cuda" else 1
        losses: list[float] = []
        unseen: list[tuple[int, Tensor, Tensor]] = []  # of each step number, samples, outcome

        def check() -> None:
            """Collect the losses of the steps that were taken; raise at one that was not.

            Unless the experiment skips such steps.
            """
            outcomes = torch.stack([each for *_, each in unseen]).tolist() if unseen else []
            for (number, samples, _), (loss, norm, taken) in zip(unseen, outcomes, strict=True):
                if taken:
                    losses.append(loss)
                elif training.nonfinite == "stop":
                    raise self.not_finite(number, loss, norm, samples)
            unseen.clear()

        batches = clock.watch(self.task.train.epoch(epoch))
        for number, (samples, batch) in enumerate(batches, start=(epoch - 1) * num_batches):
            rate = learning_rate_of(training, number, num_batches)
            unseen.append((number, samples, self.step(batch, number, rate)))
            if len(unseen) == check_every:
                check()
        check()
        if not losses:
            raise self.not_finite(number, math.nan, math.nan, samples)
        total = torch.zeros((), device=self.device)
        for loss in losses:  # one by one in float32, as the losses came
            total += loss
        sums = torch.stack([total, torch.tensor(losses[0], device=self.device)])
        if self.world > 1:
            distributed.all_reduce(sums)
        of_all, of_first = (float(each) / self.world for each in sums)
        return of_all / len(losses), of_first, num_batches - len(losses)

    def validate(self, validation: Validation) -> tuple[float, float]:
        """Compute loss and NMAE of the weights that would be kept."""
        self.bare.eval()
        with self.average.applied_to(self.bare) if self.average is not None else nullcontext():
            return validation.measure(partial(self.task.predict, self.bare), self.task.loss)

    def write(self, record: EpochRecord, keep: bool) -> None:
        """Write the epoch's line, then the checkpoint, whose epochs are thus all on record."""
        with self.state.timed("checkpoint"):
            self.log.write(record)
            if keep:
                self.state.model = self.bare.state_dict()
                self.state.optimiser = self.optimiser.state_dict()
                self.state.average = self.average.weights if self.average is not None else {}
                keep_checkpoints = self.task.experiment.training.keep_checkpoints
                write_checkpoint(self.run, self.state, keep_checkpoints)

    def not_finite(self, step: int, loss: float, norm: float, samples: Tensor) -> TrainingError:
        """Put a batch whose loss or gradient is not finite on record; return the error to raise."""
        train, training = self.task.train, self.task.experiment.training
        epoch, index = divmod(step, train.num_batches)
        rate = learning_rate_of(training, step, train.num_batches)
        reason = f"loss {loss:g}, gradient norm {norm:g} in epoch {epoch + 1}, batch {index + 1}"
        failure = {
            "reason": reason,
            "epoch": epoch + 1,
            "batch": index + 1,
            "learning_rate": rate,
            "windows": train.describe(samples),
        }
        name = f"failure-worker-{self.rank}.json"
        self.run.write_json(name, failure)
        return self.log.failed(
            f"training diverged: {reason}; the batch is on record in {self.run.url}/{name};"
            f" {_way_out(rate)}"
        )


def _way_out(learning_rate: float) -> str:
    return f"lower training.learning_rate (now {learning_rate:g}) or add training.warmup_steps"


@dataclass(frozen=True)
class Validation:
    """Fixed samples of the validation split."""

    batches: Samples
    normaliser: Normaliser

    @torch.no_grad()
    def measure(
        self, predict: Callable[[Batch], Tensor], loss: Callable[[Tensor, Batch], Tensor]
    ) -> tuple[float, float]:
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

    def __init__(self, run: RunDirectory, rank: int, task: Task) -> None:
        self._run, self._rank, self._task = run, rank, task
        self._records: list[EpochRecord] = []
        self._trackers: list[Tracker] = []

    def open(self, dataset: Dataset, device: torch.device, world: int, first_epoch: int) -> None:
        """Write the run's description, and drop epochs from `first_epoch` on from the record.

        These are trained again. Called on every worker: where the first fails, all raise, or the
        others would wait for it at their first step.
        """
        failure: SimgenError | None = None
        if self._rank == 0:
            try:
                self._open(dataset, device, world, first_epoch)
            except SimgenError as error:
                failure = error
        message = [None if failure is None else str(failure)]
        if world > 1:
            distributed.broadcast_object_list(message, src=0, device=device)
        if failure is not None:
            raise failure
        if message[0] is not None:
            raise TrainingError(message[0])

    def _open(self, dataset: Dataset, device: torch.device, world: int, first_epoch: int) -> None:
        experiment, train = self._task.experiment, self._task.train
        describe_run(self._run, experiment, dataset, self._task.problem.normaliser)
        self._run.write_json("environment.json", environment(device, world))
        write_status(self._run, "running")
        self._records = [record for record in read_records(self._run) if record.epoch < first_epoch]
        write_records(self._run, self._records)
        self._trackers = open_trackers(self._run, experiment, first_epoch)
        logger.info(
            "%s: %d training cases, %d different samples, %d an epoch,"
            " %.0f MB in memory, %s, %d threads",
            experiment.name,
            train.num_cases,
            len(train.samples),
            train.num_batches * experiment.training.batch_size,
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

    def finish(self, state: Checkpoint) -> None:
        """Record the end of the last epoch, once the best weights are there.

        A kill between the last checkpoint and its weights leaves those of an earlier one.
        TrainingError where none are the best, because no validation loss was finite, and where the
        best are not finite.
        """
        if not state.best_epoch:
            raise self.failed(
                "no validation loss was a finite number: look at metrics.jsonl, and at the"
                " validation cases or a lower training.learning_rate"
            )
        for name in (name for name, each in state.best.items() if not each.isfinite().all()):
            raise self.failed(
                f"{name} of the best weights, of epoch {state.best_epoch}, holds values that are"
                " not finite: train again in another folder, with a lower training.learning_rate"
            )
        state.write_best(self._run)
        train, training = self._task.train, self._task.experiment.training
        samples = train.num_batches * training.batch_size * training.epochs
        speed = samples / max(state.seconds["train"], 1e-9)
        timings = {"samples_per_s": speed, "different_samples": len(train.samples)}
        self._run.write_json("timings.json", {**state.seconds, **timings})
        best_loss = state.best_loss if math.isfinite(state.best_loss) else None
        write_status(
            self._run,
            "finished",
            epochs=state.epoch,
            best_epoch=state.best_epoch,
            best_loss=best_loss,
        )
        for tracker in self._trackers:
            tracker.end("finished")

    def failed(self, message: str) -> TrainingError:
        """Record a failure; return the error to raise."""
        if self._rank == 0:
            write_status(self._run, "failed", reason=message)
            for tracker in self._trackers:
                tracker.end("failed")
        return TrainingError(message)


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
