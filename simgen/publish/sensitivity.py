"""Measure what a number depends on: Sobol indices over a design space, from the designs at hand.

Indices ask for thousands of values. They are those of a Gaussian process that is fitted to the
designs; where it does not predict designs that it was not fitted to, there are none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from simgen.design_space import Parameter, scaled
from simgen.quantities import StatedQuantity
from simgen.regression import Predictor, gaussian_process
from simgen.store.read import Dataset

LEAST_DESIGNS = 8
"""For each parameter"""
LEAST_FIT = 0.7
MAX_DESIGNS = 300
"""The fit's time grows with the cube of their number"""
NUM_SAMPLES = 1024
NUM_FOLDS = 5
_CHUNK = 2048


@dataclass(frozen=True)
class Sensitivity:
    """The share of a number's variance over the design space that each parameter explains."""

    first: tuple[float, ...]
    """Alone"""
    total: tuple[float, ...]
    """With all its interactions"""
    fit: float
    """R2 of the Gaussian process on designs that it was not fitted to"""


def shown_quantities(dataset: Dataset) -> tuple[StatedQuantity, ...]:
    """Return the stated quantities that some case has."""
    table = dataset.design
    return tuple(each for each in dataset.schema.quantities if table[each.name].notna().any())


def sensitivities(dataset: Dataset) -> dict[str, Sensitivity | None]:
    """Return the Sobol indices of each quantity from the solved designs; None where unknown."""
    table = dataset.design.loc[dataset.cases()]
    parameters = dataset.schema.parameters
    designs = table[[each.name for each in parameters]].to_dict("records")
    return {
        each.name: sobol_indices(parameters, designs, table[each.name].to_numpy(float))  # type: ignore[arg-type]
        for each in shown_quantities(dataset)
    }


def sobol_indices(
    parameters: Sequence[Parameter],
    designs: Sequence[Mapping[str, float]],
    values: Sequence[float] | np.ndarray,
) -> Sensitivity | None:
    """Return the indices of a number that was found for these designs; NaN ones are left out.

    None where there are fewer than 8 designs a parameter, or where a fit explains less than 0.7 of
    the variance of designs that were left out.
    """
    inputs, outputs = _usable(parameters, designs, np.asarray(values, dtype=float))
    if not parameters or len(inputs) < LEAST_DESIGNS * len(parameters) or not np.ptp(outputs):
        return None
    fit = _fit(inputs, outputs)
    if fit < LEAST_FIT:
        return None
    from scipy.stats import sobol_indices as indices_of
    from scipy.stats import uniform

    predict = gaussian_process(inputs, outputs[:, None])
    found = indices_of(
        func=lambda samples: _in_chunks(predict, samples.T)[None],
        n=NUM_SAMPLES,
        dists=[uniform(-1, 2)] * len(parameters),
        rng=np.random.default_rng(0),
    )
    first, total = (
        np.clip(np.ravel(each), 0, 1) for each in (found.first_order, found.total_order)
    )
    return Sensitivity(tuple(first.tolist()), tuple(total.tolist()), fit)


def _usable(
    parameters: Sequence[Parameter], designs: Sequence[Mapping[str, float]], values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs (n, P), each scaled to -1..1 over its range, and outputs (n,)."""
    known = np.flatnonzero(np.isfinite(values))
    if len(known) > MAX_DESIGNS:
        known = np.sort(np.random.default_rng(0).choice(known, MAX_DESIGNS, replace=False))
    inputs = [scaled(parameters, designs[row]) for row in known.tolist()]
    return np.array(inputs).reshape(len(known), len(parameters)), values[known]


def _fit(inputs: np.ndarray, outputs: np.ndarray) -> float:
    """Return R2 over designs that were left out, a fifth of them at a time."""
    order = np.random.default_rng(0).permutation(len(inputs))
    predicted = np.empty(len(inputs))
    for fold in range(NUM_FOLDS):
        out = order[fold::NUM_FOLDS]
        rest = np.setdiff1d(order, out)
        predicted[out] = gaussian_process(inputs[rest], outputs[rest, None])(inputs[out])[:, 0]
    wrong = ((predicted - outputs) ** 2).sum()
    return float(1 - wrong / ((outputs - outputs.mean()) ** 2).sum())


def _in_chunks(predict: Predictor, inputs: np.ndarray) -> np.ndarray:
    parts = [predict(inputs[begin : begin + _CHUNK]) for begin in range(0, len(inputs), _CHUNK)]
    return np.asarray(np.concatenate(parts)[:, 0])
