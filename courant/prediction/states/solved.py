"""Read a solver's values in a model's channels from the cloud of a case."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from courant.data.trajectories import time_tolerance
from courant.prediction.predictor import Predictor
from simgen.errors import InputError
from simgen.point_cloud import PointCloud


def solution(
    surrogate: Predictor, cloud: PointCloud, times: np.ndarray | None
) -> np.ndarray | None:
    """Return the solver's values of a steady case or at all these times; None where it has none."""
    if not cloud.fields:
        return None
    if times is None:
        return _channels(surrogate, cloud.fields)
    if cloud.time is None or cloud.time[-1] < times[-1] * (1 - 1e-6):
        return None
    return np.stack([state(surrogate, cloud, at) for at in times.tolist()])


def state(surrogate: Predictor, cloud: PointCloud, at_s: float) -> np.ndarray:
    """Return (N, C) at a stored time; InputError where nothing is stored then."""
    stored = np.zeros(0) if cloud.time is None else cloud.time
    nearest = int(np.abs(stored - at_s).argmin()) if len(stored) else -1
    if nearest < 0 or abs(stored[nearest] - at_s) > time_tolerance(stored):
        raise InputError(f"the solver stores no state at {at_s:g} s")
    return _channels(surrogate, {name: values[nearest] for name, values in cloud.fields.items()})


def _channels(surrogate: Predictor, fields: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return (..., N, C), the model's channels."""
    columns = [fields[each.field][..., each.column] for each in surrogate.normaliser.channels]
    return np.stack(columns, axis=-1)
