"""Estimate the error of the solver's own mesh in a quantity, from designs solved on several meshes.

Richardson extrapolation: a quantity on cells of size h is q(h) = q_0 + c h^p. The order p is fitted
to all designs at once, q_0 and c to each. What a design's mesh adds to a quantity is then known as
a share of it; its mean and spread over the designs give an interval for others. Roache 1994,
Perspective: A Method for Uniform Reporting of Grid Refinement Studies.

The order is known badly, and the interval hangs on it. So the interval is taken for every order
that the solutions do not contradict, and their hull is the answer.

This has nothing to do with the surrogate's error: a perfect surrogate has the solver's.
"""

from __future__ import annotations

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from scipy.stats import f as fisher
from scipy.stats import t as student

from simgen.errors import InputError

LEAST_DESIGNS = 3
LEVEL = 0.9
ORDERS = np.linspace(0.5, 4.0, 71)
#: Those of usual schemes, taken where two mesh sizes do not tell one.
USUAL_ORDERS = (1.0, 2.0)
#: Least size of a quantity relative to its size in other designs, and on other meshes: of what is
#: nearly zero, the mesh's error is no share.
LEAST_SIZE, LEAST_OF_FINEST = 0.01, 0.1


class GridError(BaseModel):
    """Where a quantity would be on an infinitely fine mesh, as a share of its value here."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    order: float
    """That fits best; the lowest of the usual ones where it is not known"""
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

    InputError for fewer than three designs, meshes of fewer than two sizes, and a quantity that is
    nearly zero for some design, or on this mesh alone.
    """
    if len(values) < LEAST_DESIGNS or len(set(sizes.tolist())) < 2:
        raise InputError(
            f"a study of the mesh needs {LEAST_DESIGNS} designs solved with two mesh sizes or more;"
            f" there are {len(values)} with {len(set(sizes.tolist()))}"
        )
    orders = _possible_orders(sizes, values)
    intervals = np.array([_interval(sizes, values, here, order) for order in orders])
    return GridError(
        order=orders[0],
        low=float(intervals[:, 0].min()),
        high=float(intervals[:, 1].max()),
        num_designs=len(values),
        sizes=tuple(sizes.tolist()),
    )


def _possible_orders(sizes: np.ndarray, values: np.ndarray) -> list[float]:
    """Return the orders that the values do not contradict, the likeliest first.

    Those within the confidence region of the fit, by the F test of one parameter.
    """
    if len(sizes) < 3:
        return list(USUAL_ORDERS)
    misfits = np.array([_misfit(sizes, values, order)[0] for order in ORDERS])
    free = len(values) * (len(sizes) - 2) - 1
    most = misfits.min() * (1 + float(fisher.ppf(LEVEL, 1, free)) / free)
    by_fit = np.argsort(misfits, kind="stable")
    return [float(ORDERS[n]) for n in by_fit if misfits[n] <= most]


def _interval(
    sizes: np.ndarray, values: np.ndarray, here: float, order: float
) -> tuple[float, float]:
    """Return the interval of another design's (fine - here) / here, for an order."""
    _, fine, slopes, rest = _misfit(sizes, values, order)
    on_this = fine + slopes * here**order
    usual, largest = np.median(np.abs(on_this)), np.abs(values).max(axis=1)
    if (np.abs(on_this) <= np.maximum(LEAST_SIZE * usual, LEAST_OF_FINEST * largest)).any():
        raise InputError(
            "it is nearly zero for some design or on some mesh, so the mesh's error is no share of"
            " it"
        )
    shares = (fine - on_this) / on_this
    noise = np.abs(rest).mean(axis=1) / np.abs(on_this)
    number = len(values)
    spread = np.hypot(shares.std(ddof=1), np.sqrt((noise**2).mean())) * np.sqrt(1 + 1 / number)
    reach = float(student.ppf((1 + LEVEL) / 2, number - 1) * spread)
    mean = float(shares.mean())
    return mean - reach, mean + reach


def _misfit(
    sizes: np.ndarray, values: np.ndarray, order: float
) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """Return the relative misfit, q_0 (D,), c (D,) and residuals (D, S) of an order."""
    terms = np.stack([np.ones_like(sizes), sizes**order], axis=1)
    (fine, slopes) = np.linalg.lstsq(terms, values.T, rcond=None)[0]
    rest = values - fine[:, None] - slopes[:, None] * sizes**order
    scale = np.maximum(np.abs(values).mean(axis=1, keepdims=True), 1e-300)
    return float(((rest / scale) ** 2).sum()), fine, slopes, rest
