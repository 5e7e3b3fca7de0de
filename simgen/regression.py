"""Regress numbers on design parameters: radial basis functions, Gaussian process.

A regression takes inputs (n, d), scaled to about -1..1, and outputs (n, m), and gives a function of
further inputs (k, d). Sobol indices over the design space are those of a Gaussian process that is
fitted to the designs, where it predicts designs that it was not fitted to.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.interpolate import RBFInterpolator
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from simgen.design_space import Parameter, scaled

Predictor = Callable[[np.ndarray], np.ndarray]
Regression = Callable[[np.ndarray, np.ndarray], Predictor]

_SMOOTHING = 1e-6  # Keeps designs that are solved twice from making the interpolation singular
_LENGTHS, _NOISES = (0.1, 30.0), (1e-8, 1.0)
"""Bounds of a Gaussian process's lengths, and of its noise over the outputs' variance"""
DECADE = 10.0
"""Of values that are all positive, the greatest over the least from which they are by logarithm"""


def radial_basis(inputs: np.ndarray, outputs: np.ndarray) -> Predictor:
    """Interpolate by the distance to each data point."""
    return RBFInterpolator(inputs, outputs, kernel="linear", smoothing=_SMOOTHING)


@dataclass(frozen=True)
class GaussianProcess:
    """The mean of a Gaussian process: a function of further inputs (k, d), returning (k, m).

    Outputs that span a decade are those of a process of their logarithms.
    """

    inputs: np.ndarray
    logs: np.ndarray
    """(d + 1,) logarithms of the length of each input, and of the noise over the variance"""
    mean: np.ndarray
    scale: np.ndarray
    weights: np.ndarray
    by_logarithm: bool = False
    scatter: float = 0.0
    """Deviation that is added to its own everywhere, for what is wrong with its lengths"""

    @classmethod
    def of(
        cls, inputs: np.ndarray, outputs: np.ndarray, logs: np.ndarray, scatter: float = 0.0
    ) -> Self:
        """Condition the process of these lengths and this noise on data."""
        modelled, by_logarithm = _modelled(outputs), spans_decade(outputs)
        mean, scale = modelled.mean(0), _scale(modelled)
        noise = np.exp(logs[-1]) * np.eye(len(inputs))
        weights = np.linalg.solve(_kernel(inputs, inputs, logs) + noise, (modelled - mean) / scale)
        return cls(inputs, logs, mean, scale, weights, by_logarithm, scatter)

    def __call__(self, values: np.ndarray) -> np.ndarray:
        found = self.mean + self.scale * (_kernel(values, self.inputs, self.logs) @ self.weights)
        return np.exp(found) if self.by_logarithm else found

    def deviation(self, values: np.ndarray) -> np.ndarray:
        """Return (k, m) the standard deviation of outputs at further inputs, noise included."""
        near, noise = _kernel(values, self.inputs, self.logs), np.exp(self.logs[-1])
        whole = _kernel(self.inputs, self.inputs, self.logs) + noise * np.eye(len(self.inputs))
        known = (near * np.linalg.solve(whole, near.T).T).sum(axis=1)
        found = np.sqrt(np.maximum(1 - known, 0) + noise)[:, None] * self.scale
        found = np.hypot(found, self.scatter)
        return found * self(values) if self.by_logarithm else found


def spans_decade(values: np.ndarray) -> bool:
    """Return whether a number is regressed by its logarithm: its errors are shares of it."""
    return bool(values.min() > 0 and values.max() > DECADE * values.min())


def _modelled(outputs: np.ndarray) -> np.ndarray:
    return np.log(outputs) if spans_decade(outputs) else outputs


def gaussian_process(inputs: np.ndarray, outputs: np.ndarray) -> GaussianProcess:
    """Fit the mean of a Gaussian process with a length for each input, and noise.

    Lengths and noise have the greatest marginal likelihood, outputs weighted by their variances.
    """
    modelled = _modelled(outputs)
    spread = modelled.std(0)
    normal = (modelled - modelled.mean(0)) / _scale(modelled)
    shares = spread**2 / ((spread**2).sum() or 1.0)
    apart = (inputs[:, None] - inputs[None]) ** 2

    def loss(logs: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the negative log-likelihood and its gradient."""
        near, noise, one = _kernel(inputs, inputs, logs), np.exp(logs[-1]), np.eye(len(inputs))
        factor = cho_factor(near + noise * one, lower=True)
        solved = cho_solve(factor, normal)
        change = cho_solve(factor, one) - (solved * shares) @ solved.T
        slopes = np.einsum("ij,ijk->k", change * near, apart) / np.exp(2 * logs[:-1])
        fit = (normal * solved).sum(0) @ shares / 2 + np.log(np.diag(factor[0])).sum()
        return float(fit), np.append(slopes, noise * np.trace(change)) / 2

    bounds = [*[tuple(np.log(_LENGTHS))] * inputs.shape[1], tuple(np.log(_NOISES))]
    start = np.log([*[1.0] * inputs.shape[1], 1e-2])
    logs = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return GaussianProcess.of(inputs, outputs, logs)


def left_out(
    inputs: np.ndarray, outputs: np.ndarray, num_folds: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and deviation (n, m) of a Gaussian process that is fitted without a fold.

    At each input it is that of the other folds; of fewer inputs than folds each is left out alone.
    """
    order = np.random.default_rng(0).permutation(len(inputs))
    means, deviations = np.empty(outputs.shape), np.empty(outputs.shape)
    for fold in range(min(num_folds, len(inputs))):
        out = order[fold::num_folds]
        rest = np.setdiff1d(order, out)
        process = gaussian_process(inputs[rest], outputs[rest])
        means[out], deviations[out] = process(inputs[out]), process.deviation(inputs[out])
    return means, deviations


def _scale(outputs: np.ndarray) -> np.ndarray:
    spread = outputs.std(0)
    return np.where(spread > 0, spread, 1.0)


def _kernel(left: np.ndarray, right: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """Return the covariance exp(-r^2 / 2), r being the distance with each axis over its length."""
    lengths = np.exp(logs[:-1])
    apart = left[:, None] / lengths - right[None] / lengths
    return np.exp(-0.5 * (apart**2).sum(-1))


LEAST_DESIGNS = 8  # For each parameter
LEAST_FIT = 0.7
MAX_DESIGNS = 300  # The fit's time grows with the cube of their number
NUM_SAMPLES = 1024
NUM_FOLDS = 5
CHUNK = 2048


@dataclass(frozen=True)
class Sensitivity:
    """The share of a number's variance over the design space that each parameter explains."""

    first: tuple[float, ...]  # Alone
    total: tuple[float, ...]  # With all its interactions
    fit: float  # R2 of the Gaussian process on designs that it was not fitted to


def sobol_indices(
    parameters: Sequence[Parameter],
    designs: Sequence[Mapping[str, float]],
    values: Sequence[float] | np.ndarray,
) -> Sensitivity | None:
    """Return the indices of a number that was found for these designs; NaN ones are left out.

    None for fewer than 8 designs a parameter, or a fit with an R2 below 0.7 on designs left out.
    """
    outputs = np.asarray(values, dtype=float)
    known = np.flatnonzero(np.isfinite(outputs))
    if len(known) > MAX_DESIGNS:
        known = np.sort(np.random.default_rng(0).choice(known, MAX_DESIGNS, replace=False))
    outputs = outputs[known]
    if not parameters or len(known) < LEAST_DESIGNS * len(parameters) or not np.ptp(outputs):
        return None
    inputs = np.array([scaled(parameters, designs[row]) for row in known.tolist()])
    predicted = left_out(inputs, outputs[:, None], NUM_FOLDS)[0][:, 0]
    wrong = ((predicted - outputs) ** 2).sum()
    fit = float(1 - wrong / ((outputs - outputs.mean()) ** 2).sum())
    if fit < LEAST_FIT:
        return None
    if len(parameters) == 1:  # SciPy's indices need two
        return Sensitivity((1.0,), (1.0,), fit)
    from scipy.stats import sobol_indices as indices_of
    from scipy.stats import uniform

    predict = gaussian_process(inputs, outputs[:, None])

    def function(samples: np.ndarray) -> np.ndarray:
        """Return (1, n) for samples (P, n), in chunks to save memory."""
        chunks = np.array_split(samples.T, -(-samples.shape[1] // CHUNK))
        return np.concatenate([predict(chunk) for chunk in chunks])[:, 0][None]

    found = indices_of(
        func=function,
        n=NUM_SAMPLES,
        dists=[uniform(-1, 2)] * len(parameters),
        rng=np.random.default_rng(0),
    )
    first, total = (np.clip(np.ravel(of), 0, 1) for of in (found.first_order, found.total_order))
    return Sensitivity(tuple(first.tolist()), tuple(total.tolist()), fit)
