"""Fit the error indicator of a run on its validation cases, and judge it on its test cases.

What counts is the part of the squared error that the tenth of the anchors ranked first carries:
ranked by the indicator, by the mean E_k of the same anchor on the validation cases (the null that
knows no more than which anchors usually err), at random, and with the truth, which nothing can
beat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from courant.analysis.alike import check_alike
from courant.analysis.decomposition.error_addresses import WORST_SHARE
from courant.analysis.error_indicators.anchor_state import (
    WINDOWS,
    AnchorState,
    anchor_states,
    decoded_latents,
    rollout_starts,
)
from courant.analysis.error_indicators.regression import (
    ErrorIndicator,
    fit_indicator,
    part_carried,
    ranked_first,
)
from courant.field_model import Decomposes, Encodes
from courant.prediction.surrogate import Surrogate
from simgen.errors import InputError
from simgen.store.access.reader import Dataset
from simgen.store.access.stored_case import StoredCase

MAX_CASES = 200
"""Cases of a split that are looked at"""
MAX_LATENTS = 20_000
"""Training latents that distances are measured from"""
INDICATOR, USUAL, RANDOM, TRUTH = "the indicator", "mean on validation cases", "random", "the truth"

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class JudgedState:
    """A test prediction with its errors beside what was expected without them."""

    state: AnchorState
    expected: np.ndarray
    """(L,), in the units of E_k"""
    carried: dict[str, float]
    """The part of the squared error at the tenth of the anchors that each ranking puts first"""


@dataclass(frozen=True)
class OtherModel:
    """How the squared error of another model compares, where the indicator expects errors."""

    run: str
    at_first: float | None
    """Its squared error over this model's, where the tenth of the anchors ranked first speaks"""
    elsewhere: float | None
    """The same where all other anchors speak; None where there are none"""


@dataclass(frozen=True)
class IndicatorStudy:
    """The indicator of a run, and how well it ranks the anchors of test predictions."""

    run: str
    indicator: ErrorIndicator
    judged: tuple[JudgedState, ...]
    other: OtherModel | None = None

    @property
    def carried(self) -> dict[str, float]:
        """Return the mean part carried, by ranking."""
        names = (INDICATOR, USUAL, RANDOM, TRUTH)
        return {
            name: float(np.mean([each.carried[name] for each in self.judged])) for name in names
        }

    def to_json(self) -> dict[str, Any]:
        """Return the judgement, by prediction and in the mean."""
        return {
            "run": self.run,
            "share_of_anchors": WORST_SHARE,
            "validation_cases": len({state.case for state in self.indicator.states}),
            "penalty": self.indicator.penalty,
            "carried": self.carried,
            "other": None if self.other is None else asdict(self.other),
            "predictions": [
                {"case": each.state.case, "start_s": each.state.start_s, "carried": each.carried}
                for each in self.judged
            ],
        }


def study_errors(
    surrogate: Surrogate,
    dataset: Dataset,
    cases: Sequence[str] = (),
    progress: Progress = lambda done, total: None,
    most: int = MAX_CASES,
    other: Surrogate | None = None,
) -> IndicatorStudy:
    """Fit the indicator on validation cases, and judge it on some cases (none: the test split).

    At most so many cases of each split are looked at. With an `other` model, its errors are
    compared where this one is expected to err, and elsewhere.

    InputError for a model that does not decompose its predictions, for too few validation cases,
    and where there is nothing to judge on.
    """
    if not isinstance(surrogate.model, Decomposes):
        raise InputError(
            f"{surrogate.url}: a model of kind {surrogate.model.config.kind} does not decompose its"
            " predictions, so its errors have no addresses"
        )
    if other is not None:
        check_alike(surrogate, other)
    validation = dataset.cases("validation")[:most]
    chosen = list(cases) or dataset.cases("test")[:most]
    if not chosen:
        raise InputError(f"{dataset.url} {dataset.version} has no test case; name one by --case")
    fitted_to = set(dataset.cases("validation"))
    if fitted := [case for case in chosen if case in fitted_to]:
        raise InputError(
            f"case {fitted[0]} is of the validation split, to which the indicator is fitted: name"
            " cases of another one"
        )
    train = dataset.cases("train")[:most] if isinstance(surrogate.model, Encodes) else []
    steps = _Steps(len(train) + len(validation) + len(chosen), progress)
    known = [_training_latents(surrogate, dataset[case]) for case in steps.over(train)]
    states = [
        state
        for case in steps.over(validation)
        for state in anchor_states(surrogate, dataset[case])
        if state.errors is not None
    ]
    indicator = fit_indicator(states, _thinned(known))
    judged = [
        judge(indicator, state)
        for case in steps.over(chosen)
        for state in anchor_states(surrogate, dataset[case], other=other)
        if state.errors is not None
    ]
    if not judged:
        raise InputError("no case has a solution where its prediction ends: nothing to judge on")
    compared = None if other is None else compare(other.url, judged)
    return IndicatorStudy(surrogate.url, indicator, tuple(judged), compared)


def compare(run: str, judged: Sequence[JudgedState]) -> OtherModel:
    """Compare another model's errors with this one's, summed over the predictions."""
    sums = np.zeros((2, 2))
    for each in judged:
        assert each.state.errors is not None
        assert each.state.other_errors is not None
        first = ranked_first(each.expected)
        for row, errors in zip(sums, (each.state.errors, each.state.other_errors), strict=True):
            row += errors[first].sum(), np.delete(errors, first).sum()
    at_first, elsewhere = (
        float(theirs / ours) if ours else None for ours, theirs in zip(*sums, strict=True)
    )
    return OtherModel(run, at_first, elsewhere)


def judge(indicator: ErrorIndicator, state: AnchorState) -> JudgedState:
    """Rank the anchors of a prediction whose errors are known in every way."""
    assert state.errors is not None
    expected = indicator.predict(state)
    known = [each.errors for each in indicator.states if each.errors is not None]
    number = len(state.errors)
    return JudgedState(
        state,
        expected,
        {
            INDICATOR: part_carried(state.errors, expected),
            USUAL: part_carried(state.errors, np.mean(known, axis=0)),
            RANDOM: max(1, round(WORST_SHARE * number)) / number,
            TRUTH: part_carried(state.errors, state.errors),
        },
    )


class _Steps:
    """Count the cases that are done."""

    def __init__(self, total: int, progress: Progress) -> None:
        self._done, self._total, self._progress = 0, total, progress

    def over(self, cases: Sequence[str]) -> Iterator[str]:
        """Yield the cases, and tell after each."""
        for case in cases:
            yield case
            self._done += 1
            self._progress(self._done, self._total)


def _training_latents(surrogate: Surrogate, case: StoredCase) -> list[np.ndarray]:
    """Return latents of single anchors at the ends of some rollouts of a case, (n, d) each."""
    starts = rollout_starts(surrogate, case, WINDOWS)
    found = [decoded_latents(surrogate, case, start)[0] for start in starts]
    return [latents for latents in found if latents is not None]


def _thinned(known: Sequence[Sequence[np.ndarray]]) -> np.ndarray | None:
    """Join latents, of which every so many are kept."""
    joined = [latents for of_case in known for latents in of_case]
    if not joined:
        return None
    latents = np.concatenate(joined)
    return latents[:: -(-len(latents) // MAX_LATENTS)]
