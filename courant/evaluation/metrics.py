"""Error measures of predicted fields, summed up window by window.

    NMAE        sum |u_hat - u| / sum |u|, both sums over all windows, points and (for "all")
                components of a field
    relative L2 |u_hat - u|_2 / |u|_2 of each window and step, averaged over windows
    RAE         sum |u_hat - u| / sum |u - m|, the relative absolute error, with the same sums; m is
                the mean of each component over the training split. NMAE of a field with a large
                offset is small whatever the model knows, such as that of a temperature around
                300 K; RAE does not change with an offset, and predicting m everywhere has an RAE
                of one
    maximum     largest |u_hat - u| over largest |u|, each over all windows, steps and points

A steady case is a window of one step. Fields of different units cannot be summed: where velocity
and pressure are modelled, "all" is the mean of the fields' measures, without those that are zero
everywhere.

Points count alike, as in training, not by their cells' volumes: the fine cells around the body,
where the flow is hardest, weigh more than their share of the area. NMAE is the measure of the
paper's Tables tab:bench-unstr and tab:feature_ablation_nmae, relative L2 that of its Evaluation
protocol.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

ALL = "all"


class FieldSums(NamedTuple):
    """Sums over the points, of some components of a field, (W windows, T, C) each."""

    absolute: np.ndarray  # |u_hat - u|
    magnitude: np.ndarray  # |u|
    squared: np.ndarray
    power: np.ndarray
    worst: np.ndarray  # largest |u_hat - u|
    peak: np.ndarray  # largest |u|
    variation: np.ndarray | None  # |u - m|; None where a window was added without a mean

    def part(self, steps: slice, components: Sequence[int]) -> "FieldSums":
        """Return the sums of some steps and components."""
        of: list[Any] = [None if each is None else each[:, steps, components] for each in self]
        return FieldSums(*of)


@dataclass(frozen=True)
class Metric:
    """An error over all windows, steps and points of a field."""

    label: str
    meaning: str  # for the report; {over} is what sums are over, {sample} a window or a case
    of: Callable[[FieldSums], float | None]  # None where the sums do not give it
    in_tables: bool = True  # whether it is shown by component
    digits: int = 3


METRICS = {
    "nmae": Metric(
        "NMAE",
        "NMAE (normalised mean absolute error) is Σ|û − u| / Σ|u|, both sums over all {over}.",
        lambda sums: float(ratio(sums.absolute.sum(), sums.magnitude.sum())),
    ),
    "rae": Metric(
        "RAE",
        "RAE (relative absolute error) is Σ|û − u| / Σ|u − m|, where m is the training cases' mean"
        " of each component: it does not change with an offset, such as the 300 K of a"
        " temperature, and m everywhere has an RAE of one.",
        lambda sums: (
            None
            if sums.variation is None
            else float(ratio(sums.absolute.sum(), sums.variation.sum()))
        ),
    ),
    "relative_l2": Metric(
        "relative L2",
        "Relative L2 is |û − u|₂ / |u|₂ of each {sample}, averaged.",
        lambda sums: float(_mean_ratio(sums.squared.sum(axis=(1, 2)), sums.power.sum(axis=(1, 2)))),
    ),
    "maximum": Metric(
        "largest error",
        "",
        lambda sums: float(ratio(sums.worst.max(), sums.peak.max())),
        in_tables=False,
        digits=2,
    ),
}
"""By the name in records: the evaluation, the report and benchmarks have every one of them"""


@dataclass
class ErrorSums:
    """Errors of one predictor over many windows of T steps and C components."""

    components: Sequence[str]  # `<field>.<component>`
    windows: list[FieldSums] = field(default_factory=list)  # without the axis of windows

    def add(
        self, prediction: np.ndarray, truth: np.ndarray, mean: np.ndarray | None = None
    ) -> None:
        """Add one window: (T, N, C) each. RAE needs the training split's mean (C,) as well."""
        prediction, truth = np.asarray(prediction, np.float64), np.asarray(truth, np.float64)
        if prediction.shape != truth.shape:
            raise ValueError(f"prediction has shape {prediction.shape}, truth {truth.shape}")
        error = prediction - truth
        self.windows.append(
            FieldSums(
                absolute=np.abs(error).sum(axis=1),
                magnitude=np.abs(truth).sum(axis=1),
                squared=(error**2).sum(axis=1),
                power=(truth**2).sum(axis=1),
                worst=np.abs(error).max(axis=1),
                peak=np.abs(truth).max(axis=1),
                variation=None if mean is None else np.abs(truth - mean).sum(axis=1),
            )
        )

    def by_step(self, name: str) -> dict[str, tuple[float, ...]]:
        """Return a metric of each step, for "all" and for each component."""
        sums, metric = self._sums(), METRICS[name]
        steps = [slice(step, step + 1) for step in range(sums.absolute.shape[1])]
        return {
            component: tuple(_measure(metric, sums, self._fields(component), of) for of in steps)
            for component in (ALL, *self.components)
        }

    def total(self, component: str = ALL) -> dict[str, float]:
        """Return every metric that the sums give over all steps, of one component or of all."""
        sums, fields = self._sums(), self._fields(component)
        found = {name: _measure(metric, sums, fields) for name, metric in METRICS.items()}
        return {name: value for name, value in found.items() if value is not None}

    def _sums(self) -> FieldSums:
        stacked: list[Any] = [
            None if any(each is None for each in of) else np.stack(of)
            for of in zip(*self.windows, strict=True)
        ]
        return FieldSums(*stacked)

    def _fields(self, component: str) -> list[list[int]]:
        """Return the columns of each field's components, or of one component alone."""
        if component != ALL:
            return [[self.components.index(component)]]
        fields = [name.rpartition(".")[0] for name in self.components]
        return [[c for c, of in enumerate(fields) if of == name] for name in dict.fromkeys(fields)]


def _measure(
    metric: Metric, sums: FieldSums, fields: Sequence[list[int]], steps: slice = slice(None)
) -> Any:
    """Return a metric's mean over fields, given by their columns; None where sums do not give it.

    Fields without a size are left out of the mean: nothing is relative to one that is zero.
    """
    parts = [sums.part(steps, columns) for columns in fields]
    values: list[Any] = [metric.of(each) for each in parts]
    if None in values:
        return None
    known = [value for value, each in zip(values, parts, strict=True) if each.magnitude.sum() > 0]
    return float(np.mean(known)) if known else np.nan


def ratio(error: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Return error / size, NaN where there is no size."""
    out = np.full(np.shape(error), np.nan)
    return np.asarray(np.divide(error, size, out=out, where=np.asarray(size) > 0))


def finite_or_none(value: float) -> float | None:
    """Return a number as JSON has it: None for NaN and infinite ones."""
    return float(value) if np.isfinite(value) else None


def _mean_ratio(squared: np.ndarray, power: np.ndarray) -> np.ndarray:
    """Return the mean of sqrt(squared / power) over the windows (W, ...) with power, else NaN."""
    there = power > 0
    ratios = np.where(there, np.sqrt(ratio(squared, power)), 0.0)
    return ratio(ratios.sum(axis=0), there.sum(axis=0))
