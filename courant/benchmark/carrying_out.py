"""Carry out what a benchmark has left to do, phase by phase, with any means of training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from courant.benchmark.assess import is_assessed
from courant.benchmark.phases import (
    contender_of,
    final_trials,
    search_trials,
    seeds_of,
    speed_trials,
)
from courant.benchmark.request import Request
from courant.sweeps.sweep import Trial, TrialResult, is_done, read_result

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
