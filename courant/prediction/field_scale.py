"""Say where in a field a prediction errs more: a scale of error at each point, without truth.

A band of equal width everywhere is as wide as the worst place needs. Errors are largest where the
prediction changes most over a cell's neighbours, and where its values are large. A weighted sum of
these, with weights that are not negative, is fitted to absolute errors on validation cases; in
rollouts it grows with the step as errors do. Everything is in the model's normalised units.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator
from scipy.optimize import nnls
from scipy.spatial import cKDTree

NEIGHBOURS = 8
NUM_FEATURES = 4
#: The least scale anywhere, over the mean absolute error: elsewhere a band could shrink to nothing.
FLOOR = 0.2
MAX_FITTED = 200_000
_ROUNDS = 4


class Predicted(NamedTuple):
    """A prediction on N points, and its absolute errors."""

    points: np.ndarray
    """(N, d)"""
    values: np.ndarray
    """(T, N, C)"""
    errors: np.ndarray
    """(T, N, C)"""


class FieldScale(BaseModel):
    """The fitted scale: weights (C, F) of the features, floors (C,) and growth (T,)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    weights: tuple[tuple[float, ...], ...] = Field(min_length=1, max_length=1000)
    floors: tuple[float, ...]
    growth: tuple[float, ...] = Field(min_length=1, max_length=100_000)

    @model_validator(mode="after")
    def _fits(self) -> FieldScale:
        sizes = {len(row) for row in self.weights}
        if sizes != {NUM_FEATURES} or len(self.floors) != len(self.weights):
            raise ValueError("its weights do not fit its features and channels")
        if min(map(min, self.weights)) < 0 or min(self.floors) <= 0 or min(self.growth) <= 0:
            raise ValueError("its weights, floors and growth must not be negative")
        return self

    def at(self, points: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return (T, N, C) for a prediction (T, N, C), at most as many steps as were fitted."""
        scales = np.stack(
            [
                state @ weights
                for state, weights in zip(
                    _by_channel(points, values), np.asarray(self.weights), strict=True
                )
            ],
            axis=-1,
        )
        scales = np.maximum(scales, np.asarray(self.floors))
        return scales * np.asarray(self.growth)[: len(values), None, None]


def fit_scale(predicted: Sequence[Predicted]) -> FieldScale:
    """Fit the scale to the errors of some predictions of equally many steps."""
    num_channels = predicted[0].values.shape[-1]
    each = max(1, MAX_FITTED // len(predicted))
    features, errors = zip(*(_sampled(one, each) for one in predicted), strict=True)
    size = np.concatenate(errors, axis=1).mean(axis=(0, 1))  # of each channel
    floors = np.where(size > 0, FLOOR * size, 1e-12)
    weights = [
        _weights(
            np.concatenate([each[..., c, :].reshape(-1, NUM_FEATURES) for each in features]),
            np.concatenate([each[..., c].reshape(-1) for each in errors]),
            float(floors[c]),
        )
        for c in range(num_channels)
    ]
    flat = FieldScale(
        weights=tuple(map(tuple, weights)),
        floors=tuple(floors.tolist()),
        growth=(1.0,) * len(predicted[0].values),
    )
    of_step = sum(
        (one.errors / flat.at(one.points, one.values)).mean(axis=(1, 2)) for one in predicted
    ) / len(predicted)
    growth = np.maximum(of_step, 1e-6 * max(float(np.max(of_step)), 1e-300))
    return flat.model_copy(update={"growth": tuple(growth.tolist())})


def _sampled(one: Predicted, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features (T, n, C, F) and errors (T, n, C) at some points."""
    features = np.stack(list(_by_channel(one.points, one.values)), axis=2)
    kept = max(1, most // len(one.values))
    chosen = np.random.default_rng(0).permutation(len(one.points))[:kept]
    return features[:, chosen], one.errors[:, chosen]


def neighbour_variation(points: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the deviation of values (T, N, C) over each point and its neighbours: (T, N, C)."""
    near = cKDTree(points).query(points, min(NEIGHBOURS, len(points)))[1].reshape(len(points), -1)
    return np.stack([state[near].std(axis=1) for state in values])


def _by_channel(points: np.ndarray, values: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the features (T, N, F) of each channel."""
    variation = neighbour_variation(points, values)
    overall = np.sqrt((variation**2).mean(axis=-1))
    ones = np.ones_like(overall)
    for c in range(values.shape[-1]):
        yield np.stack([ones, variation[..., c], overall, np.abs(values[..., c])], axis=-1)


def _weights(features: np.ndarray, errors: np.ndarray, floor: float) -> np.ndarray:
    """Fit weights; each error counts by its relative deviation from the scale."""
    scale = np.full(len(errors), max(float(errors.mean()), floor))
    weights = np.zeros(NUM_FEATURES)
    for _ in range(_ROUNDS):
        weights = nnls(features / scale[:, None], errors / scale)[0]
        scale = np.maximum(features @ weights, floor)
    return weights
