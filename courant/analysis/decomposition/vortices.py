"""Find vortex cores in a flow, and tell whether the fields of anchors follow them.

    swirl     lambda_ci, the largest imaginary part of the eigenvalues of the velocity's gradient
              (Zhou et al. 1999, J. Fluid Mech. 387): zero in a shear flow, half the vorticity in a
              rotation
    core      a point of largest swirl within a radius, of at least a fifth of the domain's largest
    distance  from the centroid of the moving part of a field to the nearest core, at each step

The moving part of delta_k is what differs from its mean over the steps: a part that stands still
could follow nothing. Whether a field follows the vortices shows beside the distance to the cores of
all other steps, which are where vortices are at times, but not now.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.spatial import cKDTree

from courant.prediction.surrogate import Surrogate
from simgen.store.read import StoredCase

NEIGHBOURS = {1: 3, 2: 8, 3: 16}
"""Points that a gradient is fitted to, by the dimension of the domain"""
WEAKEST = 0.2
"""Swirl of a core, over the largest in the domain"""
MAX_CANDIDATES = 5000
RADIUS = 0.5
"""Of a core's surroundings, in spacings of the anchors: they cannot tell nearer ones apart"""


def velocity_gradients(points: np.ndarray, velocity: np.ndarray) -> np.ndarray:
    """Return du_i/dx_j at points (N, d) of velocities (N, d), (N, d, d), by least squares.

    Each is fitted to the nearest points, weighted by the inverse square of their distance, so a
    linear flow is found exactly. Zero where the points do not span the domain's directions.
    """
    dimension = points.shape[1]
    number = min(NEIGHBOURS[dimension] + 1, len(points))
    near = np.asarray(cKDTree(points).query(points, k=number)[1]).reshape(len(points), number)
    apart = points[near[:, 1:]].astype(np.float64) - points[:, None]
    change = velocity[near[:, 1:]].astype(np.float64) - velocity[:, None]
    weight = 1 / np.maximum(np.square(apart).sum(axis=-1, keepdims=True), 1e-300)
    moments = np.swapaxes(apart * weight, 1, 2) @ apart
    flux = np.swapaxes(apart * weight, 1, 2) @ change
    return np.swapaxes(np.linalg.pinv(moments, rcond=1e-9, hermitian=True) @ flux, 1, 2)


def swirl(gradients: np.ndarray) -> np.ndarray:
    """Return lambda_ci of gradients (N, d, d), (N,) 1/s."""
    return np.asarray(np.abs(np.linalg.eigvals(gradients).imag).max(axis=-1))


def vortex_cores(points: np.ndarray, strength: np.ndarray, radius: float) -> np.ndarray:
    """Return the points (n, d) where the swirl `strength` (N,) is largest within a radius."""
    largest = float(strength.max())
    if largest <= 0:
        return points[:0]
    candidates = np.flatnonzero(strength >= WEAKEST * largest)
    candidates = candidates[np.argsort(-strength[candidates], kind="stable")][:MAX_CANDIDATES]
    around = cKDTree(points[candidates]).query_ball_point(points[candidates], radius)
    # Candidates are in order: a core is the first of those around it.
    cores = [number for number, near in enumerate(around) if min(near) == number]
    return points[candidates[cores]]


def moving_centroids(sums: np.ndarray) -> np.ndarray:
    """Return centroids (T, L, d) of summed moments (T, L, d + 1); NaN without energy."""
    energy = sums[..., -1:]
    return np.divide(
        sums[..., :-1], energy, out=np.full_like(sums[..., :-1], np.nan), where=energy > 0
    )


def motion_sums(fields: np.ndarray, points: np.ndarray, volumes: np.ndarray) -> np.ndarray:
    """Return sums over points of V x |delta'|^2 and V |delta'|^2, (T, L, d + 1).

    `fields` (T, L, M, C), of which delta' is what differs from the mean over time. The sums add up
    over parts of the points.
    """
    density = np.square(fields - fields.mean(axis=0)).sum(axis=-1) * volumes
    extended = np.concatenate([points, np.ones((len(points), 1))], axis=1)
    return np.asarray(density.astype(np.float64) @ extended)


def core_distances(
    centroids: np.ndarray, cores: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return distances (T, L) from centroids (T, L, d) to the nearest core now, and at other times.

    The second is the mean over all other steps. NaN at a step without a core, and for a centroid
    that is not known.
    """
    num = len(cores)
    every = np.full((num, *centroids.shape[:2]), np.nan)
    known = np.isfinite(centroids).all(axis=-1)
    for step, places in enumerate(cores):
        if len(places):
            found = cKDTree(places).query(np.nan_to_num(centroids))[0]
            every[step] = np.where(known, found, np.nan)
    now = every[np.arange(num), np.arange(num)]
    others = ~np.eye(num, dtype=bool)
    filled, counted = np.nan_to_num(every), np.isfinite(every)
    total = np.einsum("st,stk->tk", others.astype(float), filled)
    count = np.einsum("st,stk->tk", others.astype(float), counted.astype(float))
    return now, np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)


def following_scores(
    centroids: np.ndarray, cores: Sequence[np.ndarray], spacing_m: float
) -> dict[str, float]:
    """Return the median over fields of their mean distances, now and at other times, in spacings.

    Nothing where there are no cores at two steps or more.
    """
    if sum(len(places) > 0 for places in cores) < 2:
        return {}
    now, others = core_distances(centroids, cores)
    both = np.isfinite(now) & np.isfinite(others)
    seen = both.any(axis=0)
    if not seen.any():
        return {}
    means = (
        np.where(both, each, 0.0).sum(axis=0)[seen] / both.sum(axis=0)[seen]
        for each in (now, others)
    )
    here, elsewhere = (float(np.median(each)) / spacing_m for each in means)
    return {"vortex_distance": here, "vortex_chance": elsewhere}


def solved_cores(
    surrogate: Surrogate, case: StoredCase, start_s: float, spacing_m: float
) -> list[np.ndarray] | None:
    """Return the cores (n, d) m at each step of a rollout of the training's length.

    None where the velocity is not modelled in all directions of the domain, or the case has no
    solution at one of the times.
    """
    dimension = case.dataset.schema.dimension
    names = [f"velocity.{axis}" for axis in "xyz"[:dimension]]
    times = surrogate.times(start_s)
    if times is None or dimension < 2 or not set(names) <= set(surrogate.channels):
        return None
    columns = [surrogate.channels.index(name) for name in names]
    points = case.points[:, :dimension]
    found = []
    for time in times.tolist():
        state = surrogate.problem.solution(case, time)
        if state is None:
            return None
        strength = swirl(velocity_gradients(points, state[:, columns]))
        found.append(vortex_cores(points, strength, RADIUS * spacing_m))
    return found
