"""Find the case whose design is nearest to another's, and carry its fields over."""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from simgen.store.read import Dataset, StoredCase


def nearest_design(dataset: Dataset, case: StoredCase) -> StoredCase | None:
    """Return the other case of the version, of any split, whose parameters are nearest.

    Each parameter is taken over its range among the cases. None where there is no other case, or
    where no parameter tells cases apart.
    """
    others = [name for name in dataset.cases() if name != case.id]
    names = list(case.parameters)
    if not others or not names:
        return None
    designs = np.array([[dataset[each].parameters[name] for name in names] for each in others])
    own = np.array([case.parameters[name] for name in names])
    span = np.ptp(np.vstack([designs, own]), axis=0)
    if not span.any():
        return None
    away = np.square((designs - own)[:, span > 0] / span[span > 0]).sum(axis=1)
    return dataset[others[int(np.argmin(away))]]


def carried_cells(case: StoredCase, points: np.ndarray) -> np.ndarray:
    """Return the case's cell nearest to each of some points (M, d), (M,)."""
    return np.asarray(cKDTree(case.points).query(points)[1])
