"""Scale fields by powers of design parameters, as dimensional analysis does.

The velocity of a steady flow is nearly proportional to the velocity at the inlet, its pressure to
the square. A model that learns both relative to them need not learn the proportion.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from courant.data.channels import Channel
from simgen.errors import InputError

MOST_POWER = 10.0


@dataclass(frozen=True)
class ParameterRange:
    """A design parameter and its range in the design space, in its unit."""

    name: str
    low: float
    high: float


def scale_of(
    parameters: Mapping[str, float],
    ranges: Sequence[ParameterRange],
    powers: Sequence[Sequence[float]],
    num_channels: int,
) -> np.ndarray:
    """Return (C,), each channel's product of powers of (parameter / middle of its range).

    Without powers these are ones. InputError for a parameter that scales and is not positive.
    """
    if not powers:
        return np.ones(num_channels, np.float32)
    ratios = [1.0] * len(ranges)
    for number, each in enumerate(ranges):
        if not any(row[number] for row in powers):
            continue
        value = parameters[each.name]
        if value <= 0:
            raise InputError(
                f"{each.name} = {value:g}: the fields scale with it, so it must be positive"
            )
        ratios[number] = value / (0.5 * (each.low + each.high))
    products = [
        math.prod(ratio**power for ratio, power in zip(ratios, row, strict=True)) for row in powers
    ]
    return np.array(products, dtype=np.float32)


def powers_of(
    scaled_by: Mapping[str, Mapping[str, float]],
    channels: Sequence[Channel],
    parameters: Sequence[ParameterRange],
) -> tuple[tuple[float, ...], ...]:
    """Return each channel's power of each parameter, () for none.

    InputError for a field that is not modelled, and a parameter that is unknown or not positive.
    """
    fields, known = {each.field for each in channels}, {each.name: each for each in parameters}
    for field, powers in scaled_by.items():
        if field not in fields:
            raise InputError(
                f"data.scaled_by: {field} is not modelled; choose of {', '.join(sorted(fields))}"
            )
        for name, power in powers.items():
            if abs(power) > MOST_POWER:
                raise InputError(
                    f"data.scaled_by: {name} to the power of {power:g}; at most {MOST_POWER:g} is"
                    " possible"
                )
            if name not in known:
                raise InputError(
                    f"data.scaled_by: no design parameter {name}; choose of {', '.join(known)}"
                )
            if known[name].low <= 0:
                raise InputError(
                    f"data.scaled_by: {name} is not positive over its whole range, from"
                    f" {known[name].low:g} to {known[name].high:g}"
                )
    rows = tuple(
        tuple(scaled_by.get(channel.field, {}).get(name, 0.0) for name in known)
        for channel in channels
    )
    return rows if any(any(row) for row in rows) else ()


def are_sound(powers: Sequence[Sequence[float]], parameters: Sequence[ParameterRange]) -> bool:
    """Tell whether a scale can be computed all over the ranges of its parameters."""
    return all(
        abs(power) <= MOST_POWER and each.low > 0
        for row in powers
        for power, each in zip(row, parameters, strict=False)
        if power
    )
