"""Run a benchmark phase by phase; each follows from the run directories that the last one left.

speed       a few batches of each model: its processor time for an epoch (where the budget is
            processor time)
search      each learning rate at a share of the budget; the lowest validation NMAE wins
final       the budget itself, with the chosen rate and each seed
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

from courant.benchmark.assess import is_assessed
from courant.benchmark.request import SEARCH_SHARE, Contender, Request
from courant.experiment import MAX_NAME, Experiment, TrainingConfig
from courant.runs.record import read_records
from courant.sweeps.search_space import Setting
from courant.sweeps.sweep import Trial, TrialResult, is_done, read_result
from simgen.errors import InputError

SPEED_EPOCHS, SPEED_BATCHES = 4, 10
"""Epochs of a speed trial, whose first does not count, and batches in each"""
VALIDATIONS = 20
"""Validations of a trial, about, whatever its number of epochs"""
LARGEST_WARM_UP = 0.1
"""Of a trial's steps"""


@dataclass(frozen=True)
class Choice:
    """A contender's learning rate, and why."""

    rate: float
    at_edge: bool
    """It is the lowest or the highest that was tried; one beyond might be better"""


def speed_trials(request: Request) -> list[Trial]:
    """Return a short training of each model; none where the budget is epochs."""
    if request.budget.unit == "epochs":
        return []
    return _numbered(
        request,
        [("speed", each, _speed(each.experiment, request.rates[0])) for each in request.contenders],
    )


def search_trials(request: Request) -> list[Trial]:
    """Return each model at each learning rate, for a share of the budget."""
    if not request.searches:
        return []
    made = []
    for each in request.contenders:
        epochs = max(1, round(SEARCH_SHARE * epochs_of(request, each)))
        samples = samples_of(request, each)
        made += [
            (f"rate {rate:g}", each, _trained(each.experiment, samples, epochs, rate))
            for rate in request.rates
        ]
    return _numbered(request, made)


def final_trials(request: Request, seeds: Mapping[str, int]) -> list[Trial]:
    """Return the trainings that count: each model with its chosen rate and its number of seeds.

    A model that failed at every rate has none.
    """
    made = []
    for each in request.contenders:
        choice = chosen_rate(request, each)
        if choice is None:
            continue
        samples = samples_of(request, each)
        trained = _trained(each.experiment, samples, epochs_of(request, each), choice.rate)
        first = trained.training.seed
        made += [
            (f"seed {seed}", each, trained.derive(training={"seed": seed}))
            for seed in range(first, first + seeds[each.name])
        ]
    return _numbered(request, made)


def epoch_seconds(request: Request, contender: Contender) -> float:
    """Return a model's processor time for an epoch, from its speed trial.

    InputError where that trial failed: the model cannot be trained here at all.
    """
    trial = _named(speed_trials(request), contender)[0]
    result = read_result(trial)
    if result.state == "failed":
        raise InputError(
            f"model {contender.name} cannot be trained on {request.dataset_url}: {result.reason};"
            " leave it out of --models"
        )
    records = read_records(trial.run)[1:]
    used = median(record.processor_s for record in records)
    training, tried = contender.experiment.training, trial.experiment.training
    samples = _samples_after(trial, training)
    batches = max(1, samples // training.batch_size)
    return used * batches / max(1, (tried.samples_per_epoch or samples) // tried.batch_size)


def samples_of(request: Request, contender: Contender) -> int | None:
    """Return the samples of an epoch; None where it is a whole pass that nothing has counted yet.

    A speed trial counts them, so they are unknown only where the budget is epochs.
    """
    training = contender.experiment.training
    if request.budget.unit == "epochs":
        return training.samples_per_epoch
    return _samples_after(_named(speed_trials(request), contender)[0], training)


def _samples_after(trial: Trial, training: TrainingConfig) -> int:
    """Return the samples of an epoch of a training whose speed trial has ended."""
    if training.samples_per_epoch is not None:
        return training.samples_per_epoch
    return int(trial.run.read_object("timings.json")["different_samples"])


def epochs_of(request: Request, contender: Contender) -> int:
    """Return the epochs of a trial that counts; InputError for a budget below one epoch."""
    speed = 1.0 if request.budget.unit == "epochs" else epoch_seconds(request, contender)
    return request.budget.epochs(contender.name, speed)


def chosen_rate(request: Request, contender: Contender) -> Choice | None:
    """Return the rate of the lowest validation NMAE; None where every rate failed."""
    if not request.searches:
        return Choice(request.rates[0], at_edge=False)
    trials = _named(search_trials(request), contender)
    found = {trial.experiment.training.learning_rate: read_result(trial) for trial in trials}
    ended = {rate: nmae for rate, each in found.items() if (nmae := _nmae(each)) is not None}
    if not ended:
        return None
    rate = min(ended, key=lambda each: ended[each])
    return Choice(rate, at_edge=rate in (request.rates[0], request.rates[-1]))


def seeds_of(request: Request, first: Mapping[str, TrialResult]) -> dict[str, int]:
    """Return each model's number of seeds, from the results of the first seed."""
    names = [each.name for each in request.contenders]
    if request.best is None:
        return dict.fromkeys(names, request.seeds)
    measured = {name: nmae for name in first if (nmae := _nmae(first[name])) is not None}
    best = sorted(measured, key=lambda name: measured[name])[: request.best]
    return {name: request.seeds if name in best else 1 for name in names}


def processor_seconds(trial: Trial) -> float:
    """Return the processor time that a trial's training took so far."""
    return sum(record.processor_s for record in read_records(trial.run))


def contender_of(trial: Trial) -> str:
    """Return the name of the contender that a trial is of."""
    return str(trial.setting["model"])


def _nmae(result: TrialResult) -> float | None:
    return None if result.state == "failed" else result.nmae


def _named(trials: list[Trial], contender: Contender) -> list[Trial]:
    return [trial for trial in trials if contender_of(trial) == contender.name]


def _numbered(request: Request, made: list[tuple[str, Contender, Experiment]]) -> list[Trial]:
    """Make trials of experiments; their run directories are named by their content."""
    trials = []
    for number, (purpose, contender, experiment) in enumerate(made, start=1):
        slug = re.sub(r"[^a-z0-9]+", "-", f"{contender.name}-{purpose}".lower()).strip("-")
        named = experiment.derive(name=slug[:MAX_NAME])
        run = request.folder / "trials" / named.run_id(request.snapshot_id)
        setting: Setting = {"model": contender.name, "trial": purpose}
        trials.append(Trial(number, setting, named, run))
    return trials


def _speed(experiment: Experiment, rate: float) -> Experiment:
    """Shorten a training to what its speed is measured by, with one validation window.

    Its rate is the lowest of those that are tried: where that diverges, all others do.
    """
    training = experiment.training
    short: dict[str, Any] = {"epochs": SPEED_EPOCHS, "validation_windows": 1, "learning_rate": rate}
    batches = SPEED_BATCHES
    if training.samples_per_epoch is not None:
        batches = min(batches, max(1, training.samples_per_epoch // training.batch_size))
    short["samples_per_epoch"] = batches * training.batch_size
    every = {"validate_every": SPEED_EPOCHS, "checkpoint_every": SPEED_EPOCHS}
    return experiment.derive(training={**short, **every})


def _trained(experiment: Experiment, samples: int | None, epochs: int, rate: float) -> Experiment:
    """Give a training its epochs and learning rate; the warm-up stays a small part of it.

    Its schedule runs over these epochs as the recipe's does over the recipe's own.
    """
    training = experiment.training
    every = max(1, round(epochs / VALIDATIONS))
    warm_up, step_epochs = training.warmup_steps, training.step_epochs
    if training.schedule == "step":
        step_epochs = max(1, round(step_epochs * epochs / training.epochs))
    if samples is not None:
        steps = epochs * max(1, samples // training.batch_size)
        warm_up = min(warm_up, int(LARGEST_WARM_UP * steps))
    return experiment.derive(
        training={
            "epochs": epochs,
            "learning_rate": rate,
            "warmup_steps": warm_up,
            "step_epochs": step_epochs,
            "validate_every": every,
            "checkpoint_every": every,
            "workers": 1,
        }
    )


OnPhase = Callable[[str, int], None]
"""Called with a phase's name and the number of its trials that are left"""


class Runner(Protocol):
    """What trains and assesses trials that are not done yet."""

    def train(self, trials: Sequence[Trial], own_processes: bool) -> None:
        """Train each to its end, or to a failure that is on record.

        With `own_processes` the peak memory of each has to be its own: it is on the table.
        """

    def assess(self, trials: Sequence[Trial]) -> None:
        """Measure test errors and prediction times of trained trials."""


def carry_out(request: Request, runner: Runner, on_phase: OnPhase) -> list[Trial]:
    """Train and assess whatever is not on record; return the trials that count."""

    def train(phase: str, trials: Sequence[Trial], counts: bool) -> Mapping[str, TrialResult]:
        waiting = [trial for trial in trials if not is_done(read_result(trial), False)]
        if waiting:
            on_phase(phase, len(waiting))
            runner.train(waiting, own_processes=counts)
        return {contender_of(trial): read_result(trial) for trial in trials}

    train("speed", speed_trials(request), counts=False)
    train("search", search_trials(request), counts=False)
    one_each = {each.name: 1 for each in request.contenders}
    first = train("first seed", final_trials(request, one_each), counts=True)
    trials = final_trials(request, seeds_of(request, first))
    train("further seeds", trials, counts=True)
    finished = [trial for trial in trials if read_result(trial).state == "finished"]
    waiting = [trial for trial in finished if not is_assessed(trial.run)]
    if waiting:
        on_phase("test errors", len(waiting))
        runner.assess(waiting)
    return trials


class _LeftError(Exception):
    """Something is left to do."""


class _Looking:
    """Trains and assesses nothing."""

    def train(self, trials: Sequence[Trial], own_processes: bool) -> None:
        raise _LeftError

    def assess(self, trials: Sequence[Trial]) -> None:
        raise _LeftError


def trials_on_record(request: Request) -> list[Trial] | None:
    """Return the trials that count where nothing is left to do; None otherwise."""
    try:
        return carry_out(request, _Looking(), lambda phase, num: None)
    except _LeftError:
        return None
