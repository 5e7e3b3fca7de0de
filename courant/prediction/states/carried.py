"""Carry a solved case's states over to the mesh of another design, to start a rollout from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.spatial import cKDTree

from courant.prediction.predictor import Predictor
from simgen.point_cloud import PointCloud
from simgen.store.access.stored_case import StoredCase


def carried_over(
    surrogate: Predictor, case: StoredCase, cloud: PointCloud
) -> tuple[PointCloud, float]:
    """Return a mesh's cloud with the states that a rollout of the case starts from, and when, in s.

    They are those at the start of the training windows. Each cell takes the values of the case's
    nearest cell: a body that lies elsewhere is not carried along.
    """
    begin = surrogate.problem.start(case)
    assert begin is not None and case.time is not None
    moments = surrogate.problem.input_times(begin)
    stored = np.asarray(case.time)
    frames = [int(np.abs(stored - moment).argmin()) for moment in moments.tolist()]
    nearest = cKDTree(case.points).query(cloud.points)[1]
    names = dict.fromkeys(channel.field for channel in surrogate.normaliser.channels)
    fields = {
        name: np.stack([np.asarray(case[name][frame]) for frame in frames])[:, nearest]
        for name in names
    }
    return replace(cloud, time=moments, fields=fields), begin
