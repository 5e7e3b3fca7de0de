"""What a user hands to a trained model, checked: errors in one line, warnings where the model has to extrapolate."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from courant.data.geometry import DistanceField
from courant.data.normalisation import Normaliser
from simgen.errors import InputError

BOUNDS_TOLERANCE = 0.01
"""Points may lie this share of the training domain's longest edge outside it before a warning."""
# From a check through `Surrogate.predict` to the line that called it.
_CALLER = 3


def check_array(values: Any, shape: tuple[int, ...], name: str) -> np.ndarray:
    """The values as float64 of that shape, all finite."""
    array = np.asarray(values, dtype=np.float64)
    if array.shape != shape:
        raise InputError(f"{name} has shape {array.shape}, expected {shape}")
    if not np.isfinite(array).all():
        raise InputError(f"{name} holds {np.count_nonzero(~np.isfinite(array))} values that are not finite")
    return array


def check_points(points: Any, name: str, normaliser: Normaliser) -> np.ndarray:
    """(N, 3) m; a 2D family takes (N, 2) as well. Warns of points outside the training domain."""
    values = np.asarray(points, dtype=np.float64)
    if values.ndim == 2 and values.shape[1] == 2 == normaliser.dimension:
        values = np.pad(values, ((0, 0), (0, 1)))
    values = check_array(values, (len(values) if values.ndim else 0, 3), f"{name} (x, y, z in m)")
    if len(values) == 0:
        raise InputError(f"{name}: no points")
    axes = slice(0, normaliser.dimension)
    lower, upper = np.asarray(normaliser.lower)[axes], np.asarray(normaliser.upper)[axes]
    slack = BOUNDS_TOLERANCE * 2 * normaliser.length_scale
    outside = ((values[:, axes] < lower - slack) | (values[:, axes] > upper + slack)).any(axis=1)
    if outside.any():
        warnings.warn(
            f"{outside.sum()} of {len(values)} {name} lie outside the training domain, {lower.round(3).tolist()} to "
            f"{upper.round(3).tolist()} m; predictions there are extrapolated",
            stacklevel=_CALLER,
        )
    return values


def check_distance(given: DistanceField, num_points: int, patch_kinds: Sequence[str], name: str) -> DistanceField:
    """distance (N, K) and direction (N, K, 3)."""
    shape = (num_points, len(patch_kinds))
    distance = check_array(given[0], shape, f"{name}[0] (to {', '.join(patch_kinds)}, in m)")
    return distance, check_array(given[1], (*shape, 3), f"{name}[1] (unit vectors)")


def check_parameters(values: Mapping[str, float], space: Sequence[Mapping[str, Any]], family: str) -> None:
    """Wrong names and values that are no numbers stop, values outside the design space warn.

    `space` lists the family's parameters with name, unit, low and high.
    """
    known = {parameter["name"]: parameter for parameter in space}
    unknown, missing = sorted(set(values) - set(known)), [name for name in known if name not in values]
    if unknown or missing:
        wrong = [f"unknown {', '.join(unknown)}"] * bool(unknown) + [f"missing {', '.join(missing)}"] * bool(missing)
        raise InputError(f"parameters: {' and '.join(wrong)}; {family} has {', '.join(known)}")
    for name, value in values.items():
        low, high, unit = (known[name][key] for key in ("low", "high", "unit"))
        if not np.isfinite(value):
            raise InputError(f"{name} = {value} is not a finite number")
        if not low <= value <= high:
            warnings.warn(
                f"{name} = {value:g} {unit} is outside the design space that the model was trained on, "
                f"[{low:g}, {high:g}] {unit}; the prediction is extrapolated",
                stacklevel=_CALLER,
            )
