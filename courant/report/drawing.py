"""Define colours, sizes and words for a layer, which the report's figures share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simgen.publish.field_plots import Layer, Triangles
from simgen.store.read import StoredCase

#: The model's colour and its references', in order.
PALETTE = ("#0b5fa5", "#d9822b", "#7a7a7a", "#1a7f37", "#8250df")
MARKERS = ("o", "D", "_", "s", "^")
MODEL_COLOR = PALETTE[0]
WIDTH = 13.5
"""Inches"""


def colors(predictors: Sequence[str]) -> dict[str, str]:
    """Return a colour for each predictor, the model first."""
    return {name: PALETTE[place % len(PALETTE)] for place, name in enumerate(predictors)}


def markers(predictors: Sequence[str]) -> dict[str, str]:
    """Return a marker for each predictor, the model first."""
    return {name: MARKERS[place % len(MARKERS)] for place, name in enumerate(predictors)}


def height_of(aspect: float, per_aspect: float, low: float, high: float) -> float:
    """Return the height in inches of a picture with this aspect, within bounds."""
    return float(np.clip(per_aspect * aspect + 0.3, low, high))


def place(case: StoredCase, triangles: Layer) -> str:
    """Describe `the layer of cells at y = 0.5 m`; empty for 1D and 2D cases."""
    if case.dataset.schema.dimension < 3 or not isinstance(triangles, Triangles):
        return ""
    return f"the layer of cells at {triangles.plane}"
