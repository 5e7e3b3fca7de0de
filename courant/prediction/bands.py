"""Bands of error around predictions, from cases that nothing else has seen.

Split conformal prediction: `courant calibrate` predicts the cases of the calibration split and
keeps how far each prediction was off. A new case's error is, with the probability of the band's
level, no larger than the corresponding quantile of theirs, as long as it is drawn like them; no
assumption about the model is made. Errors are first divided by what is usual near a design
(`error_size`), and in fields at a place (`field_scale`), so that bands are wide where errors are
large. Vovk et al. 2005, Algorithmic Learning in a Random World; Lei et al. 2018,
Distribution-Free Predictive Inference for Regression, section 5.2 on scaled errors.

The band of a field is simultaneous: with that probability it holds at all points, steps and
components of the prediction at once.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from courant.prediction.error_size import fit_error_size
from courant.prediction.field_scale import FieldScale
from courant.prediction.grid_error import GridError
from courant.prediction.guards.outcomes import Design, Outcomes
from courant.prediction.guards.ranges import Ranges, is_outside
from courant.prediction.guards.reach import MOST_CASES, Reach
from courant.prediction.regressed import Regressed
from courant.runs.directory import RunDirectory

BANDS = "bands.json"
LEVEL = 0.9

Error = Annotated[float, Field(ge=0)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class FieldErrors(_Frozen):
    """How far predicted fields were off."""

    scale: FieldScale
    largest: tuple[Error, ...]
    """By calibration case: the largest error at any point, step and component, over the scale"""


class Span(_Frozen):
    """The rollouts that quantities of a transient model were calibrated on."""

    start_s: float
    steps: int


class Bands(_Frozen):
    """The calibration of a run; designs are scaled to -1..1 over the ranges of the parameters."""

    weights: str
    """Digest of the weights that were calibrated"""
    version: str
    """Of the dataset whose calibration split was predicted"""
    cases: tuple[str, ...] = Field(min_length=1, max_length=MOST_CASES)
    designs: tuple[Design, ...]
    quantities: dict[str, tuple[Error | None, ...]]
    """Absolute errors by case; None where a case has none"""
    span: Span | None = None
    field: FieldErrors
    reach: Reach | None = None
    ranges: Ranges = ()
    """Within which training and calibration designs lie; empty in those of older releases"""
    outcomes: Outcomes
    grid: dict[str, GridError] = {}
    """By quantity, where the mesh was studied"""
    no_grid: dict[str, str] = {}
    """Quantities that the study told nothing of, with the reason"""
    regressed: Regressed | None = None
    """Quantities by the design parameters alone"""

    @model_validator(mode="after")
    def _fits(self) -> Bands:
        columns = [self.designs, self.field.largest, *self.quantities.values()]
        if self.regressed is not None:
            columns += [each.errors for each in self.regressed.quantities.values()]
        widths = {len(design) for design in (*self.designs, *self.outcomes.designs)}
        widths |= {len(self.ranges)} if self.ranges else set()
        if {len(column) for column in columns} != {len(self.cases)} or len(widths) != 1:
            raise ValueError("it has not one value for each case")
        return self

    def quantity(self, name: str, design: np.ndarray, level: float = LEVEL) -> float:
        """Return a quantity's half-width; infinite with too few calibration cases."""
        return self._around(self.quantities[name], design, level)

    def by_regression(
        self, design: np.ndarray, level: float = LEVEL
    ) -> dict[str, tuple[float, float]]:
        """Return value and half-width of each regressed quantity that has a band.

        None has one outside of the designs that were trained on and calibrated.
        """
        if self.regressed is None or is_outside(self.ranges, design):
            return {}
        widths = {
            name: self._around(each.errors, design, level)
            for name, each in self.regressed.quantities.items()
        }
        values = self.regressed.values_at(design)
        return {name: (values[name], width) for name, width in widths.items() if width < math.inf}

    def _around(self, errors: Sequence[float | None], design: np.ndarray, level: float) -> float:
        known = [number for number, error in enumerate(errors) if error is not None]
        sizes = np.array([errors[number] for number in known], dtype=float)
        return half_width(np.asarray(self.designs)[known], sizes, design, level)

    def unguarded(self) -> Bands:
        """Return these bands for designs unlike the calibration's too, where they hold no more."""
        return self.model_copy(update={"reach": None, "ranges": ()})

    def over_scale(self, design: np.ndarray, level: float = LEVEL) -> float:
        """Return the field's half-width over its scale."""
        errors = np.asarray(self.field.largest)
        return half_width(np.asarray(self.designs), errors, design, level)


@dataclass(frozen=True)
class DesignBands:
    """The bands of one prediction, in physical units."""

    level: float
    quantities: Mapping[str, float]
    """Half-widths; infinite where there are too few calibration cases"""
    field: np.ndarray | None
    """Half-widths, shaped like the prediction; None where none holds"""
    unsolved: float
    """Share of designs near this one that had no accepted solution"""
    refusal: str = ""
    """Why no band holds, in words"""
    no_quantities: str = ""
    """Why quantities have none, in words"""
    by_regression: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    """Value and half-width of quantities by the design parameters alone"""


def half_width(designs: np.ndarray, errors: np.ndarray, design: np.ndarray, level: float) -> float:
    """Return the half-width of a band at a design, from errors (n,) at designs (n, P)."""
    if len(errors) < 2 or not errors.any():
        return math.inf if len(errors) < 2 else 0.0
    usual = fit_error_size(designs, errors)
    quantile = conformal_quantile(errors / usual.left_out, level)
    return quantile * float(usual.at(design[None])[0])


def conformal_quantile(scores: np.ndarray, level: float) -> float:
    """Return the ceil((n + 1) level)-th smallest of n scores; infinite where there is none."""
    rank = math.ceil((len(scores) + 1) * level - 1e-9)
    return math.inf if rank > len(scores) else float(np.sort(scores)[rank - 1])


def least_cases(level: float) -> int:
    """Return how many calibration cases a level needs."""
    return math.ceil(level / (1 - level) - 1e-9)


def read_bands(run: RunDirectory, weights: str) -> Bands | None:
    """Return the run's bands; None where it was not calibrated with weights of this digest."""
    if not run.exists(BANDS):
        return None
    bands = run.read_record(BANDS, Bands, "remove it and calibrate again")
    return bands if bands.weights == weights else None
