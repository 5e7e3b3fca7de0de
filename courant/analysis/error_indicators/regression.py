"""Fit an indicator of each anchor's error, a regression on what needs no truth, and judge it.

log E_k is regressed on logarithms of V_k, S_k, the energy, the latent's distance from training
latents and its last change; on the residuals of the anchors with the nearest latents on other
validation cases; and on those of the same anchor on other validation cases. It is a ridge
regression, whose penalty is the one that does best on validation cases that are left out in turn.

The indicator is for finding where a prediction errs most, not for the size of the error: that has
its bands (`courant.prediction.bands`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from courant.analysis.decomposition.error_addresses import WORST_SHARE
from courant.analysis.error_indicators.anchor_state import AnchorState
from simgen.errors import InputError

PENALTIES = (0.1, 1.0, 10.0, 100.0, 1000.0)
COMPONENTS = 8
"""Whitened components of single anchors' latents in which distances are measured"""
NEIGHBOURS = 8
FLOOR = 1e-4
"""Numbers below this share of their mean over a prediction's anchors count as this share"""
MIN_CASES = 3
"""Validation cases below which nothing is fitted"""


@dataclass(frozen=True)
class LatentSpace:
    """Latents of single anchors on training cases, in whitened principal components."""

    mean: np.ndarray
    """(d,)"""
    components: np.ndarray
    """(K, d)"""
    known: np.ndarray
    """(n, K)"""

    @classmethod
    def of(cls, latents: np.ndarray) -> LatentSpace:
        """Fit the components to latents (n, d)."""
        mean = latents.mean(axis=0, dtype=np.float64)
        _, values, right = np.linalg.svd(latents - mean, full_matrices=False)
        size = values / np.sqrt(len(latents))
        kept = min(COMPONENTS, int((size > 1e-6 * size[0]).sum()) if size[0] else 0)
        components = right[:kept] / size[:kept, None]
        return cls(mean, components, (latents - mean) @ components.T)

    def reduced(self, latents: np.ndarray) -> np.ndarray:
        """(L, d) -> (L, K)"""
        return (latents - self.mean) @ self.components.T

    def distances(self, latents: np.ndarray) -> np.ndarray:
        """Return the distance of each latent (L, d) from the nearest known one: (L,)."""
        return np.asarray(cKDTree(self.known).query(self.reduced(latents))[0])


@dataclass(frozen=True)
class ErrorIndicator:
    """The fitted regression, with the validation predictions that it looks residuals up in."""

    space: LatentSpace | None
    states: tuple[AnchorState, ...]
    scale: np.ndarray
    """(F,) the deviation of the features within a prediction"""
    weights: np.ndarray
    """(F,) of the features, centred within a prediction and scaled"""
    level: float
    """Mean of log E_k over the validation predictions"""
    penalty: float

    def predict(self, state: AnchorState) -> np.ndarray:
        """Return what E_k is expected to be, (L,), in the units of E_k.

        The ranking is what is fitted; the level is that of the mean validation prediction.
        """
        features = _centred(features_of(state, self.states, self.space))
        return np.exp(features / self.scale @ self.weights + self.level)


def fit_indicator(
    states: Sequence[AnchorState], training_latents: np.ndarray | None = None
) -> ErrorIndicator:
    """Fit to validation predictions whose errors are known; training latents are (n, d).

    InputError for fewer than three validation cases: residuals on others could not be told apart
    from a case's own.
    """
    cases = list(dict.fromkeys(state.case for state in states))
    if len(cases) < MIN_CASES:
        raise InputError(
            f"errors without truth are learned from the validation split, which has {len(cases)}"
            f" cases; {MIN_CASES} are needed at least: generate more cases"
        )
    space = None if training_latents is None else LatentSpace.of(training_latents)
    # Within each prediction: which case errs most is no question of anchors. The mean over other
    # cases falls where a case's own errors are large, which few cases would take for a rule.
    features = [
        _centred(features_of(state, _others(states, state.case), space)) for state in states
    ]
    known = [log_floored(_known(state)) for state in states]
    targets = [_centred(each) for each in known]
    groups = np.repeat(
        [cases.index(state.case) for state in states], [len(each) for each in targets]
    )
    x, y = np.concatenate(features), np.concatenate(targets)
    scale = np.maximum(x.std(axis=0), 1e-12)
    x = x / scale
    penalty = min(PENALTIES, key=lambda each: _left_out_loss(x, y, groups, each))
    weights, _ = ridge(x, y, penalty)
    level = float(np.mean([each.mean() for each in known]))
    return ErrorIndicator(space, tuple(states), scale, weights, level, penalty)


def features_of(
    state: AnchorState, others: Sequence[AnchorState], space: LatentSpace | None
) -> np.ndarray:
    """Return features (L, F) of a prediction, whose residuals come from other cases' predictions.

    No feature looks at the prediction's own errors.
    """
    columns = [
        log_floored(state.governed),
        log_floored(state.roughness),
        log_floored(state.energies),
        np.mean([log_floored(_known(other)) for other in others], axis=0),
    ]
    if state.change is not None:
        columns.append(log_floored(state.change))
    if space is not None and state.latents is not None:
        columns.append(log_floored(space.distances(state.latents)))
        columns.append(_residuals_nearby(state, others, space))
    return np.stack(columns, axis=1)


def ridge(x: np.ndarray, y: np.ndarray, penalty: float) -> tuple[np.ndarray, float]:
    """Return weights (F,) of centred features (n, F), which are not penalised together, and y's."""
    middle, level = x.mean(axis=0), float(y.mean())
    centred = x - middle
    gram = centred.T @ centred + penalty * np.eye(x.shape[1])
    weights = np.linalg.solve(gram, centred.T @ (y - level))
    return weights, level - float(middle @ weights)


def log_floored(values: np.ndarray) -> np.ndarray:
    """Return logarithms of numbers that are not negative, none far below their mean."""
    floor = FLOOR * float(values.mean()) or 1e-300
    return np.log(np.maximum(values, floor))


def part_carried(errors: np.ndarray, ranked_by: np.ndarray, share: float = WORST_SHARE) -> float:
    """Return the part of the errors (L,) at the anchors that rank first, as `carried` does."""
    total = float(errors.sum())
    return float(errors[ranked_first(ranked_by, share)].sum()) / total if total else 0.0


def ranked_first(ranked_by: np.ndarray, share: float = WORST_SHARE) -> np.ndarray:
    """Return the numbers of the share of the anchors that rank first, at least one."""
    number = max(1, round(share * len(ranked_by)))
    return np.argsort(-ranked_by, kind="stable")[:number]


def _centred(values: np.ndarray) -> np.ndarray:
    """Return the values (L,) or (L, F) of a prediction less their mean over its anchors."""
    return np.asarray(values - values.mean(axis=0))


def _others(states: Sequence[AnchorState], case: str) -> list[AnchorState]:
    return [state for state in states if state.case != case]


def _known(state: AnchorState) -> np.ndarray:
    if state.errors is None:
        raise ValueError(f"the errors of case {state.case} are not known")
    return state.errors


def _residuals_nearby(
    state: AnchorState, others: Sequence[AnchorState], space: LatentSpace
) -> np.ndarray:
    """Return the mean of log(E_k / V_k) at the anchors with the nearest latents elsewhere: (L,)."""
    assert state.latents is not None
    known = [(other, other.latents) for other in others if other.latents is not None]
    latents = np.concatenate([space.reduced(each) for _, each in known])
    densities = np.concatenate(
        [log_floored(_known(other)) - log_floored(other.governed) for other, _ in known]
    )
    number = min(NEIGHBOURS, len(latents))
    nearest = cKDTree(latents).query(space.reduced(state.latents), k=number)[1]
    return np.asarray(densities[np.asarray(nearest).reshape(-1, number)].mean(axis=1))


def _left_out_loss(x: np.ndarray, y: np.ndarray, groups: np.ndarray, penalty: float) -> float:
    """Return the squared error of each case predicted from the others."""
    loss = 0.0
    for group in np.unique(groups):
        out = groups == group
        weights, intercept = ridge(x[~out], y[~out], penalty)
        loss += float(np.square(x[out] @ weights + intercept - y[out]).sum())
    return loss
