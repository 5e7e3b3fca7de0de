"""Define the budget of a benchmark: epochs, or processor time, the same for every model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from courant.experiment import MAX_EPOCHS
from simgen.errors import InputError

_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}
MOST = 1e9
"""Of any unit"""
_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(epochs?|s|min|h)\s*")


@dataclass(frozen=True)
class Budget:
    """What each trial may spend on training."""

    unit: Literal["epochs", "processor"]
    amount: float
    """Epochs, or seconds of processor time"""

    @property
    def text(self) -> str:
        if self.unit == "epochs":
            return f"{self.amount:.0f} epochs"
        return f"{duration(self.amount)} of processor time"

    @property
    def key(self) -> str:
        """Return the text, with all digits where it leaves some out."""
        if self.unit == "epochs":
            return self.text
        size, _ = _unit_of(self.amount)
        exact = f"{self.amount!r} s of processor time"
        return self.text if float(f"{self.amount / size:.3g}") * size == self.amount else exact

    def epochs(self, model: str, epoch_s: float) -> int:
        """Return the epochs that a model can train, given its processor time for one.

        InputError where that is less than one.
        """
        wanted = self.amount if self.unit == "epochs" else self.amount / epoch_s
        if wanted < 1:
            raise InputError(
                f"budget {duration(self.amount)} is too small for one epoch of {model}, which takes"
                f" {duration(epoch_s)} of processor time; raise --budget, leave {model} out, or"
                " lower training.samples_per_epoch in an experiment of your own"
            )
        return min(int(wanted), MAX_EPOCHS)


def parse_budget(text: str) -> Budget:
    """Parse `40 epochs`, `90s`, `30min` or `2h`; InputError for anything else."""
    found = _TEXT.fullmatch(text)
    amount = float(found.group(1)) if found else 0.0
    if found is None or not amount or amount > MOST:
        raise InputError(
            f"budget '{text}' is none; give epochs (40epochs) or processor time of each training"
            " (90s, 30min, 2h)"
        )
    if found.group(2).startswith("epoch"):
        if amount != int(amount) or amount > MAX_EPOCHS:
            raise InputError(f"budget '{text}': give whole epochs, {MAX_EPOCHS:,} at most")
        return Budget("epochs", amount)
    return Budget("processor", amount * _UNITS[found.group(2)])


def duration(seconds: float) -> str:
    """`12 s`, `3.5 min`, `2 h`"""
    size, unit = _unit_of(seconds)
    return f"{seconds / size:.3g} {unit}"


def _unit_of(seconds: float) -> tuple[float, str]:
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return size, unit
    return 1.0, "s"
