"""Count designs outside of a box whose error exceeds the band that they would have had.

Beyond the designs of training and calibration a band is a number without a meaning. What counts is
whether it is refused there, most of all where the error is larger: by the designs' ranges, or by
the latents that a prediction starts from. The second alone guards where a design lies within the
ranges of each parameter, and where a case has no parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from simgen.design_space import Parameter
from simgen.errors import InputError

Box = Mapping[str, tuple[float, float]]
"""By parameter, the ends of its range in its unit; others are free"""


class OutsideScore(BaseModel):
    """How one band did outside of the box."""

    model_config = ConfigDict(frozen=True)
    num_cases: int
    exceeding: int
    """Cases whose error is larger than the band would be"""
    by_ranges: int
    """Of these, refused because of the design parameters"""
    by_latents: int
    """Of these, refused because of the latents, whatever the ranges say"""
    by_either: int


@dataclass(frozen=True)
class Unguarded:
    """A case outside of the box: errors and bands as if nothing were refused."""

    errors: Mapping[str, tuple[float, float]]
    """Error and half-width by band"""
    by_ranges: bool
    by_latents: bool


def check_box(box: Box, parameters: Sequence[Parameter]) -> None:
    """Raise InputError for a parameter that there is not, and for an empty range."""
    names = [each.name for each in parameters]
    for name, (low, high) in box.items():
        if name not in names:
            raise InputError(f"--inside {name}: the parameters are {', '.join(names)}")
        if not low < high:
            raise InputError(f"--inside {name}={low:g}:{high:g}: the first end has to be the lower")


def is_inside(box: Box, design: Mapping[str, float]) -> bool:
    return all(low <= design[name] <= high for name, (low, high) in box.items())


def score_outside(cases: Sequence[Unguarded]) -> dict[str, OutsideScore]:
    """Count by band."""
    names = dict.fromkeys(name for case in cases for name in case.errors)
    return {name: _score([case for case in cases if name in case.errors], name) for name in names}


def _score(cases: Sequence[Unguarded], name: str) -> OutsideScore:
    wrong = [case for case in cases if case.errors[name][0] > case.errors[name][1]]
    return OutsideScore(
        num_cases=len(cases),
        exceeding=len(wrong),
        by_ranges=sum(case.by_ranges for case in wrong),
        by_latents=sum(case.by_latents for case in wrong),
        by_either=sum(case.by_ranges or case.by_latents for case in wrong),
    )
