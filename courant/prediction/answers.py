"""One answer for each quantity of a design: a regression, and what the fields add to it.

    answer = r(x) + share (m - r(x))
    r       a Gaussian process on the design parameters x, fitted to training and validation cases
    m       the quantity of the predicted fields
    share   of the fields, from 0 to 1: least squares on the validation cases, which the model has
            not learned from, and of which each is left out of r in turn

With a share of 0 the answer is the regression; so it is where the fields are of no use, as those
of a rollout that ends early. A quantity that the solver did not record is that of the fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
from pydantic import Field, model_validator

from courant.experiment import Frozen
from simgen.regression import GaussianProcess

SAME_DESIGN = 5e-4  # the difference of a design from itself, as people round it, of the ranges
MOST_DESIGNS = 500  # A regression takes memory by the square of their number, and time by its cube
REGRESSION, FIELDS, BOTH = "regression", "fields", "regression and fields"


class RegressedQuantity(Frozen):
    """The regression of one quantity, and the share of the fields."""

    values: tuple[float | None, ...]
    """By design, as the solver measured it; None where it is not on record"""
    logs: tuple[float, ...]
    """Logarithms of the length of each parameter, and of the noise over the variance"""
    share: float = Field(ge=0, le=1)
    scatter: float = Field(default=0.0, ge=0)
    """Added to the regression's deviation, in logarithms where these are regressed"""
    scores: tuple[float, ...]
    """Of each known case that was drawn: its error over the deviation of a regression without it,
    and without the candidates of searches"""


NEAREST, LEAST_NEAREST = 10, 3
#: Weight of the share of all designs, in designs.
PRIOR = 2.0
MOST_OUTCOMES = 5_000


class Outcomes(Frozen):
    """Which designs have an accepted solution."""

    designs: tuple[tuple[float, ...], ...] = Field(min_length=1, max_length=MOST_OUTCOMES)
    unsolved: tuple[bool, ...]

    def unsolved_near(self, design: np.ndarray) -> float:
        """Return the share near a design without accepted solution, drawn towards that of all."""
        away = np.linalg.norm(np.asarray(self.designs) - design, axis=1)
        unsolved = np.asarray(self.unsolved, dtype=float)
        # Of few designs ten would be those of the whole space.
        number = min(NEAREST, max(LEAST_NEAREST, len(away) // 4))
        near = unsolved[np.argsort(away, kind="stable")[:number]]
        return float((near.sum() + PRIOR * unsolved.mean()) / (len(near) + PRIOR))


class Answers(Frozen):
    """The quantities of a run that are regressed on design parameters."""

    weights: str = ""  # Digest of the weights whose fields are asked
    version: str = ""  # Of the dataset whose cases were fitted
    designs: tuple[tuple[float, ...], ...] = Field(default=(), max_length=MOST_DESIGNS)
    """Scaled to -1..1: of training and validation cases"""
    quantities: dict[str, RegressedQuantity] = Field(default_factory=dict)
    outcomes: Outcomes | None = None  # None of a run that was not evaluated

    @model_validator(mode="after")
    def _fits(self) -> Answers:
        width = {len(design) for design in self.designs}
        for each in self.quantities.values():
            if len(each.values) != len(self.designs) or {len(each.logs) - 1} != width:
                raise ValueError("it has not one value for each design, or a length of each axis")
        return self

    @cached_property
    def processes(self) -> Mapping[str, GaussianProcess]:
        """By quantity, of scaled designs (k, P)."""
        every = np.ones(len(self.designs), dtype=bool)
        return {name: self._process(name, every) for name in self.quantities}

    def _process(self, name: str, among: np.ndarray) -> GaussianProcess:
        each = self.quantities[name]
        values = np.array(each.values, dtype=float)
        known = np.isfinite(values) & among
        of = np.asarray(self.designs)[known], values[known, None], np.asarray(each.logs)
        return GaussianProcess.of(*of, each.scatter)

    def left_out(self, design: np.ndarray) -> dict[str, float]:
        """Return what regressions that were fitted to a scaled design (P,) give without it.

        Their lengths and noise are those that were fitted with it.
        """
        away = np.abs(np.reshape(self.designs, (-1, len(design))) - design)
        others = away.max(axis=1) > 2 * SAME_DESIGN
        fitted = {} if others.all() else self.quantities
        return {name: float(self._process(name, others)(design[None])[0, 0]) for name in fitted}

    @cached_property
    def constant(self) -> list[str]:
        """The quantities with one answer for all designs, though the solver's differ."""
        # At the designs themselves a process has their values.
        x = (np.asarray(self.designs) + np.roll(self.designs, 1, axis=0)) / 2
        every = self.processes.items()
        return [n for n, of in every if np.ptp(of(x)) < 1e-3 * of.deviation(x).max()]

    def at(
        self,
        designs: np.ndarray,
        of_fields: Mapping[str, np.ndarray],
        usable: bool = True,
        apart: bool = False,
    ) -> dict[str, np.ndarray]:
        """Return each quantity (k,) at designs (k, P), given those of the fields (k,).

        Where the fields are not `usable`, a regressed quantity is the regression; where `apart`, it
        is without a design that it was fitted to.
        """
        found = dict(of_fields)
        without = [self.left_out(x) if apart and self.quantities else {} for x in designs]
        for name, process in self.processes.items():
            values = zip(without, process(designs)[:, 0], strict=True)
            found[name] = np.array([of.get(name, value) for of, value in values])
            if usable and (share := self.quantities[name].share) and name in of_fields:
                change = share * (of_fields[name] - found[name])
                found[name] = found[name] + np.where(np.isfinite(change), change, 0.0)
        return found

    def source(self, name: str, usable: bool = True) -> str:
        """Return in words what a quantity's answer is made of."""
        if (regressed := self.quantities.get(name)) is None:
            return FIELDS
        return BOTH if usable and regressed.share else REGRESSION
