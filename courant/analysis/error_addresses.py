"""Divide errors among anchors, and map where anchors have weight.

Give every error an address: the anchors that the erroneous points listen to.

At each point the weights of the anchors sum to one (heads averaged), so the squared error divides
among them without a rest:

    E_k = integral of w_k |e|^2        sum over k of E_k = integral of |e|^2, exactly
    V_k = integral of w_k              sum over k of V_k = 1

e is in standard deviations. E_k / V_k is the mean square error where anchor k is listened to. This
says where the error is and who speaks there; it does not prove that the anchor causes it.

Map where anchors speak over time, which input points they read, and how levels move them.

dominant     the anchor of largest decoder weight at each point and step, heads averaged
weights      decoder weights of chosen anchors: how much each says at each point and step
reading      encoder attention of chosen anchors to the input points, at each level
moved        the places of all anchors at each level, where Gaussian windows move them
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from courant.analysis.scores import dominant_anchors
from courant.field_model import Partitions, Reads
from courant.prediction.surrogate import Surrogate
from simgen.errors import InputError
from simgen.store.read import StoredCase

WORST_SHARE = 0.1
"""Share of the anchors whose part in the error is reported"""


@dataclass(frozen=True)
class ErrorAddresses:
    """The squared error of a prediction, divided among L anchors."""

    errors: np.ndarray
    """E_k: (L,)"""
    governed: np.ndarray
    """V_k: (L,), each anchor's share of the volume"""
    centres: np.ndarray
    """The centroid of w_k |e|^2, (L, d) m; NaN where E_k is zero"""
    squared: np.ndarray
    """|e|^2 at each point: (M,)"""

    @classmethod
    def joined(cls, parts: Sequence[AddressSums]) -> ErrorAddresses:
        """Join sums over parts of the points, in order."""
        volume = float(sum(part.volume for part in parts))
        errors = np.sum([part.errors for part in parts], axis=0)
        moments = np.sum([part.moments for part in parts], axis=0)
        places = np.full_like(moments, np.nan)
        np.divide(moments, errors[:, None], out=places, where=errors[:, None] > 0)
        return cls(
            errors / volume,
            np.sum([part.governed for part in parts], axis=0) / volume,
            places,
            np.concatenate([part.squared for part in parts]),
        )

    @property
    def total(self) -> float:
        """Return the mean square error over the volume, summed over the components."""
        return float(self.errors.sum())

    @property
    def densities(self) -> np.ndarray:
        """Return E_k / V_k, the mean square error where each anchor is listened to: (L,)."""
        return np.divide(
            self.errors, self.governed, out=np.zeros_like(self.errors), where=self.governed > 0
        )

    @property
    def worst(self) -> np.ndarray:
        """Return the numbers of the anchors, the one that carries most of the error first."""
        return np.argsort(-self.errors, kind="stable")

    def carried(self, share: float = WORST_SHARE) -> float:
        """Return the part of the error at the worst `share` of the anchors, at least one."""
        number = max(1, round(share * len(self.errors)))
        total = self.total
        return float(self.errors[self.worst[:number]].sum()) / total if total else 0.0


@dataclass(frozen=True)
class AddressSums:
    """What adds up over parts of the points."""

    errors: np.ndarray
    governed: np.ndarray
    moments: np.ndarray
    """sum of V w_k |e|^2 x: (L, d)"""
    squared: np.ndarray
    volume: float


def address_sums(
    weights: np.ndarray, errors: np.ndarray, points: np.ndarray, volumes: np.ndarray
) -> AddressSums:
    """Divide the errors (M, C) at some points (M, d) by weights (M, L) that sum to one."""
    weights, volumes = weights.astype(np.float64), volumes.astype(np.float64)
    # In single precision the weights sum to one to 1e-7 only.
    weights = weights / weights.sum(axis=1, keepdims=True)
    squared = np.square(errors, dtype=np.float64).sum(axis=1)
    carried = weights * (volumes * squared)[:, None]
    return AddressSums(
        errors=carried.sum(axis=0),
        governed=volumes @ weights,
        moments=carried.T @ points.astype(np.float64),
        squared=squared,
        volume=float(volumes.sum()),
    )


CHUNK = 8_192
"""Points whose weights are in memory at once, times steps, heads and anchors"""


@dataclass(frozen=True)
class AnchorMaps:
    """Maps of A chosen anchors in a prediction of T steps (1 of a steady model) at M points."""

    chosen: np.ndarray
    """(A,) numbers of the anchors"""
    times: np.ndarray | None
    """(T,) s; None of a steady model"""
    dominant: np.ndarray
    """(T, M)"""
    weights: np.ndarray
    """(T, A, M), 0..1"""
    points: np.ndarray
    """(M, 3) m"""
    reading: np.ndarray | None
    """(levels, A, N), one in sum over the points; None for a model that does not tell"""
    read_points: np.ndarray
    """(N, 3) m, the points that the encoder reads"""
    places: np.ndarray | None
    """(L, 3) m; None for anchors without positions"""
    moved: np.ndarray | None
    """(levels, L, 3) m; None where levels do not move anchors"""

    @property
    def displacements(self) -> np.ndarray | None:
        """Return how far each level has moved each anchor from where it started, (levels, L) m."""
        if self.moved is None or self.places is None:
            return None
        found: np.ndarray = np.linalg.norm(self.moved - self.places, axis=-1)
        return found

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all arrays that are there, by name."""
        found = {**vars(self), "displacements": self.displacements}
        return {name: values for name, values in found.items() if values is not None}


def map_anchors(
    surrogate: Surrogate, case: StoredCase, chosen: Sequence[int], start: float | None = None
) -> AnchorMaps:
    """Map some anchors in the prediction of a case that starts at a time.

    InputError for a number that no anchor has, and for a model whose contributions do not divide
    the points among anchors.
    """
    decomposed = surrogate.decomposition(case, start_s=start)
    first = next(decomposed.chunks(1))
    if not isinstance(first, Partitions):
        raise InputError(
            f"{surrogate.url}: a model of kind {surrogate.model.config.kind} does not divide the"
            " domain among anchors, so there is nothing to map"
        )
    number = first.weights.shape[-1]
    if wrong := [each for each in chosen if not 0 <= each < number]:
        raise InputError(f"anchor {wrong[0]}: this model has anchors 0 to {number - 1}")
    dominant, weights = [], []
    for part in decomposed.chunks(max(1, CHUNK // first.weights.shape[1])):
        assert isinstance(part, Partitions)
        speaking = part.weights[0].mean(dim=1).cpu().numpy()  # (T, m, L)
        dominant.append(dominant_anchors(speaking))
        weights.append(speaking[..., list(chosen)].swapaxes(1, 2))
    places = decomposed.anchors
    reading, moved, read_points = _reading(surrogate, case, start, chosen)
    return AnchorMaps(
        chosen=np.array(chosen),
        times=None if start is None else surrogate.times(start),
        dominant=np.concatenate(dominant, axis=1),
        weights=np.concatenate(weights, axis=2),
        points=np.asarray(case.points),
        reading=reading,
        read_points=read_points,
        places=None if places is None else surrogate.places(places[0].detach().cpu().numpy()),
        moved=moved,
    )


def representative_anchors(energies: np.ndarray, variance: np.ndarray | None) -> list[int]:
    """Choose three anchors of the stronger half: the two that swing most and the stillest.

    Of a steady case, whose `variance` is None, the three strongest.
    """
    strong = np.argsort(-energies, kind="stable")[: max(3, len(energies) // 2)]
    if variance is None:
        return [int(each) for each in strong[:3]]
    by_swing = strong[np.argsort(-np.nan_to_num(variance[strong]), kind="stable")]
    return [int(each) for each in dict.fromkeys([*by_swing[:2], by_swing[-1]])]


def _reading(
    surrogate: Surrogate, case: StoredCase, start: float | None, chosen: Sequence[int]
) -> tuple[np.ndarray | None, np.ndarray | None, np.ndarray]:
    """Return attention (levels, A, N), moved anchors (levels, L, 3) and input points (N, 3), m."""
    inputs, _ = surrogate.model_inputs(case, start)
    read_points = surrogate.places(inputs.points[0].cpu().numpy())
    if not isinstance(surrogate.model, Reads):
        return None, None, read_points
    with torch.inference_mode():
        found = surrogate.model.reading(inputs, chosen)
    # Learned anchors are weights: where none has moved yet they are still those.
    moved = [surrogate.places(each[0].detach().cpu().numpy()) for each in found.anchors]
    return found.weights[0].cpu().numpy(), np.stack(moved) if moved else None, read_points
