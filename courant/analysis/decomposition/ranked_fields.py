"""Rank the contributions of a prediction by energy, and keep the strongest as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from courant.analysis.decomposition.case_scores import MAX_VALUES, volumes_of
from courant.field_model import FieldDecomposition
from courant.prediction.surrogate import Surrogate
from simgen.store.read import StoredCase


@dataclass(frozen=True)
class RankedFields:
    """The prediction u = u_0 + sum of delta_k at the last step, in physical units."""

    case: str
    ranking: np.ndarray
    """(L,) numbers of the anchors, the one of most energy first"""
    energies: np.ndarray
    """E_k, (L,), of the anchors in their own order; in standard deviations squared"""
    offset: np.ndarray
    """u_0, (C,)"""
    contributions: np.ndarray
    """delta_k of the first anchors of the ranking, (K, M, C)"""
    total: np.ndarray
    """u, (M, C)"""
    points: np.ndarray
    """(M, 3) m"""
    volumes: np.ndarray
    """(M,)"""
    anchors: np.ndarray | None
    """Where anchors start, (L, 3) m; None for anchors without positions"""

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all but the case's id; what is not known is left out."""
        found = {name: values for name, values in vars(self).items() if name != "case"}
        return {name: values for name, values in found.items() if values is not None}


def rank(energies: np.ndarray) -> np.ndarray:
    """Return the numbers of the anchors, the one of most energy first."""
    return np.argsort(-energies, kind="stable")


def ranked_fields(surrogate: Surrogate, case: StoredCase, top: int) -> RankedFields:
    """Take the prediction that `score_case` scores apart, and keep its `top` strongest fields.

    InputError for a model that does not decompose its predictions.
    """
    start = surrogate.problem.shown_start(case)
    decomposed, volumes = surrogate.decomposition(case, start_s=start), volumes_of(case)
    normaliser = surrogate.normaliser.at(case.parameters)
    std = np.asarray(normaliser.std, np.float32)
    energies, whole = _energies_and_sum(decomposed, volumes)
    ranking = rank(energies)
    kept = _of_anchors(decomposed, ranking[:top])
    offset = np.asarray(normaliser.restore(decomposed.offset.cpu().numpy()))
    starts = None if decomposed.anchors is None else decomposed.anchors[0].detach().cpu().numpy()
    return RankedFields(
        case=case.id,
        ranking=ranking,
        energies=energies,
        offset=offset,
        contributions=kept * std,
        total=offset + whole * std,
        points=case.points,
        volumes=volumes,
        anchors=None if starts is None else surrogate.places(starts),
    )


def _energies_and_sum(
    decomposed: FieldDecomposition, volumes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return E_k, (L,), and the sum of all fields (M, C), a part of the points at a time."""
    energies, sums = [], []
    for part in decomposed.chunks(_size(decomposed)):
        fields = part.contributions[0, -1].cpu().numpy()
        energies.append(np.square(fields).sum(axis=-1) @ volumes[part.queries].astype(np.float64))
        sums.append(fields.sum(axis=0))
    return np.sum(energies, axis=0) / volumes.sum(dtype=np.float64), np.concatenate(sums)


def _of_anchors(decomposed: FieldDecomposition, chosen: np.ndarray) -> np.ndarray:
    """Return the fields (K, M, C) of some anchors."""
    parts = decomposed.chunks(_size(decomposed))
    return np.concatenate(
        [part.contributions[0, -1].cpu().numpy()[chosen] for part in parts], axis=1
    )


def _size(decomposed: FieldDecomposition) -> int:
    return max(1, MAX_VALUES // next(iter(decomposed.chunks(1))).contributions.numel())
