"""Regress numbers on design parameters: least squares, radial basis functions, Gaussian process.

A regression takes inputs (n, d), scaled to about -1..1, and outputs (n, m), and gives a function of
further inputs (k, d).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.interpolate import RBFInterpolator
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

Predictor = Callable[[np.ndarray], np.ndarray]
Regression = Callable[[np.ndarray, np.ndarray], Predictor]

_SMOOTHING = 1e-6
"""Keeps designs that are solved twice from making the interpolation singular"""
_LENGTHS, _NOISES = (0.1, 30.0), (1e-8, 1.0)
"""Bounds of a Gaussian process's lengths, and of its noise over the outputs' variance"""


def least_squares(inputs: np.ndarray, outputs: np.ndarray) -> Predictor:
    """Fit a constant, the inputs and their squares; without squares where data are few."""
    has_squares = len(inputs) > 2 * inputs.shape[1] + 1

    def terms(values: np.ndarray) -> np.ndarray:
        squares = [values**2] if has_squares else []
        return np.concatenate([np.ones((len(values), 1)), values, *squares], axis=1)

    coefficients = np.linalg.lstsq(terms(inputs), outputs, rcond=None)[0]
    return lambda values: terms(values) @ coefficients


def radial_basis(inputs: np.ndarray, outputs: np.ndarray) -> Predictor:
    """Interpolate by the distance to each data point."""
    return RBFInterpolator(inputs, outputs, kernel="linear", smoothing=_SMOOTHING)


@dataclass(frozen=True)
class GaussianProcess:
    """The mean of a Gaussian process: a function of further inputs (k, d), returning (k, m)."""

    inputs: np.ndarray
    logs: np.ndarray
    """(d + 1,) logarithms of the length of each input, and of the noise over the variance"""
    mean: np.ndarray
    scale: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(cls, inputs: np.ndarray, outputs: np.ndarray, logs: np.ndarray) -> GaussianProcess:
        """Condition the process of these lengths and this noise on data."""
        mean, scale = outputs.mean(0), _scale(outputs)
        covariance = _covariance(inputs, inputs, logs) + _noise(inputs, logs)
        weights = np.linalg.solve(covariance, (outputs - mean) / scale)
        return cls(inputs, logs, mean, scale, weights)

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return self.mean + self.scale * (_covariance(values, self.inputs, self.logs) @ self.weights)


def gaussian_process(inputs: np.ndarray, outputs: np.ndarray) -> GaussianProcess:
    """Fit the mean of a Gaussian process with a length for each input, and noise.

    Lengths and noise are those of greatest marginal likelihood. All outputs share them, each
    counting by its variance: of POD coefficients the first matter most.
    """
    spread = outputs.std(0)
    normal = (outputs - outputs.mean(0)) / _scale(outputs)
    shares = spread**2 / ((spread**2).sum() or 1.0)

    def loss(logs: np.ndarray) -> float:
        factor = cho_factor(_covariance(inputs, inputs, logs) + _noise(inputs, logs), lower=True)
        fit = (normal * cho_solve(factor, normal)).sum(0) @ shares
        return float(fit / 2 + np.log(np.diag(factor[0])).sum())

    bounds = [*[tuple(np.log(_LENGTHS))] * inputs.shape[1], tuple(np.log(_NOISES))]
    start = np.log([*[1.0] * inputs.shape[1], 1e-2])
    logs = minimize(loss, start, method="L-BFGS-B", bounds=bounds).x
    return GaussianProcess.of(inputs, outputs, logs)


def _scale(outputs: np.ndarray) -> np.ndarray:
    spread = outputs.std(0)
    return np.where(spread > 0, spread, 1.0)


def _covariance(left: np.ndarray, right: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """Return exp(-r^2 / 2), r being the distance with each axis over its length."""
    lengths = np.exp(logs[:-1])
    apart = left[:, None] / lengths - right[None] / lengths
    return np.exp(-0.5 * (apart**2).sum(-1))


def _noise(inputs: np.ndarray, logs: np.ndarray) -> np.ndarray:
    return np.exp(logs[-1]) * np.eye(len(inputs))
