"""Estimate the error of the solver's own mesh in a quantity, from designs solved on several meshes.

Richardson extrapolation: a quantity on cells of size h is q(h) = q_0 + c h^p. The order p is fitted
to all designs at once, q_0 and c to each. What a design's mesh adds to a quantity is then known as
a share of it; its mean and spread over the designs give an interval for others. Roache 1994,
Perspective: A Method for Uniform Reporting of Grid Refinement Studies.

This has nothing to do with the surrogate's error: a perfect surrogate has the solver's.
"""

from __future__ import annotations

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from scipy.stats import t as student

from simgen.errors import InputError

LEAST_DESIGNS = 3
LEVEL = 0.9
ORDERS = np.linspace(0.5, 4.0, 71)
#: Taken where two mesh sizes do not tell one: a low order makes a large error.
UNKNOWN_ORDER = 1.0


class GridError(BaseModel):
    """Where a quantity would be on an infinitely fine mesh, as a share of its value here."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    order: float
    low: float
    high: float
    """An interval with a probability of 90 %: (fine - here) / here"""
    num_designs: int = Field(ge=LEAST_DESIGNS)
    sizes: tuple[float, ...]

    def fine(self, value: float) -> tuple[float, float]:
        """Return the interval in which a quantity lies on an infinitely fine mesh."""
        ends = value * (1 + self.low), value * (1 + self.high)
        return min(ends), max(ends)


def fit_grid_error(sizes: np.ndarray, values: np.ndarray, here: float) -> GridError:
    """Fit to values (D, S) of designs on meshes of S sizes, for the mesh size `here`.

    InputError for fewer than three designs, or meshes of fewer than two sizes.
    """
    if len(values) < LEAST_DESIGNS or len(set(sizes.tolist())) < 2:
        raise InputError(
            f"a study of the mesh needs {LEAST_DESIGNS} designs solved with two mesh sizes or more;"
            f" there are {len(values)} with {len(set(sizes.tolist()))}"
        )
    order = UNKNOWN_ORDER
    if len(sizes) > 2:
        order = float(min(ORDERS, key=lambda each: _misfit(sizes, values, each)[0]))
    _, fine, slopes, rest = _misfit(sizes, values, order)
    on_this = fine + slopes * here**order
    shares = (fine - on_this) / on_this
    noise = np.abs(rest).mean(axis=1) / np.abs(on_this)
    number = len(values)
    spread = np.hypot(shares.std(ddof=1), np.sqrt((noise**2).mean())) * np.sqrt(1 + 1 / number)
    reach = float(student.ppf((1 + LEVEL) / 2, number - 1) * spread)
    mean = float(shares.mean())
    return GridError(
        order=order,
        low=mean - reach,
        high=mean + reach,
        num_designs=number,
        sizes=tuple(sizes.tolist()),
    )


def _misfit(
    sizes: np.ndarray, values: np.ndarray, order: float
) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """Return the relative misfit, q_0 (D,), c (D,) and residuals (D, S) of an order."""
    terms = np.stack([np.ones_like(sizes), sizes**order], axis=1)
    (fine, slopes) = np.linalg.lstsq(terms, values.T, rcond=None)[0]
    rest = values - fine[:, None] - slopes[:, None] * sizes**order
    scale = np.maximum(np.abs(values).mean(axis=1, keepdims=True), 1e-300)
    return float(((rest / scale) ** 2).sum()), fine, slopes, rest
