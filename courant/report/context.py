"""What the panels of a report are made from, each computed once."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from courant.analysis.dynamics import CaseDynamics, follow_case
from courant.analysis.scores import CaseScores, score_case
from courant.data.normalisation import Channel, Normaliser
from courant.evaluation.metrics import ErrorSums
from courant.evaluation.record import MODEL, Evaluation
from courant.evaluation.references import of_designs
from courant.prediction.surrogate import FieldsOfDesign, Surrogate, load
from courant.report.page import channel_label, component_name
from courant.runs.directory import RunDirectory
from courant.runs.record import STATUS, EpochRecord, RunStatus, read_records, read_status
from simgen.design_space import with_unit
from simgen.errors import StoreError
from simgen.publish.colours import is_signed
from simgen.publish.figures import Layer, Triangles, layer
from simgen.store.read import Dataset, StoredCase

MOST_STEPS = 40


@dataclass(frozen=True)
class PlottedField:
    """What a picture shows: a component, or the magnitude of a vector."""

    label: str  # Such as `velocity x (m/s)`
    columns: tuple[int, ...]
    signed: bool  # Whether it is drawn in colours around zero
    vector: tuple[int, ...] = ()
    """All columns of the vector that it is a component of; empty for magnitudes and scalars"""

    def of(self, values: np.ndarray) -> np.ndarray:
        """Return the field (...) of values (..., C)."""
        if len(self.columns) == 1:
            return values[..., self.columns[0]]
        return np.asarray(np.linalg.norm(values[..., list(self.columns)], axis=-1))

    def is_seen(self, values: np.ndarray, drawn: np.ndarray) -> bool:
        """Return whether values (..., C) show it in some cells: across a symmetry there is none."""
        largest = np.abs(self.of(values)[..., drawn]).max()
        return not self.vector or bool(largest >= self.least(values))

    def least(self, values: np.ndarray) -> float:
        """Return the least end of a scale around zero: 5 % of the largest of values (..., C).

        Of a component they are the vector's: where it vanishes, rounding would fill the scale.
        """
        sizes = np.linalg.norm(values[..., list(self.vector or self.columns)], axis=-1)
        return 0.05 * float(sizes.max())


def plotted_fields(normaliser: Normaliser, dataset: Dataset | None) -> list[PlottedField]:
    """List the magnitudes of the modelled vectors, and then all components."""
    channels, vectors, magnitudes = normaliser.channels, normaliser.vectors, []
    for name, columns in vectors.items():
        # Of a 3D vector perhaps two components alone are modelled.
        parts = [channels[column].component for column in columns]
        of = f" of {' and '.join(parts)}" if len(parts) < normaliser.dimension else ""
        label = with_unit(f"|{component_name(name)}|{of}", channels[columns[0]].unit)
        if len(columns) > 1:
            magnitudes.append(PlottedField(label, tuple(columns), False))
    ends = normaliser.usual_ends(dataset)
    return magnitudes + [
        PlottedField(
            channel_label(each), (n,), is_signed(*ends[n]), tuple(vectors.get(each.field, ()))
        )
        for n, each in enumerate(channels)
    ]


@dataclass(frozen=True)
class ShownCase:
    """A case whose prediction is drawn: the last state of a rollout, or the one field."""

    surrogate: Surrogate
    label: str  # Such as `median error`
    case: StoredCase
    better: tuple[str, FieldsOfDesign | None] = ("", None)  # as of the context

    @cached_property
    def start_s(self) -> float | None:
        return self.surrogate.problem.start(self.case)

    @cached_property
    def end_s(self) -> float | None:
        times = None if self.start_s is None else self.surrogate.times(self.start_s)
        return None if times is None else float(times[-1])

    @property
    def by(self) -> str:
        """`prediction`, or the name of what is given in place of the network's"""
        return self.better[0] or "prediction"

    @property
    def names(self) -> dict[str, str]:
        """The names of solution and prediction in figures"""
        return {"solution": "solution", "prediction": self.by}

    @cached_property
    def nmae(self) -> float:
        """The error of what is shown, over its components."""
        sums = ErrorSums(self.surrogate.channels)
        sums.add(self.predicted[None], self.truth[None])
        return sums.total()["nmae"]

    @cached_property
    def layer(self) -> Layer:
        """What is drawn of the case."""
        return layer(self.case)

    @property
    def inside(self) -> str:
        """`, in the layer of cells at y = 0.5 m`, `, around the body`; else empty."""
        plane = self.layer
        if not isinstance(plane, Triangles):
            return ""
        of = f", in the layer of cells at {plane.plane}"
        around = "" if plane.window is None else ", around the body"
        return (of if self.case.dataset.schema.dimension == 3 else "") + around

    @cached_property
    def truth(self) -> np.ndarray:
        """(N, C), in physical units."""
        truth = self.surrogate.problem.solution(self.case, self.end_s)
        if truth is None:
            raise StoreError(f"case {self.case.id} has no snapshot at {self.end_s:g} s to compare")
        return truth

    @cached_property
    def predicted(self) -> np.ndarray:
        """(N, C), in physical units."""
        if (fields := self.better[1]) is None:
            return self.surrogate.predict_last(self.case, start_s=self.start_s)
        times = None if self.end_s is None else np.array([self.end_s])
        return fields(self.case.points, self.case.parameters, times)[-1]


@dataclass(frozen=True)
class Rollout:
    """A rollout beside the solution."""

    times: np.ndarray  # (T,) s from its start
    truth: np.ndarray  # (T, N, C), in physical units
    predicted: np.ndarray  # (T, N, C)


@dataclass(frozen=True)
class Context:
    """A trained run, its dataset version and its evaluation."""

    run: RunDirectory
    surrogate: Surrogate
    dataset: Dataset
    evaluation: Evaluation
    records: tuple[EpochRecord, ...]
    status: RunStatus | None

    @property
    def channels(self) -> tuple[Channel, ...]:
        return self.surrogate.normaliser.channels

    @property
    def plotted(self) -> list[PlottedField]:
        return plotted_fields(self.surrogate.normaliser, self.dataset)

    @cached_property
    def better(self) -> tuple[str, FieldsOfDesign | None]:
        """What `courant predict` takes in place of the network, whose fields are drawn then."""
        return of_designs(self.surrogate, self.dataset.url)

    @property
    def by(self) -> str:
        """The predictor whose fields are shown, and by whose error cases are ranked."""
        return self.better[0] or MODEL

    @cached_property
    def shown(self) -> tuple[ShownCase, ...]:
        """The cases of median and largest error; of fewer than three the latter; and an outlier."""
        ranked = self.ranked
        chosen = {"largest error" if len(ranked) > 1 else "only case": ranked[-1]}
        if len(ranked) > 2:
            chosen = {"median error": ranked[len(ranked) // 2], **chosen}
        if (outlier := self.evaluation.outlier) in self.evaluation.validation:
            chosen["far off"] = outlier
        return tuple(
            ShownCase(self.surrogate, label, self.dataset[name], self.better)
            for label, name in chosen.items()
        )

    @property
    def ranked(self) -> list[str]:
        """The ids of the cases, the best predicted first"""
        cases = self.evaluation.cases
        return sorted(cases, key=lambda case: cases[case].overall[self.by].nmae)

    @cached_property
    def rollout(self) -> Rollout | None:
        """The first shown case from its start to its end, at most 40 steps; None of steady ones."""
        surrogate, case = self.surrogate, self.shown[0].case
        start, step_s = surrogate.problem.start(case), surrogate.step_s
        if step_s is None or start is None or case.time is None:
            return None
        steps = min(MOST_STEPS, int((case.time[-1] - start) / step_s + 1e-6))
        times = surrogate.problem.times(start, steps)
        assert times is not None
        truth = surrogate.problem.solutions(case, times)
        assert truth is not None
        is_there = ~np.isnan(truth).all(axis=(1, 2))
        by = self.better[1]
        predicted = (
            surrogate.predict_case(case, start_s=start, steps=steps)
            if by is None
            else by(case.points, case.parameters, times)
        )[is_there]
        return Rollout(times[is_there] - start, truth[is_there], predicted)

    @cached_property
    def scores(self) -> CaseScores:
        """The scores of the first shown case's decomposition; for models that decompose."""
        return score_case(self.surrogate, self.shown[0].case)

    @cached_property
    def dynamics(self) -> CaseDynamics | None:
        """The rhythm of the first shown case's rollout; None where there is none."""
        return follow_case(self.surrogate, self.shown[0].case)


def open_context(
    run: RunDirectory, evaluation: Evaluation, dataset_url: str | None = None
) -> Context:
    """Load the run, and the dataset version of its training, which may lie at `dataset_url`."""
    status, surrogate = read_status(run) if run.exists(STATUS) else None, load(run.url)
    dataset = surrogate.open_dataset(dataset_url)
    return Context(run, surrogate, dataset, evaluation, tuple(read_records(run)), status)


def in_plane(channels: Sequence[Channel], axes: tuple[int, ...]) -> list[int] | None:
    """Return the numbers of the velocity's components along axes; None where one is missing."""
    numbers = {channel.name: number for number, channel in enumerate(channels)}
    wanted = [f"velocity.{'xyz'[axis]}" for axis in axes]
    return [numbers[name] for name in wanted] if set(wanted) <= set(numbers) else None
