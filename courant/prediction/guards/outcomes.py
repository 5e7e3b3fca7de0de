"""Tell how the designs near one ended: whether the solver found an accepted solution, and which.

A prediction shows one field. Where the solver rejects designs, or ends in one of two states, the
share of the designs near by that did tells how likely it is for a new one.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from courant.prediction.guards.reach import MOST_CASES
from courant.prediction.kernel_mean import KernelMean, fit_kernel_mean, share_loss

Design = tuple[float, ...]
"""Scaled to -1..1 over the ranges of the design space"""


class Outcomes(BaseModel):
    """Which designs have an accepted solution."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    designs: tuple[Design, ...] = Field(min_length=1, max_length=MOST_CASES)
    unsolved: tuple[bool, ...]

    @model_validator(mode="after")
    def _fits(self) -> Outcomes:
        if len(self.designs) != len(self.unsolved):
            raise ValueError("it has not one outcome for each design")
        return self

    @cached_property
    def _near(self) -> KernelMean:
        return _shares(self.designs, self.unsolved)

    def unsolved_near(self, design: np.ndarray) -> float:
        """Return the share of designs near one that have no accepted solution."""
        return float(self._near.at(design[None])[0])


class ObservedState(BaseModel):
    """In which solved designs a state of a family was found."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    cases: tuple[str, ...] = Field(min_length=1, max_length=MOST_CASES)
    designs: tuple[Design, ...]
    found: tuple[bool, ...]

    @model_validator(mode="after")
    def _fits(self) -> ObservedState:
        if not len(self.cases) == len(self.designs) == len(self.found):
            raise ValueError("it has not one state for each case")
        return self

    @cached_property
    def _near(self) -> KernelMean:
        return _shares(self.designs, self.found)

    @property
    def share(self) -> float:
        """Return the share of all designs."""
        return float(np.mean(self.found))

    def near(self, design: np.ndarray) -> float:
        """Return the share of the designs near one."""
        return float(self._near.at(design[None])[0])


def _shares(designs: tuple[Design, ...], happened: tuple[bool, ...]) -> KernelMean:
    """Fit once for many designs: its time grows with the square of their number."""
    return fit_kernel_mean(np.asarray(designs), np.asarray(happened, dtype=float), share_loss)
