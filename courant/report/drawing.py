"""What the report's figures have in common: colours and sizes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: Of the model and its references, in their order.
PALETTE = ("#0b5fa5", "#d9822b", "#7a7a7a", "#1a7f37", "#8250df")
MARKERS = ("o", "D", "_", "s", "^")
MODEL_COLOR = PALETTE[0]
WIDTH = 13.5
"""Inches"""


def colors(predictors: Sequence[str]) -> dict[str, str]:
    """A colour for each predictor, the model first."""
    return {name: PALETTE[place % len(PALETTE)] for place, name in enumerate(predictors)}


def markers(predictors: Sequence[str]) -> dict[str, str]:
    """A marker for each predictor, the model first."""
    return {name: MARKERS[place % len(MARKERS)] for place, name in enumerate(predictors)}


def height_of(aspect: float, per_aspect: float, low: float, high: float) -> float:
    """Inches for a picture of that height over width, within bounds."""
    return float(np.clip(per_aspect * aspect + 0.3, low, high))
