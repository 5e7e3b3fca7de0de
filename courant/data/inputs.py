"""Check what a user hands to a trained model: one-line errors, and warnings of extrapolation."""

from __future__ import annotations

import inspect
import numbers
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from courant.data.geometry import DistanceField
from courant.data.known import BoundaryConditions, keep_prescribed
from courant.data.normalisation import Normaliser
from courant.data_config import SteadyData
from simgen.errors import InputError

BOUNDS_TOLERANCE = 0.02
"""Points may lie outside the training domain by this share of its longest edge before a warning.

The domain is that of cell centres; faces of a boundary lie half a cell outside of it.
"""


def _to_the_caller() -> int:
    """Return the `stacklevel` of the first line outside this package."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("courant."):
        level, frame = level + 1, frame.f_back
    return level - 1


_collected: ContextVar[list[str] | None] = ContextVar("collected", default=None)


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect the warnings of this thread or task in a list, instead of issuing them.

    Python's own `catch_warnings` is of the whole process: in a server it would take the warnings of
    other requests.
    """
    told: list[str] = []
    token = _collected.set(told)
    try:
        yield told
    finally:
        _collected.reset(token)


def tell_caller(message: str) -> None:
    """Warn at the first line outside this package, or into the list that collects warnings."""
    told = _collected.get()
    if told is None:
        warnings.warn(message, stacklevel=_to_the_caller())
    else:
        told.append(message)


def check_array(values: Any, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Return the values as float64; raise InputError unless they have that shape and are finite."""
    array = as_numbers(values, name)
    if array.shape != shape:
        raise InputError(f"{name} has shape {array.shape}, expected {shape}")
    if not np.isfinite(array).all():
        raise InputError(
            f"{name} holds {np.count_nonzero(~np.isfinite(array))} values that are not finite"
        )
    return array


def as_numbers(values: Any, name: str) -> np.ndarray:
    """Return the values as float64; raise InputError unless they are an array of numbers."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"{name} is no array of numbers with rows of the same length") from error


def check_points(points: Any, name: str, normaliser: Normaliser) -> np.ndarray:
    """Return (N, 3) m; a 2D family also takes (N, 2), a 1D one (N, 1).

    Warns of points outside the training domain.
    """
    values = as_numbers(points, name)
    if values.ndim == 2 and values.shape[1] == normaliser.dimension:
        values = np.pad(values, ((0, 0), (0, 3 - normaliser.dimension)))
    values = check_array(values, (len(values) if values.ndim else 0, 3), f"{name} (x, y, z in m)")
    if len(values) == 0:
        raise InputError(f"{name}: no points")
    axes = slice(0, normaliser.dimension)
    lower, upper = np.asarray(normaliser.lower)[axes], np.asarray(normaliser.upper)[axes]
    slack = BOUNDS_TOLERANCE * 2 * normaliser.length_scale
    outside = ((values[:, axes] < lower - slack) | (values[:, axes] > upper + slack)).any(axis=1)
    if outside.any():
        tell_caller(
            f"{outside.sum()} of {len(values)} {name} lie outside the training domain,"
            f" {lower.round(3).tolist()} to {upper.round(3).tolist()} m;"
            " predictions there are extrapolated"
        )
    return values


def check_distance(
    given: DistanceField, num_points: int, patch_kinds: Sequence[str], name: str
) -> DistanceField:
    """Check distance (N, K) and direction (N, K, 3)."""
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise InputError(f"{name} is a pair: the distances (N, K), and the directions (N, K, 3)")
    shape = (num_points, len(patch_kinds))
    distance = check_array(given[0], shape, f"{name}[0] (to {', '.join(patch_kinds)}, in m)")
    return distance, check_array(given[1], (*shape, 3), f"{name}[1] (unit vectors)")


def check_given(
    given: Mapping[str, Any] | None, num_points: int, normaliser: Normaliser, name: str
) -> np.ndarray:
    """Return (N, G), the given channels at the points.

    Each given field is (N, components), or (N,) if it has a single component.
    """
    if not normaliser.given:
        return np.zeros((num_points, 0), np.float32)
    fields = dict.fromkeys(channel.field for channel in normaliser.given)
    if not isinstance(given, Mapping) or set(given) != set(fields):
        raise InputError(
            f"{name} must map {', '.join(fields)} to values at each point: they are inputs"
        )
    columns = []
    for channel in normaliser.given:
        values = as_numbers(given[channel.field], f"{name} {channel.field}")
        values = values[:, None] if values.ndim == 1 else values
        if values.ndim != 2 or len(values) != num_points or values.shape[1] <= channel.column:
            raise InputError(
                f"{name} {channel.field} has shape {values.shape}, expected ({num_points},"
                f" {channel.column + 1} or more)"
            )
        columns.append(check_array(values[:, channel.column], (num_points,), name))
    return np.stack(columns, axis=-1)


def check_parameters(
    values: Mapping[str, float], space: Sequence[Mapping[str, Any]], family: str
) -> None:
    """Check design parameters: wrong names or values raise, values outside the space warn.

    `space` lists the family's parameters with name, unit, low and high.
    """
    known = {parameter["name"]: parameter for parameter in space}
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise InputError(f"parameters map {', '.join(known) or 'no name'} to numbers")
    unknown = sorted(set(values) - set(known))
    missing = [name for name in known if name not in values]
    if unknown or missing:
        wrong = [f"unknown {', '.join(unknown)[:200]}"] * bool(unknown) + [
            f"missing {', '.join(missing)}"
        ] * bool(missing)
        raise InputError(f"parameters: {' and '.join(wrong)}; {family} has {', '.join(known)}")
    for name, value in values.items():
        low, high, unit = (known[name][key] for key in ("low", "high", "unit"))
        if not isinstance(value, numbers.Real) or not np.isfinite(value):
            raise InputError(f"{name} = {value!r:.100} is not a finite number")
        if not low <= value <= high:
            tell_caller(
                f"{name} = {value:g} {unit} is outside the design space that the model was trained"
                f" on, [{low:g}, {high:g}] {unit}; the prediction is extrapolated"
            )


def check_steps(steps: Any) -> int:
    """Return the steps of a rollout that are asked for; InputError for no whole number above 0."""
    if not isinstance(steps, numbers.Integral):
        raise InputError(f"steps = {steps!r:.100} is no whole number")
    if steps < 1:
        raise InputError(f"steps = {steps}: ask for at least one")
    return int(steps)


def check_boundary(given: Any, normaliser: Normaliser, config: SteadyData) -> BoundaryConditions:
    """Check a boundary cloud: points (B, 3) m, patch (B,) and the prescribed fields.

    It is a stored case's `boundary`, or a mapping. `patch` holds names of patch kinds or their
    numbers in the family's order. A field (B, components) matters only on the faces where it is
    prescribed; its other values are ignored.
    """
    fields = {
        channel.field: channel
        for channel in normaliser.channels
        if channel.field in config.prescribed
    }
    needed = ["points", "patch", *fields]
    if given is None:
        raise InputError(
            f"give boundary=case.boundary of a stored case, or a mapping with {', '.join(needed)}"
            " of the boundary's faces"
        )
    is_mapping = isinstance(given, Mapping)
    if not is_mapping and not (hasattr(given, "points") and hasattr(given, "patch")):
        raise InputError(
            f"boundary is a {type(given).__name__}; give case.boundary of a stored case, or a"
            f" mapping with {', '.join(needed)} of the boundary's faces"
        )
    if is_mapping and (missing := [name for name in needed if name not in given]):
        raise InputError(f"boundary has no {', '.join(missing)}; it needs {', '.join(needed)}")
    points = check_points(
        given["points"] if is_mapping else given.points, "boundary points", normaliser
    )
    patch = _patch_numbers(
        given["patch"] if is_mapping else given.patch, len(points), normaliser.patch_kinds
    )
    # A stored field is read here, when it is indexed.
    values = {
        name: as_numbers(given[name] if is_mapping else given[name][:], f"boundary {name}")
        for name in fields
    }
    for name in fields:
        kinds = config.prescribed[name]
        on = np.isin(patch, [normaliser.patch_kinds.index(kind) for kind in kinds])
        if not on.any():
            raise InputError(
                f"boundary has no face of kind {' or '.join(kinds)}, where {name} is prescribed"
            )
        columns = 1 + max(
            channel.column for channel in normaliser.channels if channel.field == name
        )
        if (
            values[name].ndim != 2
            or len(values[name]) != len(points)
            or values[name].shape[1] < columns
        ):
            raise InputError(
                f"boundary {name} has shape {values[name].shape}, expected ({len(points)},"
                f" {columns} or more)"
            )
        if not np.isfinite(values[name][on]).all():
            raise InputError(
                f"boundary {name} holds values that are not finite on faces of kind"
                f" {' or '.join(kinds)}"
            )
    return keep_prescribed(points, patch, values, normaliser, config)


def _patch_numbers(given: Any, num_faces: int, kinds: Sequence[str]) -> np.ndarray:
    """Return (B,) numbers of patch kinds from numbers or names."""
    if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray):
        raise InputError("boundary patch is no list of names or numbers")
    if len(given) != num_faces:
        raise InputError(f"boundary patch has {len(given)} values, expected {num_faces}")
    # Not by an array of the names: it takes the memory of the longest for each of them.
    if isinstance(given, np.ndarray):
        has_names = given.dtype.kind in "US"
    else:
        has_names = any(isinstance(kind, str) for kind in given)
    if has_names:
        numbers = {kind: number for number, kind in enumerate(kinds)}
        unknown = sorted(
            {str(kind)[:50] for kind in given if not isinstance(kind, str) or kind not in numbers}
        )
        if unknown:
            raise InputError(
                f"boundary: no patch kind {', '.join(unknown[:5])}; choose of {', '.join(kinds)}"
            )
        return np.array([numbers[kind] for kind in given])
    try:
        patch = np.asarray(given)
    except ValueError as error:
        raise InputError("boundary patch is no list of names or numbers") from error
    if patch.shape != (num_faces,):
        raise InputError(f"boundary patch has shape {patch.shape}, expected ({num_faces},)")
    if patch.dtype.kind not in "iu" or not ((patch >= 0) & (patch < len(kinds))).all():
        raise InputError(
            f"boundary patch must hold names ({', '.join(kinds)}) or whole numbers from 0 to"
            f" {len(kinds) - 1}"
        )
    return patch
