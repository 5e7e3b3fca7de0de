"""Quantities regressed on the design parameters alone, as they are kept in a run's calibration.

A few smooth numbers of a few parameters need no network: a Gaussian process fitted to the training
cases' quantities often tells them better than predicted fields do. It stands beside the model's own
answer, with a band calibrated on the same cases.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from simgen.regression import GaussianProcess

MOST_DESIGNS = 500
"""A fit takes memory by the square of their number, and time by its cube"""

Error = Annotated[float, Field(ge=0)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class RegressedQuantity(_Frozen):
    """One quantity's fit, and how far it was off."""

    values: tuple[float | None, ...]
    """By training design, as the solver measured it; None where it is not on record"""
    logs: tuple[float, ...]
    """Logarithms of the length of each parameter, and of the noise over the variance"""
    errors: tuple[Error | None, ...]
    """By calibration case, absolute; None where the truth is not on record"""


class Regressed(_Frozen):
    """The fits of a family's quantities to the designs of the training cases."""

    designs: tuple[tuple[float, ...], ...] = Field(min_length=1, max_length=MOST_DESIGNS)
    """Scaled to -1..1 over the ranges of the parameters"""
    quantities: dict[str, RegressedQuantity]

    @model_validator(mode="after")
    def _fits(self) -> Regressed:
        wide = {len(design) for design in self.designs}
        for name, each in self.quantities.items():
            known = sum(value is not None for value in each.values)
            if len(each.values) != len(self.designs) or wide != {len(each.logs) - 1} or not known:
                raise ValueError(f"the regression of {name} does not fit the designs")
        return self

    def values_at(self, design: np.ndarray) -> dict[str, float]:
        """Return each quantity at a scaled design (P,)."""
        return {name: float(fit(design[None])[0, 0]) for name, fit in self._processes.items()}

    @cached_property
    def _processes(self) -> Mapping[str, GaussianProcess]:
        designs = np.asarray(self.designs)
        found = {}
        for name, each in self.quantities.items():
            known = [number for number, value in enumerate(each.values) if value is not None]
            values = np.array([each.values[number] for number in known], dtype=float)
            logs = np.asarray(each.logs)
            found[name] = GaussianProcess.of(designs[known], values[:, None], logs)
        return found
