"""What every trained model has, whatever it predicts: its experiment, normalisation, dataset and weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from courant.data.normalisation import Normaliser
from courant.experiment import AnyExperiment
from courant.model import Courant
from simgen.errors import InputError

QUERY_CHUNK = 65_536


class CaseDecomposition(NamedTuple):
    """offset + contributions.sum(over anchors) equals the prediction, in physical units (Eq. exact-decomp)."""

    offset: np.ndarray
    """(C,)"""
    contributions: np.ndarray
    """(T, L, M, C) transient, (L, M, C) steady"""
    anchors: np.ndarray
    """(L, 3) m"""


@dataclass(frozen=True)
class Prepared:
    """A request that has been checked, normalised and put on the device; tensors are batches of one."""

    tensors: Mapping[str, Tensor]
    steps: int | None = None
    """of a rollout; None in steady models"""

    @property
    def sizes(self) -> tuple[Any, ...]:
        """Requests that have these in common can go through the model together."""
        return (self.steps, *((name, tuple(tensor.shape)) for name, tensor in self.tensors.items()))


def check_finite(values: np.ndarray) -> np.ndarray:
    """The prediction as it is; InputError where a value is not finite."""
    if not np.isfinite(values).all():
        raise InputError(
            "the prediction is not finite: a value of the input lies too far outside of what the model was trained on"
        )
    return values


class TrainedModel(ABC):
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

    @abstractmethod
    def prepare(self, points: np.ndarray, **request: Any) -> Prepared:
        """Check a request, which has the arguments of `predict`; InputError where it cannot be answered."""

    @abstractmethod
    def _run(self, prepared: Prepared) -> np.ndarray:
        """The predictions of a whole batch, batch first, in physical units."""

    def predict_prepared(self, requests: Sequence[Prepared]) -> list[np.ndarray]:
        """What `predict` answers to each request; those of the same sizes go through the model as one batch."""
        groups: dict[tuple[Any, ...], list[int]] = {}
        for number, request in enumerate(requests):
            groups.setdefault(request.sizes, []).append(number)
        answers: dict[int, np.ndarray] = {}
        for numbers in groups.values():
            first = requests[numbers[0]]
            tensors = {
                name: torch.cat([requests[number].tensors[name] for number in numbers]) for name in first.tensors
            }
            answers |= zip(numbers, self._run(Prepared(tensors, first.steps)), strict=True)
        return [answers[number] for number in range(len(requests))]

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(values)[None].to(self.device)
