"""Regress the scalar figures of cases on their design parameters alone: the null of a network.

A case's figures, such as the head of a pump, are in its provenance. Few smooth numbers of few
parameters are easily regressed: on a well-known drag benchmark least squares reaches an R2 of 0.97.
A network whose fields give a figure less well than this has learned nothing of use about it.

    for row in regress_figures(simgen.open_dataset("STORE/centrifugal-pump")):
        print(row.figure, row.regression, row.r2)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simgen.design_space import scaled
from simgen.errors import InputError
from simgen.regression import GaussianProcess, Regression, gaussian_process, least_squares

if TYPE_CHECKING:
    from simgen.store.read import Dataset

REGRESSIONS: dict[str, Regression] = {
    "least squares": least_squares,
    "Gaussian process": gaussian_process,
}
_LEAST_SPREAD = 1e-9
"""Standard deviation of a figure over its size, below which it is the same for all designs"""


@dataclass(frozen=True)
class FigureScore:
    """How well a regression predicts one figure of the cases of a split."""

    figure: str
    regression: str
    r2: float
    """1 - squared error over that of the split's own mean; negative is worse than that mean, nan is
    a split whose cases share one value
    """
    nmae: float
    """Sum of absolute errors over the sum of absolute values; nan where these are all zero"""
    num_train: int
    num_cases: int


def regress_figures(dataset: Dataset, split: str = "test") -> list[FigureScore]:
    """Predict every figure of a split's cases from the training cases, by each regression.

    Figures that a case lacks, or that do not vary over the training cases, are left out.
    InputError where there are no design parameters, or too few cases.
    """
    train, cases = dataset.cases("train"), dataset.cases(split)
    if not dataset.schema.parameters:
        raise InputError(f"{dataset.url} has no design parameters to regress figures on")
    if len(train) < 2 or len(cases) < 2:
        raise InputError(
            f"{dataset.url} {dataset.version} has {len(train)} training and {len(cases)} {split}"
            " cases, two each are needed; generate more cases"
        )
    names, known, truth = _figures(dataset, train, cases)
    if not names:
        return []
    scores = []
    for regression, fit in REGRESSIONS.items():
        for column, name in enumerate(names):
            values = known[:, column : column + 1]
            predict = fit(scaled_designs(dataset, train), values)
            predicted = predict(scaled_designs(dataset, cases))[:, 0]
            r2, nmae = _errors(predicted, truth[:, column])
            scores.append(FigureScore(name, regression, r2, nmae, len(train), len(cases)))
    return scores


def _figures(
    dataset: Dataset, train: Sequence[str], cases: Sequence[str]
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return names, and values of the training cases and of the others, (cases, figures)."""
    stored = {case: dataset[case].provenance.get("figures", {}) for case in (*train, *cases)}
    shared = set.intersection(*(set(each) for each in stored.values()))
    tables = {
        name: np.array([stored[case][name] for case in (*train, *cases)], dtype=float)
        for name in sorted(shared)
    }
    kept = [
        name
        for name, values in tables.items()
        if np.isfinite(values).all()
        and values[: len(train)].std() > _LEAST_SPREAD * np.abs(values).max()
    ]
    values = np.stack([tables[name] for name in kept], axis=1) if kept else np.zeros((0, 0))
    return kept, values[: len(train)], values[len(train) :]


def fit_quantity(designs: np.ndarray, values: np.ndarray) -> GaussianProcess | None:
    """Fit values (n,) to scaled designs (n, P); NaN values are left out.

    None where too few are left, where there are no parameters, or all values are the same.
    """
    usable = np.isfinite(values)
    known = values[usable]
    if usable.sum() < designs.shape[1] + 2 or not designs.shape[1] or not known.std():
        return None
    return gaussian_process(designs[usable], known[:, None])


def scaled_designs(dataset: Dataset, cases: Sequence[str]) -> np.ndarray:
    """Return (cases, P) design parameters, each scaled to -1..1 over its range."""
    parameters = dataset.schema.parameters
    return np.array([scaled(parameters, dataset[case].parameters) for case in cases])


def _errors(predicted: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    wrong = predicted - truth
    spread = ((truth - truth.mean()) ** 2).sum()
    r2 = 1 - (wrong**2).sum() / spread if spread else float("nan")
    size = np.abs(truth).sum()
    return float(r2), float(np.abs(wrong).sum() / size) if size else float("nan")
