"""Hold a prediction that is split into what each anchor contributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch

from courant.field_model import FieldDecomposition
from courant.prediction.predictor import Predictor


class CaseDecomposition(NamedTuple):
    """A prediction in physical units: offset + contributions.sum(over anchors).

    The sum equals the prediction (Eq. exact-decomp).
    """

    offset: np.ndarray
    """(C,)"""
    contributions: np.ndarray
    """(T, L, M, C) transient, (L, M, C) steady"""
    anchors: np.ndarray | None
    """(L, 3) m; None for anchors without positions"""


def in_physical_units(
    surrogate: Predictor, parts: FieldDecomposition, parameters: Mapping[str, float]
) -> CaseDecomposition:
    """Compute every contribution of a decomposition of one design, in physical units."""
    normaliser = surrogate.normaliser.at(parameters)
    with torch.inference_mode():
        contributions = parts.whole().contributions[0].cpu().numpy()
    places = None if parts.anchors is None else parts.anchors[0].detach().cpu().numpy()
    return CaseDecomposition(
        offset=normaliser.restore(parts.offset.cpu().numpy()),
        contributions=surrogate.problem.presented(
            contributions * np.asarray(normaliser.std, np.float32)
        ),
        anchors=None if places is None else surrogate.places(places),
    )
