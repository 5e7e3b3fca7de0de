"""Make decompositions to compare with: of the same field, but not by a model.

- random partition: every cell belongs to an anchor drawn at random; what chance gives
- nearest-anchor partition: every cell belongs to its nearest anchor; as local as fields can be
- POD: the field's projections on the modes of stored snapshots; the most economical linear basis
"""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from courant.analysis.decomposition.anchor_fields import AnchorFields
from courant.analysis.dynamics.modes import pod


def partition_fields(
    labels: np.ndarray,
    num_anchors: int,
    total: np.ndarray,
    points: np.ndarray,
    volumes: np.ndarray,
    anchors: np.ndarray | None,
) -> AnchorFields:
    """Give all of a field, whose magnitude is `total` (M,), to the anchors that `labels` name."""
    cells = np.arange(len(labels))
    magnitudes = np.zeros((num_anchors, len(labels)), dtype=total.dtype)
    magnitudes[labels, cells] = total
    energies = np.bincount(
        labels, weights=volumes * np.square(total, dtype=np.float64), minlength=num_anchors
    )
    return AnchorFields(points, volumes, magnitudes, total, np.diag(energies), anchors)


def random_partition(fields: AnchorFields, seed: int = 0) -> AnchorFields:
    """Return the sum of the fields divided among as many anchors at random."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(fields.num_anchors, size=len(fields.points))
    return _divided(fields, labels)


def nearest_anchor_partition(fields: AnchorFields) -> AnchorFields | None:
    """Return the sum of the fields divided by nearest anchors; None for anchors without places."""
    if fields.anchors is None:
        return None
    return _divided(fields, np.asarray(cKDTree(fields.anchors).query(fields.points)[1]))


def pod_fields(
    snapshots: np.ndarray, values: np.ndarray, points: np.ndarray, volumes: np.ndarray, rank: int
) -> AnchorFields:
    """Return the projections of `values` (M, C) on at most `rank` modes of snapshots (T, M, C)."""
    found = pod(snapshots, volumes, rank)
    return AnchorFields.of(found.fields(values, volumes), points, volumes)


def _divided(fields: AnchorFields, labels: np.ndarray) -> AnchorFields:
    return partition_fields(
        labels, fields.num_anchors, fields.total, fields.points, fields.volumes, fields.anchors
    )
