"""Train: plain PyTorch, in one process or in each of several that share batches.

Notable features:
- Exact resume: samples, learning rate and random draws depend on (seed, epoch, step) alone and all
  else is in the checkpoint: a killed run resumes as it was, bitwise on one CPU worker.
- A loss or gradient that is not finite never reaches the weights: it stops the run with the batch
  on record, or is skipped and counted. The host waits for a GPU once in `CHECK_EVERY` steps.
- Validation has the same samples at every epoch, with every mesh point, as predictions have.

    dataset = simgen.open_dataset("demo-run/store/cylinder-flow")
    fit(recipes.cylinder_flow_demo(), dataset, RunDirectory("runs/try"))

Read from `fit` downwards: `Task` is the data, `Fitting` the run in memory.
"""

from __future__ import annotations

import logging
import math
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
import torch.distributed as distributed
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from courant.data.batch import Batch, Batches, BatchOrder, seeded
from courant.data.geometry import AnchorChoice
from courant.data.normalisation import Normaliser
from courant.ensemble import Ensemble
from courant.experiment import VALIDATIONS, Experiment, TrainingConfig
from courant.models import build
from courant.problems import Problem, open_problem
from courant.problems.problem import Samples
from courant.runs import checkpoint as checkpoints
from courant.runs import record as records
from courant.runs.directory import RunDirectory
from courant.runs.record import EpochRecord
from courant.runs.trackers import Trackers
from courant.training import step as steps
from courant.training.optimiser import learning_rate, make_optimiser
from simgen.errors import InputError, SimgenError
from simgen.log_lines import about

if TYPE_CHECKING:
    from simgen.store.read import Dataset

logger = logging.getLogger("courant.training")
OnEpoch = Callable[[EpochRecord], None]
PARTS = ("load", "train", "validation", "checkpoint")  # The parts of a run's time
PACE = "pace.json"
"""Of a training within a budget: the seconds of a step that were measured, and what follows"""
PACE_STEPS = 20  # Steps that are measured, at most an epoch; the first half warms up
LATEST_EPOCHS = 8  # By whose median the rest of a budget is planned
VALIDATION_SHARE = 0.2  # Of a budget, at most
CHECK_EVERY = 64  # Steps on a GPU between looks at their losses; on a CPU each step is checked
MAX_CASES = 32  # Cases among whose cells learned anchors start
MAX_POINTS = 65_536  # Of all these cases together: more would not move the anchors by a cell


class TrainingError(SimgenError):
    """The training cannot continue: a loss is not finite, or a worker failed."""


def fit(
    experiment: Experiment,
    dataset: Dataset,
    run: RunDirectory,
    *,
    device: torch.device | str = "cpu",
    on_epoch: OnEpoch | None = None,
) -> None:
    """Train to the experiment's last epoch from the newest checkpoint; return at once where done.

    Raises InputError where model, data and dataset do not fit together, InUseError while another
    process trains the run, TrainingError for a loss that is not finite. `on_epoch` is called on the
    first worker alone.
    """
    if records.is_finished(run):
        return
    rank, world = steps.rank_and_world()
    training, device = experiment.training, torch.device(device)
    ids = about(dataset=dataset.url, training_run=run.name, experiment=experiment.name)
    with ids, records.heartbeat(run) if rank == 0 else nullcontext():
        steps.uses_graphs(experiment, device, world)
        began = time.perf_counter()
        task = Task.load(experiment, dataset, device)
        loaded = time.perf_counter() - began
        if training.budget_s:
            task.problem.experiment = within_budget(task, run, device, rank, world)
            training = task.experiment.training
        fitting = Fitting(task, run, device, rank, world)
        fitting.state.seconds["load"] += loaded
        if rank == 0:
            fitting.open(dataset)
        try:
            while (epoch := fitting.state.epoch + 1) <= training.epochs:
                if training.budget_s and epoch > 1:
                    fitting.plan_again(experiment.training)
                    training = task.experiment.training
                last = epoch == training.epochs
                validate = last or epoch % training.validate_every == 0
                record = fitting.epoch(epoch, validate)
                if validate and training.patience is not None:
                    since_best = steps.of_first_worker(epoch - fitting.state.best_epoch, device)
                    last = last or since_best >= training.patience
                if rank == 0:
                    fitting.write(record, keep=last or epoch % training.checkpoint_every == 0)
                    logger.info(record.line())
                    if on_epoch is not None:
                        on_epoch(record)
                if last:
                    break
            if rank == 0:
                fitting.finish()
        except TrainingError as error:
            if fitting.trackers is not None:
                records.write_status(run, "failed", reason=str(error))
                fitting.trackers.end("FAILED")
            raise


def set_up_run(experiment: Experiment, dataset: Dataset, runs_url: str) -> RunDirectory:
    """Describe in a new run directory what is trained on what; InputError where they do not fit."""
    _grid_of(experiment, dataset)
    _check_cases(dataset)
    run = RunDirectory(runs_url) / experiment.run_id(dataset.snapshot_id)
    records.describe_run(run, experiment, dataset, open_problem(experiment, dataset).normaliser)
    return run


@dataclass(frozen=True)
class Task(steps.Objective):
    """An experiment with its data on the training device."""

    problem: Problem
    train: Batches
    validation: Samples | None  # of the validation split; None where the version has no such case
    grid: tuple[int, ...] = ()
    anchors: Tensor | None = None
    """(L, 3), where learned anchors start; None where the model's own start stays"""

    @classmethod
    def load(cls, experiment: Experiment, dataset: Dataset, device: torch.device) -> Task:
        """Read both splits; InputError where experiment and dataset do not fit together."""
        problem, training = open_problem(experiment, dataset), experiment.training
        grid = _grid_of(experiment, dataset)
        _check_cases(dataset)
        order = BatchOrder(
            training.batch_size, training.samples_per_epoch, training.seed, *steps.rank_and_world()
        )
        train, validation = problem.training(dataset, order, device), None
        if dataset.cases("validation"):
            validation = problem.validation(dataset, training.validation_windows, device)
        anchors = anchor_start(experiment, dataset, problem.normaliser)
        return cls(problem, train, validation, grid, anchors)


def _check_cases(dataset: Dataset) -> None:
    """Raise InputError for too few cases: from a single one nothing is learned of parameters."""
    num, least = len(dataset.cases("train")), 2 if dataset.schema.parameters else 1
    if num < least:
        raise InputError(
            f"{dataset.url} {dataset.version} has {num} case{'s' * (num != 1)} to train on, a model"
            f" needs {least} at least, and some 8 for each parameter to be of use; solve more by"
            " courant generate ... --cases N, or import more"
        )


def _grid_of(experiment: Experiment, dataset: Dataset) -> tuple[int, ...]:
    """Return the cases' grid if the loss has derivatives along it; InputError without one."""
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
    """Return where learned anchors start, (L, 3) in normalised coordinates, whatever the seed.

    They are sampled from the union of the training cases' cells as anchors of one cloud are. None
    where the experiment has no learned anchors, or lets them start anywhere.
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
def place_learned_anchors(model: nn.Module, start: Tensor) -> None:
    """Put a model's learned anchors at `start` (L, 3), and those of each member of an ensemble."""
    for member in model.members if isinstance(model, Ensemble) else (model,):
        anchors = member.learned_anchors
        assert isinstance(anchors, Tensor)
        anchors.copy_(start[:, : anchors.shape[1]])


def within_budget(
    task: Task, run: RunDirectory, device: torch.device, rank: int, world: int
) -> Experiment:
    """Return the experiment with the epochs that fit its budget: those on record, or measured.

    Steps are as fast as the median of some, after as many that warm up; `Fitting.plan_again`
    follows a machine that becomes faster or slower. Validation takes at most a fifth of the time.
    """
    training, num_batches = task.experiment.training, task.train.num_batches
    assert training.budget_s is not None
    pace: dict[str, Any] = {"epochs": 0, "validations": 0, "warmup": 0}
    if steps.of_first_worker(rank == 0 and run.exists(PACE), device):
        pace = run.read_object(PACE) if rank == 0 else pace
    else:
        tried, times = Fitting(task, run, device, rank, world), list[float]()
        rate = learning_rate(training, 0, num_batches)
        for number, (_, batch) in zip(range(PACE_STEPS), task.train.epoch(1), strict=False):
            began = time.perf_counter()
            tried.step(batch, number, rate).tolist()  # which waits for a GPU
            times.append(time.perf_counter() - began)
        began = time.perf_counter()
        if task.validation is not None and rank == 0:
            tried.validate(task.validation)
        validation_s = time.perf_counter() - began
        num = min(VALIDATIONS, int(training.budget_s * VALIDATION_SHARE / validation_s))
        step_s = statistics.median(times[len(times) // 2 :])
        # Few epochs are validated once each.
        fit = training.budget_s / (step_s * num_batches + validation_s)
        if fit > num:
            fit = (training.budget_s - max(1, num) * validation_s) / (step_s * num_batches)
        epochs = min(training.epochs, max(1, int(fit)))
        warmup = training.with_epochs(epochs, num_batches).warmup_steps
        pace = {"step_s": step_s, "epochs": epochs, "validations": max(1, num), "warmup": warmup}
        if rank == 0:
            run.write_json(PACE, pace)
    names = "epochs", "validations", "warmup"
    epochs, validations, warmup = (int(steps.of_first_worker(pace[n], device)) for n in names)
    logger.info("%s: %d epochs fit %.0f s", run.url, epochs, training.budget_s)
    scaled = training.with_epochs(epochs, validations=validations).model_dump()
    return task.experiment.derive(training={**scaled, "warmup_steps": warmup})


class Fitting:
    """A run in this process's memory: the model, at first that of the newest checkpoint."""

    def __init__(
        self, task: Task, run: RunDirectory, device: torch.device, rank: int = 0, world: int = 1
    ) -> None:
        training = task.experiment.training
        self.task, self.run, self.device, self.rank, self.world = task, run, device, rank, world
        torch.manual_seed(training.seed)
        self.bare: nn.Module = build(task.experiment.model).to(device)
        if task.anchors is not None:
            place_learned_anchors(self.bare, task.anchors)
        self.model = task.trained(self.bare)  # What steps call: the bare model or a wrapper of it
        if world > 1:
            gpus = [device] if device.type == "cuda" else None
            self.model = DistributedDataParallel(self.model, device_ids=gpus)
        if training.compile:
            self.model = cast(nn.Module, torch.compile(self.model))
        graphs = steps.uses_graphs(task.experiment, device, world)
        self.optimiser = make_optimiser(self.bare, training, graphs=graphs)
        state = checkpoints.read_latest_checkpoint(run, device, self.bare)
        if state is None:
            state = checkpoints.Checkpoint.before_training(self.bare.state_dict(), PARTS)
        else:
            self.bare.load_state_dict(state.model)
            checkpoints.load_optimiser(self.optimiser, state.optimiser)
            logger.info("%s: going on after epoch %d of %d", run.url, state.epoch, training.epochs)
        self.state = state
        self.step = steps.OptimiserStep(task, self.model, self.bare, self.optimiser, world)
        self.flops_per_sample: float | None = None
        self.records = [each for each in records.read_records(run) if each.epoch <= state.epoch]
        self.trackers: Trackers | None = None

    def open(self, dataset: Dataset) -> None:
        """Write the run's description, and drop epochs that are trained again from the record."""
        experiment, train = self.task.experiment, self.task.train
        records.describe_run(self.run, experiment, dataset, self.task.problem.normaliser)
        self.run.write_json(records.ENVIRONMENT, records.environment(self.device, self.world))
        records.write_status(self.run, "running")
        records.write_records(self.run, self.records)
        self.trackers = Trackers(self.run, experiment, self.state.epoch + 1)
        an_epoch = train.num_batches * experiment.training.batch_size
        numbers = (train.num_cases, len(train.samples), an_epoch)
        where = "streamed" if train.streamed else "in memory"
        text = "%s: %d training cases, %d different samples, %d an epoch, %s, %s"
        logger.info(text, experiment.name, *numbers, where, self.device)

    def plan_again(self, asked: TrainingConfig) -> None:
        """Fit the epochs to the rest of the budget, at the pace of the latest ones.

        After a third of the budget there may only be fewer: a rate that has fallen stays low.
        """
        task, state, planned, epochs = self.task, self.state, self.task.experiment.training, 0.0
        if self.rank == 0 and (budget := planned.budget_s):
            spent = sum(seconds for part, seconds in state.seconds.items() if part != "load")
            validated = sum(each.validation_loss is not None for each in self.records)
            pace = statistics.median(each.seconds for each in self.records[-LATEST_EPOCHS:])
            pace += state.seconds["validation"] / max(1, validated) / planned.validate_every
            most = asked.epochs if spent < budget / 3 else planned.epochs
            epochs = min(most, state.epoch + max(1, int((budget - spent) / pace)))
        epochs = int(steps.of_first_worker(epochs, self.device))
        if abs(epochs - planned.epochs) > 0.1 * planned.epochs:
            asked_for = self.run.read_object(PACE)["validations"] if self.rank == 0 else 0
            validations = int(steps.of_first_worker(asked_for, self.device))
            changed = asked.with_epochs(epochs, validations=validations).model_dump()
            changed["warmup_steps"] = planned.warmup_steps
            task.problem.experiment = task.experiment.derive(training=changed)
            if self.rank == 0:
                self.run.write_json(PACE, {**self.run.read_object(PACE), "epochs": epochs})
                self.run.write_json(records.EXPERIMENT, task.experiment.model_dump(mode="json"))
                logger.info("%s: %d epochs fit the budget by now", self.run.url, epochs)

    def epoch(self, epoch: int, validate: bool) -> EpochRecord:
        task, training, state = self.task, self.task.experiment.training, self.state
        if self.flops_per_sample is None and self.rank == 0:
            _, batch = next(iter(task.train.epoch(epoch)))
            self.flops_per_sample = steps.flops_per_sample(task, batch)
        began, processor_began = time.perf_counter(), time.process_time()
        with state.timed("train"):
            train_loss, skipped, waited_s = self.train_epoch(epoch)
        seconds = time.perf_counter() - began
        processor_s = time.process_time() - processor_began
        validation_loss = validation_nmae = None
        if self.rank == 0 and validate and task.validation is not None:
            with state.timed("validation"):
                validation_loss, validation_nmae = self.validate(task.validation)
        state.epoch = epoch
        if self.rank == 0:
            # The weights of the lowest validation loss, or the latest where none is measured.
            kept = self.bare.state_dict()
            if task.validation is None:
                state.keep(kept)
            elif validation_loss is not None:
                state.keep_best(kept, validation_loss)
        spent = sum(value for part, value in state.seconds.items() if part != "load")
        samples_per_s = task.train.num_batches * training.batch_size / seconds
        last_step = epoch * task.train.num_batches - 1
        return EpochRecord(
            epoch=epoch,
            epochs=training.epochs,
            train_loss=train_loss,
            validation_loss=validation_loss,
            validation_nmae=validation_nmae,
            learning_rate=learning_rate(training, last_step, task.train.num_batches),
            seconds=seconds,
            samples_per_s=samples_per_s,
            eta_s=spent / epoch * (training.epochs - epoch),
            data_wait_share=waited_s / seconds,
            flops_per_s=self.flops_per_sample * samples_per_s if self.flops_per_sample else None,
            peak_memory_gb=peak_memory_gb(self.device),
            skipped_batches=skipped,
            processor_s=seconds if self.device.type == "cuda" else processor_s,
        )

    def train_epoch(self, epoch: int) -> tuple[float, int, float]:
        """Train on the epoch's batches.

        Returns their mean loss over all workers, the number of skipped steps, and the seconds spent
        waiting for batches.
        """
        training, num_batches = self.task.experiment.training, self.task.train.num_batches
        # Random draws inside the model depend on the epoch alone, like the samples.
        drawn = seeded(training.seed, "model", epoch, self.rank)
        torch.manual_seed(int(torch.randint(2**62, (1,), generator=drawn)))
        self.model.train()
        check_every = CHECK_EVERY if self.device.type == "cuda" else 1
        losses: list[float] = []
        unseen: list[tuple[int, Tensor, Tensor]] = []  # of each step number, samples, outcome
        waited_s, batches = 0.0, iter(self.task.train.epoch(epoch))
        for number in range((epoch - 1) * num_batches, epoch * num_batches):
            began = time.perf_counter()
            samples, batch = next(batches)
            waited_s += time.perf_counter() - began
            rate = learning_rate(training, number, num_batches)
            unseen.append((number, samples, self.step(batch, number, rate)))
            if len(unseen) < check_every and number + 1 < epoch * num_batches:
                continue
            outcomes = torch.stack([each for *_, each in unseen]).tolist()
            for (step, of_step, _), (loss, norm, taken) in zip(unseen, outcomes, strict=True):
                if taken:
                    losses.append(loss)
                elif training.nonfinite == "stop":
                    raise self.not_finite(step, loss, norm, of_step)
            unseen.clear()
        if not losses:
            raise self.not_finite(number, math.nan, math.nan, samples)
        total = torch.zeros((), device=self.device)
        for loss in losses:  # one by one in float32, as the losses came
            total += loss
        if self.world > 1:
            distributed.all_reduce(total)
        return float(total) / self.world / len(losses), num_batches - len(losses), waited_s

    def validate(self, samples: Samples) -> tuple[float, float]:
        """Compute loss and NMAE of the weights that would be kept."""
        self.bare.eval()
        predict, loss = partial(self.task.predict, self.bare), self.task.loss
        return measure(samples, self.task.problem.normaliser, predict, loss)

    def write(self, record: EpochRecord, keep: bool) -> None:
        """Write the epoch's line, then the checkpoint, whose epochs are thus all on record."""
        with self.state.timed("checkpoint"):
            self.records.append(record)
            records.write_records(self.run, self.records)
            if self.trackers is not None:
                self.trackers.epoch(record)
            if keep:
                self.state.model = self.bare.state_dict()
                self.state.optimiser = self.optimiser.state_dict()
                keep_checkpoints = self.task.experiment.training.keep_checkpoints
                checkpoints.write_checkpoint(self.run, self.state, keep_checkpoints)

    def finish(self) -> None:
        """Record the end of the last epoch; TrainingError where no validation loss was finite."""
        state = self.state
        if not state.best_epoch:
            raise TrainingError(
                "no validation loss was a finite number: look at metrics.jsonl, and at the"
                " validation cases or a lower training.learning_rate"
            )
        # A kill after the last checkpoint leaves the weights of an earlier one.
        state.write_best(self.run)
        records.write_status(
            self.run,
            "finished",
            epochs=state.epoch,
            best_epoch=state.best_epoch,
            best_loss=state.best_loss if math.isfinite(state.best_loss) else None,
            seconds=state.seconds,
            different_samples=len(self.task.train.samples),
        )
        if self.trackers is not None:
            self.trackers.end("FINISHED")

    def not_finite(self, step: int, loss: float, norm: float, samples: Tensor) -> TrainingError:
        """Put a batch whose loss or gradient is not finite on record; return the error to raise."""
        train, training = self.task.train, self.task.experiment.training
        epoch, index = divmod(step, train.num_batches)
        rate = learning_rate(training, step, train.num_batches)
        reason = f"loss {loss:g}, gradient norm {norm:g} in epoch {epoch + 1}, batch {index + 1}"
        name = f"failure-worker-{self.rank}.json"
        windows = train.describe(samples)
        self.run.write_json(name, {"reason": reason, "learning_rate": rate, "windows": windows})
        return TrainingError(
            f"training diverged: {reason}; the batch is on record in {self.run.url}/{name}; lower"
            f" training.learning_rate (now {rate:g}) or add training.warmup_steps"
        )


@torch.no_grad()
def measure(
    samples: Samples,
    normaliser: Normaliser,
    predict: Callable[[Batch], Tensor],
    loss: Callable[[Tensor, Batch], Tensor],
) -> tuple[float, float]:
    """Measure loss, averaged over samples in standardised space, and NMAE in physical units.

    NMAE is that of `courant.evaluation.metrics`: sums over all points of all samples, and the mean
    of fields with different units, without fields that are zero in all samples; where all are, it
    is the sum of the errors themselves.
    """
    num_samples, loss_sum = 0, 0.0
    fields = [channel.field for channel in normaliser.channels]
    errors, sizes = dict.fromkeys(fields, 0.0), dict.fromkeys(fields, 0.0)
    for batch in samples():
        device = batch.targets.device
        std, mean = (
            torch.tensor(values, device=device) for values in (normaliser.std, normaliser.mean)
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
            errors[field] += float(steps.masked_sum(error[..., columns], batch.query_mask))
            sizes[field] += float(steps.masked_sum(size[..., columns], batch.query_mask))
    # Nothing is relative to a field that is zero wherever it is validated.
    shares = [errors[field] / sizes[field] for field in errors if sizes[field] > 0]
    nmae = sum(shares) / len(shares) if shares else sum(errors.values())
    return loss_sum / num_samples, nmae


def peak_memory_gb(device: torch.device) -> float | None:
    """Return the peak memory of this process on the GPU, or in all; None on Windows without one."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e9
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
