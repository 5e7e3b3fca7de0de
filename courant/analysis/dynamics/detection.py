"""Judge whether a monitor's flag comes before the error of a rollout has doubled.

    level       the root mean square of the error over the steps that the model was trained on
    doubled     the first step after those whose error is at least twice the level
    detected    flagged at least one step before that
    lead        steps from the flag to the doubling

A rollout no longer than the training's has no step at which it could double.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

FACTOR = 2.0
LEAST_LEAD = 1
"""Steps by which a flag has to come first"""


@dataclass(frozen=True)
class Detection:
    """One rollout: when its error doubled, and when it was flagged, in steps from 1."""

    level: float
    """Of the error within the horizon, in the unit of the errors"""
    doubled_at: int | None
    """None where the error never doubles"""
    flagged_at: int | None

    @property
    def lead(self) -> int | None:
        """Return the steps from the flag to the doubling, negative for a late flag.

        None where either never comes.
        """
        if self.doubled_at is None or self.flagged_at is None:
            return None
        return self.doubled_at - self.flagged_at

    @property
    def detected(self) -> bool:
        return self.lead is not None and self.lead >= LEAST_LEAD


@dataclass(frozen=True)
class DetectionRate:
    """How many of some rollouts were flagged before their errors doubled."""

    rollouts: int
    doubled: int
    detected: int
    flagged_in_vain: int
    """Rollouts that are flagged although their errors never double"""
    median_lead: float | None
    """Steps, over the detected rollouts; None where there is none"""

    @classmethod
    def of(cls, rollouts: Sequence[Detection]) -> DetectionRate:
        doubled = [each for each in rollouts if each.doubled_at is not None]
        leads = [each.lead for each in doubled if each.detected and each.lead is not None]
        others = [each for each in rollouts if each.doubled_at is None]
        return cls(
            rollouts=len(rollouts),
            doubled=len(doubled),
            detected=len(leads),
            flagged_in_vain=sum(each.flagged_at is not None for each in others),
            median_lead=float(np.median(leads)) if leads else None,
        )

    @property
    def rate(self) -> float | None:
        """Return the detected share of the rollouts that double; None where none does."""
        return self.detected / self.doubled if self.doubled else None

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "rate": self.rate, "least_lead": LEAST_LEAD, "factor": FACTOR}


def detect(errors: np.ndarray, horizon: int, flagged_at: int | None) -> Detection:
    """Find the doubling of errors (T,) of a rollout, whose first `horizon` steps are the level."""
    level = float(np.sqrt(np.mean(np.square(errors[:horizon], dtype=np.float64))))
    # Errors that are not finite have doubled: a comparison with NaN would not say so.
    grown = np.flatnonzero(~(errors[horizon:] < FACTOR * level))
    doubled_at = horizon + int(grown[0]) + 1 if len(grown) else None
    return Detection(level, doubled_at, flagged_at)
