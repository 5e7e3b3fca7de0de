"""Make the decompositions that a case's fields are compared with."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from courant.analysis.decomposition.anchor_fields import AnchorFields
from courant.analysis.decomposition.controls import (
    nearest_anchor_partition,
    pod_fields,
    random_partition,
)
from courant.evaluation.reduced_order import TrainingFields
from courant.prediction.surrogate import Surrogate
from courant.problems.transient import read_states
from simgen.store.read import StoredCase

MAX_SNAPSHOTS = 256
"""Stored snapshots that POD is made from"""
RANDOM, NEAREST, POD = "random partition", "nearest-anchor partition", "POD"


def case_controls(
    surrogate: Surrogate,
    case: StoredCase,
    fields: AnchorFields,
    values: np.ndarray,
    training: Callable[[], TrainingFields] | None,
) -> dict[str, AnchorFields]:
    """Return decompositions of a predicted field, `values` (M, C) in standard deviations.

    They are by chance, by place and by POD: of the case's own snapshots, which favours it, or of
    the training cases' fields, carried over, where the case is steady.
    """
    found = {RANDOM: random_partition(fields)}
    if (nearest := nearest_anchor_partition(fields)) is not None:
        found[NEAREST] = nearest
    start = surrogate.problem.start(case)
    if start is not None and case.time is not None:
        frames = np.flatnonzero(case.time >= start)
        stride = -(-len(frames) // MAX_SNAPSHOTS)
        chosen = slice(int(frames[0]), None, stride)
        states = read_states(case, surrogate.normaliser.channels, chosen)
        std = np.asarray(surrogate.normaliser.std, np.float32)
        found[POD] = pod_fields(
            states / std, values, fields.points, fields.volumes, fields.num_anchors
        )
    elif start is None and training is not None:
        scaled = surrogate.normaliser.at(case.parameters)
        shift = np.asarray(scaled.mean, np.float32) / np.asarray(scaled.std, np.float32)
        snapshots = training().carried(case.points, without=case.id) + shift
        if len(snapshots) > 1:
            found[POD] = pod_fields(
                snapshots, values, fields.points, fields.volumes, fields.num_anchors
            )
    return found
