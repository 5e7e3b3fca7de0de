"""Measure whether the anchors that carry most energy are those that the prediction depends on.

Anchors are taken out of the sum, or put into it, one after the other in some order. S is the set
of the first j anchors, and u - u_0 the sum of all fields:

    deletion(j)   |sum over S of delta_k|^2 / |u - u_0|^2            what is lost without them
    insertion(j)  |sum over the others of delta_k|^2 / |u - u_0|^2   what they alone do not explain

Both are relative squared errors. A decomposition that can be trusted loses much by few anchors
(large area under deletion) and is rebuilt by few (small area under insertion), compared with a
random order. All curves follow from the Gram matrix G_kl, so that no field is added up again.
Fields that cancel each other take a curve above one.
"""

from __future__ import annotations

import numpy as np


def by_energy(gram: np.ndarray) -> np.ndarray:
    """Return the numbers of the anchors, the strongest first."""
    return np.argsort(-np.diagonal(gram), kind="stable")


def deletion_curve(gram: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return the relative squared error without the first j anchors, j = 0..L: (L + 1,)."""
    ordered = gram[np.ix_(order, order)]
    # The sum over the leading j x j block, for every j.
    blocks = np.diagonal(np.cumsum(np.cumsum(ordered, axis=0), axis=1))
    return np.concatenate([[0.0], blocks]) / _whole(gram)


def insertion_curve(gram: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return the relative squared error with only the first j anchors, j = 0..L: (L + 1,)."""
    return deletion_curve(gram, order[::-1])[::-1]


def random_deletion(gram: np.ndarray) -> np.ndarray:
    """Return the mean deletion curve over all orders, exactly: (L + 1,)."""
    num, own, whole = len(gram), float(np.trace(gram)), _whole(gram)
    taken = np.arange(num + 1)
    pairs = taken * (taken - 1) / max(1, num * (num - 1))
    return (taken / num * own + pairs * (whole - own)) / whole


def random_insertion(gram: np.ndarray) -> np.ndarray:
    """Return the mean insertion curve over all orders, exactly: (L + 1,)."""
    return random_deletion(gram)[::-1]


def area(curve: np.ndarray) -> float:
    """Return the area under a curve over the share j / L of the anchors, 0 to 1."""
    return float((curve[1:] + curve[:-1]).mean() / 2)


def _whole(gram: np.ndarray) -> float:
    """Return |u - u_0|^2; ValueError where the fields add up to nothing."""
    whole = float(gram.sum())
    if whole <= 0:
        raise ValueError("the fields add up to zero: there is no prediction to take apart")
    return whole
