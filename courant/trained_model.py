"""What every trained model has, whatever it predicts: its experiment, normalisation, dataset and weights."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from courant.data.normalisation import Normaliser
from courant.experiment import AnyExperiment
from courant.model import Courant

QUERY_CHUNK = 65_536


class CaseDecomposition(NamedTuple):
    """offset + contributions.sum(over anchors) equals the prediction, in physical units (Eq. exact-decomp)."""

    offset: np.ndarray
    """(C,)"""
    contributions: np.ndarray
    """(T, L, M, C) transient, (L, M, C) steady"""
    anchors: np.ndarray
    """(L, 3) m"""


class TrainedModel:
    """A model with its normalisation. C channels in `channels`' order."""

    experiment: AnyExperiment

    def __init__(self, url: str, normaliser: Normaliser, dataset: dict[str, Any], model: Courant) -> None:
        self.url = url
        self.normaliser = normaliser
        self.dataset = dataset
        """url, version, snapshot_id and family of the dataset version that it was trained on"""
        self.model = model.eval()
        self.device = next(model.parameters()).device

    @property
    def channels(self) -> tuple[str, ...]:
        return tuple(channel.name for channel in self.normaliser.channels)

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(values)[None].to(self.device)
