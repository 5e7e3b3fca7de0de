"""Watch a rollout from its latents alone: has it left the dynamics that the model was trained on?

The departure at a step is the largest of three numbers, each over its 99 % quantile along training
rollouts, divided by a limit; docs/analysis.md defines them. T and Q (Jackson and Mudholkar 1979,
Control procedures for residuals) are those of the pooled latents, the mean and the deviation over
anchors; G is the logarithm of their change in a step, over its usual one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from courant.experiment import Frozen
from courant.prediction.bands import conformal_quantile, least_cases, pooled, whitening
from simgen.errors import InputError

#: Share of healthy rollouts that are flagged, and the quantile along training rollouts.
FALSE_ALARMS, USUAL = 0.05, 0.99
LEAST_CHANGE = 1e-12


class Monitor(Frozen):
    """The usual statistics along rollouts of a model; vectors are of pooled latents (2 d,)."""

    weights: str = ""  # Digest of the weights that were calibrated
    version: str = ""  # Of the dataset
    horizon: int = Field(ge=1)  # Steps of the rollouts that it was calibrated on
    rollouts: int = Field(ge=1)
    mean: tuple[float, ...]
    components: tuple[tuple[float, ...], ...]  # Whitening ones, (K, 2 d)
    distance: float = Field(gt=0)
    outside: float = Field(gt=0)
    change: float  # The median logarithm of the change in a step
    change_spread: float = Field(gt=0)
    limit: float = Field(gt=0)

    def quality(self, latents: np.ndarray) -> np.ndarray:
        """Return a rollout's departure (T,) by step, from latents (T + 1, L, d) from Z(0) on."""
        components = np.asarray(self.components).reshape(-1, len(self.mean))
        distance, outside, change = _statistics(latents, np.asarray(self.mean), components)
        moved = np.abs(change - self.change) / self.change_spread
        found = np.maximum.reduce([distance / self.distance, outside / self.outside, moved])
        # Latents that are not finite are as unusual as can be; NaN would raise no flag.
        return np.where(np.isfinite(found), found, np.inf) / self.limit


@dataclass(frozen=True)
class RolloutQuality:
    """The quality of a rollout of T steps."""

    departure: np.ndarray  # (T,); below one is usual
    horizon: int  # Steps for which one in twenty healthy rollouts is flagged

    @property
    def flagged_at(self) -> int | None:
        """The first step (from 1) with a departure of one or more; None where all is usual."""
        raised = np.flatnonzero(self.departure >= 1)
        return int(raised[0]) + 1 if len(raised) else None


def fit_monitor(training: Sequence[np.ndarray], validation: Sequence[np.ndarray]) -> Monitor:
    """Fit the statistics to training rollouts, the limit to validation rollouts of equal length.

    Each is latents (T + 1, L, d) from Z(0) on. InputError for fewer validation rollouts than the
    limit needs, and for latents that are not finite.
    """
    needed = least_cases(1 - FALSE_ALARMS)
    if len(validation) < needed:
        raise InputError(
            f"a monitor with {FALSE_ALARMS:.0%} false alarms needs {needed} validation rollouts,"
            f" there are {len(validation)}: generate more or longer cases"
        )
    mean, components = whitening(np.concatenate([pooled(latents[1:]) for latents in training]))
    rows = [_statistics(latents, mean, components) for latents in training]
    distance, outside, change = (np.concatenate(each) for each in zip(*rows, strict=True))
    middle = float(np.median(change))
    spreads = (distance, outside, np.abs(change - middle))
    usual = [max(float(np.quantile(numbers, USUAL)), 1e-9) for numbers in spreads]
    unscaled = Monitor(
        horizon=len(validation[0]) - 1,
        rollouts=len(validation),
        mean=tuple(mean.tolist()),
        components=tuple(map(tuple, components.tolist())),
        distance=usual[0],
        outside=usual[1],
        change=middle,
        change_spread=usual[2],
        limit=1.0,
    )
    highest = np.array([unscaled.quality(latents).max() for latents in validation])
    limit = conformal_quantile(highest, 1 - FALSE_ALARMS)
    if not np.isfinite(limit):
        raise InputError(
            f"{np.count_nonzero(~np.isfinite(highest))} of {len(highest)} validation rollouts have"
            " latents that are not finite: a monitor needs a model whose rollouts stay finite"
        )
    return unscaled.model_copy(update={"limit": max(limit, 1e-12)})


def _statistics(
    latents: np.ndarray, mean: np.ndarray, components: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return distance, part outside the components, and log change after each step, (T,) each."""
    centred = pooled(latents[1:]) - mean
    directions = components / np.linalg.norm(components, axis=1, keepdims=True)
    within = centred @ directions.T @ directions
    steps = np.diff(latents.astype(np.float64), axis=0)
    moved = np.sqrt(np.square(steps).sum(axis=-1).mean(axis=-1))
    distance = np.linalg.norm(centred @ components.T, axis=1)
    outside = np.linalg.norm(centred - within, axis=1)
    return distance, outside, np.log(np.maximum(moved, LEAST_CHANGE))
