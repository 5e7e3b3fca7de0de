"""Gather what the panels of a report are made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from courant.analysis.case_dynamics import CaseDynamics, follow_case
from courant.analysis.case_scores import CaseScores, score_case
from courant.data.normalisation import Channel
from courant.evaluation.record import MODEL, Evaluation
from courant.prediction.surrogate import Surrogate, load
from courant.problems.transient import is_spatial
from courant.report.wording import channel_label, component_name, with_unit
from courant.runs.directory import RunDirectory
from courant.runs.record import EpochRecord, RunCourse, read_course, read_records
from simgen.errors import StoreError
from simgen.store.read import Dataset, StoredCase


@dataclass(frozen=True)
class Shown:
    """A case whose prediction is drawn: the last state of a rollout, or the one field."""

    label: str
    """`median error`"""
    case: StoredCase
    start_s: float | None
    """Start of the rollout; None in steady problems"""
    end_s: float | None

    @property
    def slug(self) -> str:
        return self.label.replace(" ", "_")


@dataclass(frozen=True)
class Context:
    """A trained run, its dataset version and its evaluation."""

    run: RunDirectory
    surrogate: Surrogate
    dataset: Dataset
    evaluation: Evaluation
    records: tuple[EpochRecord, ...]
    course: RunCourse

    @property
    def channels(self) -> tuple[Channel, ...]:
        return self.surrogate.normaliser.channels

    @cached_property
    def shown(self) -> tuple[Shown, ...]:
        """The cases of median and of largest error; of fewer than three only the latter."""
        return tuple(
            self._show(label, case) for label, case in choose_cases(self.evaluation).items()
        )

    @cached_property
    def scores(self) -> CaseScores:
        """The scores of the first shown case's decomposition; for models that decompose."""
        return score_case(self.surrogate, self.shown[0].case)

    @cached_property
    def kept(self) -> dict[str, Any]:
        """What panels have computed and share, by name."""
        return {}

    @cached_property
    def dynamics(self) -> CaseDynamics | None:
        """The rhythm of the first shown case's rollout; None where there is none."""
        return follow_case(self.surrogate, self.shown[0].case)

    def truth(self, shown: Shown) -> np.ndarray:
        """(N, C), in physical units."""
        truth = self.surrogate.problem.solution(shown.case, shown.end_s)
        if truth is None:
            raise StoreError(
                f"case {shown.case.id} has no snapshot at {shown.end_s:g} s to compare with"
            )
        return truth

    def predict(self, shown: Shown) -> np.ndarray:
        """(N, C), in physical units."""
        return self.surrogate.predict_last(shown.case, start_s=shown.start_s)

    def deviations(self, shown: Shown) -> np.ndarray:
        """(C,) standard deviations that the model predicts a case in, in physical units."""
        return np.asarray(self.surrogate.normaliser.at(shown.case.parameters).std)

    def _show(self, label: str, name: str) -> Shown:
        case = self.dataset[name]
        start = self.surrogate.problem.shown_start(case)
        times = None if start is None else self.surrogate.times(start)
        return Shown(label, case, start, None if times is None else float(times[-1]))


def open_context(
    run: RunDirectory, evaluation: Evaluation, dataset_url: str | None = None
) -> Context:
    """Load the run and open the dataset version that it was trained on.

    `dataset_url` is where that lies by now, if it was moved.
    """
    course, surrogate = read_course(run), load(run.url)
    dataset = surrogate.open_dataset(dataset_url)
    _check_fits(run, evaluation, surrogate, dataset)
    return Context(run, surrogate, dataset, evaluation, tuple(read_records(run)), course)


def _check_fits(
    run: RunDirectory, evaluation: Evaluation, surrogate: Surrogate, dataset: Dataset
) -> None:
    """Raise StoreError where the record is of another model or dataset."""
    unknown = set(evaluation.cases) - set(dataset.cases(evaluation.split))
    steps = surrogate.problem.num_steps
    if evaluation.components != surrogate.channels or evaluation.num_steps != steps or unknown:
        raise StoreError(
            f"{run.url}/evaluation.json is of another model or dataset version; remove it and"
            " evaluate again"
        )


def choose_cases(evaluation: Evaluation) -> dict[str, str]:
    """Return label -> case."""
    by_error = ranked_cases(evaluation)
    if len(by_error) < 3:
        return {"largest error" if len(by_error) > 1 else "only case": by_error[-1]}
    return {"median error": by_error[len(by_error) // 2], "largest error": by_error[-1]}


def ranked_cases(evaluation: Evaluation) -> list[str]:
    """List the ids of the cases, the best predicted first."""
    return sorted(evaluation.cases, key=lambda case: evaluation.cases[case].overall[MODEL].nmae)


@dataclass(frozen=True)
class Quantity:
    """What a picture shows: a component, or the magnitude of a vector."""

    label: str
    """`velocity x (m/s)`"""
    columns: tuple[int, ...]

    def of(self, values: np.ndarray) -> np.ndarray:
        """Return the quantity (...) of values (..., C)."""
        if len(self.columns) == 1:
            return values[..., self.columns[0]]
        return np.asarray(np.linalg.norm(values[..., list(self.columns)], axis=-1))


def quantities(channels: Sequence[Channel]) -> list[Quantity]:
    """List the magnitudes of the modelled vectors, and then all components."""
    vectors: dict[str, list[int]] = {}
    for number, channel in enumerate(channels):
        if len(channel.component) == 1 and is_spatial(channel.component):
            vectors.setdefault(channel.field, []).append(number)
    magnitudes = [
        Quantity(with_unit(f"|{component_name(name)}|", channels[columns[0]].unit), tuple(columns))
        for name, columns in vectors.items()
        if len(columns) > 1
    ]
    components = [
        Quantity(channel_label(channel), (number,)) for number, channel in enumerate(channels)
    ]
    return magnitudes + components
