"""Hold requests that are ready for the model, and check predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from courant.data.batch import Batch
from simgen.errors import InputError


@dataclass(frozen=True)
class Prepared:
    """A checked, normalised request on the device, as a batch of one."""

    batch: Batch
    steps: int

    @property
    def sizes(self) -> tuple[Any, ...]:
        """Sizes by which requests can share a pass through the model."""
        shapes = {
            name: tuple(value.shape)
            for name, value in vars(self.batch).items()
            if value is not None
        }
        return (self.steps, *shapes.items())


class NotFiniteError(InputError):
    """A prediction has values that are not finite."""


def check_finite(values: np.ndarray) -> np.ndarray:
    """Return the prediction unchanged; raise NotFiniteError where a value is not finite."""
    if not np.isfinite(values).all():
        raise NotFiniteError(
            "the prediction is not finite: a value of the input lies too far outside of what the"
            " model was trained on"
        )
    return values
