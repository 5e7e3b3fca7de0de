"""Return how many of the designs near one have an accepted solution.

A prediction shows one field. Where the solver rejects designs, the share of the designs near by
that it rejected is how likely this is for a new one.
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
        # Fitted once for many designs: its time grows with the square of their number.
        values = np.asarray(self.unsolved, dtype=float)
        return fit_kernel_mean(np.asarray(self.designs), values, share_loss)

    def unsolved_near(self, design: np.ndarray) -> float:
        """Return the share of designs near one that have no accepted solution."""
        return float(self._near.at(design[None])[0])
