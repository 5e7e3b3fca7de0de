"""Find the part of the design space in which bands hold least often."""

from __future__ import annotations

from itertools import cycle, islice

import numpy as np

HALVINGS = 3


def worst_eighth(designs: np.ndarray, ratios: np.ndarray) -> float | None:
    """Return the least share of ratios <= 1 in an eighth of the designs (n, P).

    The designs are halved three times: by the parameters with the largest effect, over again where
    there are fewer. None where an eighth would have fewer than five cases, or nothing varies.
    """
    if len(designs) < 5 * 2**HALVINGS or designs.shape[1] < 1:
        return None
    upper = designs > np.median(designs, axis=0)
    effects = {
        number: abs(ratios[side].mean() - ratios[~side].mean())
        for number, side in enumerate(upper.T)
        if side.any()  # a parameter that does not vary has no halves
    }
    if not effects:
        return None
    by_effect = sorted(effects, key=effects.__getitem__, reverse=True)
    groups = [np.arange(len(designs))]
    for parameter in islice(cycle(by_effect), HALVINGS):
        groups = [half for group in groups for half in _halves(designs[:, parameter], group)]
    return float(min((ratios[group] <= 1).mean() for group in groups if len(group)))


def _halves(values: np.ndarray, group: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split the members of a group by the median of their values."""
    order = group[np.argsort(values[group], kind="stable")]
    return order[: len(order) // 2], order[len(order) // 2 :]
