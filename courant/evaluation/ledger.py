"""Compare the cost of a surrogate with the savings of its predictions: when does it break even?

Costs are the solves that training needed (training and validation designs, and those that were
rejected or failed on the way), the training, and the search for its settings. A prediction saves
the solver's time for the same span, less its own. All are core-seconds: CPU seconds of training,
prediction and the solver, wall time times cores of meshing and of solvers that print no CPU
seconds. Meshing is not saved, since a prediction wants points as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import stdtrit

from simgen.provenance import core_seconds

if TYPE_CHECKING:
    from courant.problems import Problem
    from simgen.store.read import Dataset

COVERAGE = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean with its interval: 95 %, by Student's distribution of few values."""

    mean: float
    half_width: float | None  # None for a single value, which has no spread
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """Return the interval of the values' mean."""
        mean, count = float(np.mean(values)), len(values)
        if count < 2:
            return cls(mean, None, count)
        quantile = float(stdtrit(count - 1, (1 + COVERAGE) / 2))
        return cls(mean, quantile * float(np.std(values, ddof=1)) / math.sqrt(count), count)

    @property
    def low(self) -> float:
        return self.mean - (self.half_width or 0.0)

    @property
    def high(self) -> float:
        return self.mean + (self.half_width or 0.0)

    def text(self, digits: int = 3) -> str:
        """`0.123 ± 0.004`, to so many significant digits of the mean."""
        if self.half_width is None or not math.isfinite(self.mean):
            return f"{self.mean:.{digits}g}"
        size = math.floor(math.log10(abs(self.mean))) if self.mean else 0
        places = max(0, digits - 1 - size)
        return f"{self.mean:.{places}f} ± {self.half_width:.{places}f}"


@dataclass(frozen=True)
class SolverTimes:
    """The times of a dataset's solves on record, in core-seconds."""

    num_solved: int  # designs that training needed, with rejected and failed ones
    spent_s: float | None  # meshing and solving them; None where no case records it
    per_prediction: Interval | None  # the solver's for the span of one; None without a record


@dataclass(frozen=True)
class BreakEven:
    """Predictions after which the surrogate has saved what it cost; inf where it never does."""

    expected: float
    low: float
    high: float

    def text(self) -> str:
        """`120 (110 to 135)`, or `never`."""
        expected, low, high = (
            "never" if math.isinf(each) else f"{each:,.0f}"
            for each in (self.expected, self.low, self.high)
        )
        return expected if expected == "never" or low == high else f"{expected} ({low} to {high})"


@dataclass(frozen=True)
class Ledger:
    """The cost of one surrogate, and its savings."""

    solver: SolverTimes
    training: Interval
    tuning_s: float | None  # None where it is not on record
    prediction_s: float

    @property
    def spent_s(self) -> float:
        return (self.solver.spent_s or 0.0) + self.training.mean + (self.tuning_s or 0.0)

    @property
    def saved_s(self) -> float | None:
        """Savings of a prediction; None where the solver's time is not on record."""
        per = self.solver.per_prediction
        return None if per is None else per.mean - self.prediction_s

    @property
    def break_even(self) -> BreakEven | None:
        """The number of predictions; None where the solver's times are not on record.

        Its interval takes those of training and of the solver's time at their worst together.
        """
        per = self.solver.per_prediction
        if per is None or self.solver.spent_s is None:
            return None

        def number(spent: float, solver_s: float) -> float:
            saved = solver_s - self.prediction_s
            return math.ceil(max(0.0, spent) / saved) if saved > 0 else math.inf

        spread = self.training.half_width or 0.0
        return BreakEven(
            expected=number(self.spent_s, per.mean),
            low=number(self.spent_s - spread, per.high),
            high=number(self.spent_s + spread, per.low),
        )


def solver_times(dataset: Dataset, problem: Problem, cases: Sequence[str]) -> SolverTimes:
    """Read the times of solving from the records; `cases` are those that are predicted.

    Training needed the designs of its two splits. A rejected or failed design counts unless it was
    solved for another split. A design without times counts like the mean of the others.
    """
    splits = ("train", "validation")
    training = {case for split in splits for case in dataset.cases(split)}
    accepted = set(dataset.cases())
    needed = [
        case
        for case in dataset.design.index
        if case in training
        or (case not in accepted and dataset[case].stated_split in (None, *splits))
    ]
    spent = [core_seconds(dataset[case].provenance, ("mesh", "solve")) for case in needed]
    known = [seconds for seconds in spent if seconds is not None]
    saved = [
        solve * share
        for case in map(dataset.__getitem__, cases)
        if (solve := core_seconds(case.provenance, ("solve",))) is not None
        and (share := problem.share_of_solve(case))
    ]
    return SolverTimes(
        num_solved=len(needed),
        spent_s=len(needed) * sum(known) / len(known) if known else None,
        per_prediction=Interval.of(saved) if saved else None,
    )
