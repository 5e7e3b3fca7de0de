"""Tell whether a design lies among those that a model was trained and calibrated on.

The ranges are those of the designs themselves, which may fill a part of the design space alone. The
outermost of n designs is not the end of the range that they were drawn from: this lies a mean gap
farther out. So the ranges are wider by three gaps, within which the end lies in 19 of 20 samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from simgen.design_space import Parameter, scaled

GAPS = 3.0
#: Of designs that are computed, not typed.
ROUNDING = 1e-6

Ranges = tuple[tuple[float, float], ...]
"""By parameter, of designs that are scaled to -1..1 over the ranges of the design space"""


def ranges_of(designs: np.ndarray) -> Ranges:
    """Return the ranges that designs (n, P) speak for, within those of the design space."""
    least, most = designs.min(axis=0), designs.max(axis=0)
    margin = GAPS * (most - least) / max(len(designs) - 1, 1)
    low = np.minimum(least, np.maximum(least - margin, -1.0))
    high = np.maximum(most, np.minimum(most + margin, 1.0))
    return tuple(zip(low.tolist(), high.tolist(), strict=True))


def shared_ranges(one: np.ndarray, other: np.ndarray) -> Ranges:
    """Return what two samples (n, P), (m, P) of designs both speak for; empty without parameters.

    Where both were drawn from one range, together they tell its ends more sharply than each alone.
    """
    if not one.shape[1]:
        return ()
    found = np.array([ranges_of(each) for each in (one, other, np.concatenate([one, other]))])
    low, high = found[..., 0].max(axis=0), found[..., 1].min(axis=0)
    return tuple(zip(low.tolist(), high.tolist(), strict=True))


def is_outside(ranges: Ranges, design: np.ndarray) -> bool:
    """Tell whether a scaled design (P,) lies outside; never without ranges."""
    return any(not _inside(place, *ends) for place, ends in zip(design, ranges, strict=False))


def outside(ranges: Ranges, parameters: Sequence[Parameter], design: Mapping[str, float]) -> str:
    """Say by which parameters a design lies outside of ranges; empty if it does not.

    Without ranges, as in calibrations of older releases, nothing lies outside.
    """
    places = scaled(parameters, design).tolist()
    told = [
        f"{each.name.replace('_', ' ')} = {design[each.name]:g}{_unit(each)} lies outside of"
        f" {_restored(each, low):.4g} to {_restored(each, high):.4g}{_unit(each)}"
        for each, place, (low, high) in zip(parameters, places, ranges, strict=False)
        if not _inside(place, low, high)
    ]
    if not told:
        return ""
    return f"{', '.join(told)}, the designs that the model was trained and calibrated on"


def _inside(place: float, low: float, high: float) -> bool:
    return low - ROUNDING <= place <= high + ROUNDING


def _restored(parameter: Parameter, place: float) -> float:
    return parameter.low + (place + 1) / 2 * (parameter.high - parameter.low)


def _unit(parameter: Parameter) -> str:
    return "" if parameter.unit == "1" else f" {parameter.unit}"
