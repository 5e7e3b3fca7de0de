"""Scores of the fields of anchors, maps of anchors, and what each has of the error.

A field delta_k is one anchor's contribution to a prediction, in standard deviations of the training
cases, so that components of different units count alike. Integrals over the domain are weighted by
the cells' volumes and divided by the total volume: an energy E_k is a mean square, without a unit.

Locality. Lengths are in m; scores divide them by domain / sqrt(L), the spacing of L windows that
tile the domain. A field without energy has no centroid: its numbers are NaN.

    centroid            c_k = integral of x |delta_k|^2 / E_k
    radius of gyration  r_k = sqrt(integral of |x - c_k|^2 |delta_k|^2 / E_k)
    support             the smallest share of the volume that has 90 % of E_k
    overlap             integral of |delta_k| |delta_l| / sqrt(E_k E_l), the mean over pairs k != l

Economy: how few anchors make up a prediction, and how much of them cancels.

    curve               sum of the k largest E_k over sum of all E_k
    Gini                0 where all energies are equal, 1 - 1/L where one anchor has all
    cancellation        integral of sum_k |delta_k| over integral of |sum_k delta_k|, from 1 on

Faithfulness: whether the prediction depends on the anchors of most energy. S is the set of the
first j anchors in some order, and u - u_0 the sum of all fields. All curves follow from the Gram
matrix G_kl. Fields that cancel each other take a curve above one.

    deletion(j)   |sum over S of delta_k|^2 / |u - u_0|^2            what is lost without them
    insertion(j)  |sum over the others of delta_k|^2 / |u - u_0|^2   what they alone do not explain

Stability: whether the same fields are there again, across time or seeds.

    correlation   c_kl = integral of a_k . b_l / (|a_k| |b_l|), in -1..1
    matching      the pairs k, l(k) that make the sum of the correlations largest (Hungarian)
    score         the mean of c_{k,l(k)}, weighted by the energy of a_k

Meaning: the regions of anchors, and which anchors move with the flow.

    contiguity         the share of the volume in the largest connected piece of its region
    temporal variance  v_k = mean over time of |delta_k - its mean|^2 / mean of |delta_k|^2, from 0
                       (constant) to 1 (oscillates around zero)
    swirl              lambda_ci, the largest imaginary part of the eigenvalues of the velocity's
                       gradient (Zhou et al. 1999, J. Fluid Mech. 387): zero in a shear flow, half
                       the vorticity in a rotation
    vortex core        a point of largest swirl within a radius, of at least a fifth of the largest
    vortex distance    from the centroid of delta_k - its mean to the nearest core at each step,
                       beside the same to the cores of all other steps, which is what chance gives

Of a case the last step of a rollout is scored, or the one field of a steady case. Contributions
are as many fields as there are anchors, so they are reduced for one part of the cells at a time.

The error has an address: at each point the anchors' weights w_k sum to one (heads averaged), so the
squared error divides among the anchors completely. e is in standard deviations.

    E_k = integral of w_k |e|^2        sum over k of E_k = integral of |e|^2, exactly
    V_k = integral of w_k              sum over k of V_k = 1

E_k / V_k is the mean square error where anchor k has weight. It shows where the error is; the
anchor need not be its cause.

An ablation sets one anchor's latent to zero at a time, in the state that is decoded ("after") or
that was encoded ("before" the processor). The effect is the mean square change of the prediction at
the last step. Without z_k the weights of the other anchors change too, so delta_k does not show it.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.stats import spearmanr
from torch import Tensor

from courant import field_model as seam
from courant.analysis import Progress
from courant.analysis.dynamics import pod, volumes_of
from courant.evaluation.metrics import ALL, ErrorSums, ratio
from courant.evaluation.references import TrainingFields
from courant.prediction.surrogate import Surrogate
from courant.problems.problem import read_states
from simgen.errors import InputError
from simgen.point_cloud import point_tree
from simgen.store.read import StoredCase

TOP = 8  # anchors that the paper's figures show
ENERGY_SHARE = 0.9  # share of a field's energy that its support has
JOINED_NEIGHBOURS = {1: 2, 2: 6, 3: 10}  # nearest points that are joined, by dimension
CONNECTED = 0.99
STENCIL = {1: 3, 2: 8, 3: 16}  # points that a gradient is fitted to, by dimension
WEAKEST = 0.2  # swirl of a core, over the largest in the domain
MAX_CANDIDATES = 5000
MAX_VALUES = 1 << 22  # contributions in memory at once: 16 MiB, and a few times that on the way
WORST_SHARE = 0.1  # share of the anchors whose part in the error is reported
MAX_SNAPSHOTS = 256  # stored snapshots that POD is made from
RANDOM, NEAREST, POD = "random partition", "nearest-anchor partition", "POD"
CORE_RADIUS = 0.5  # around a vortex core, in spacings of the anchors: they resolve no nearer ones
MAX_CELLS = 2048  # at which predictions are compared in an ablation: every n-th of the case
TOGETHER = 16  # anchors that are left out at once, each in a copy of the state
MAPPED_WEIGHTS = 8_192  # points whose weights are in memory, times steps, heads and anchors


@dataclass(frozen=True)
class AnchorFields:
    """L fields at M points, reduced: memory grows as L M, not as L M C."""

    points: np.ndarray  # (M, d) m
    volumes: np.ndarray  # (M,) of the cells, in any unit; ones where the dataset has none
    magnitudes: np.ndarray  # |delta_k(x)|, the norm over the components: (L, M)
    total: np.ndarray  # |sum_k delta_k(x)|: (M,)
    products: np.ndarray
    """sum over points of V delta_k . delta_l, not yet divided by the total volume: (L, L)"""
    anchors: np.ndarray | None = None  # (L, d) m; None for anchors without positions

    @classmethod
    def of(
        cls,
        fields: np.ndarray,
        points: np.ndarray,
        volumes: np.ndarray,
        anchors: np.ndarray | None = None,
    ) -> Self:
        """Reduce fields (L, M, C)."""
        scaled = (fields * np.sqrt(volumes)[:, None].astype(fields.dtype)).reshape(len(fields), -1)
        magnitudes = np.linalg.norm(fields, axis=-1)
        total = np.linalg.norm(fields.sum(axis=0), axis=-1)
        products = (scaled @ scaled.T).astype(np.float64)
        return cls(points, volumes, magnitudes, total, products, anchors)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Join the fields at parts of the points, in order."""
        return replace(
            parts[0],
            points=np.concatenate([part.points for part in parts]),
            volumes=np.concatenate([part.volumes for part in parts]),
            magnitudes=np.concatenate([part.magnitudes for part in parts], axis=1),
            total=np.concatenate([part.total for part in parts]),
            products=np.sum([part.products for part in parts], axis=0),
        )

    @property
    def num_anchors(self) -> int:
        return len(self.magnitudes)

    @cached_property
    def shares(self) -> np.ndarray:
        """Each cell's share of the volume: (M,), sum one."""
        volumes = self.volumes.astype(np.float64)
        return volumes / volumes.sum()

    @cached_property
    def extents(self) -> np.ndarray:
        """Centroid, radius of gyration, support of each field, (L, d + 2); NaN without energy."""
        found = np.full((self.num_anchors, self.points.shape[1] + 2), np.nan)
        for row, magnitude in zip(found, self.magnitudes, strict=True):
            cells = np.flatnonzero(magnitude)
            density = self.shares[cells] * np.square(magnitude[cells], dtype=np.float64)
            energy, places = density.sum(), self.points[cells]
            if not energy:
                continue
            row[:-2] = density @ places / energy
            row[-2] = math.sqrt(density @ np.square(places - row[:-2]).sum(axis=1) / energy)
            order = np.argsort(-magnitude[cells])
            held = np.cumsum(density[order])
            # Rounding must not add a cell to a sum that is exact.
            last = int(np.searchsorted(held, ENERGY_SHARE * held[-1] * (1 - 1e-9)))
            row[-1] = self.shares[cells[order[: last + 1]]].sum()
        return found

    @property
    def centroids(self) -> np.ndarray:
        """c_k = integral of x |delta_k|^2 / E_k: (L, d) m."""
        return self.extents[:, :-2]

    @property
    def radii(self) -> np.ndarray:
        """The root mean square distance of each field's energy from its centroid, (L,) m."""
        return self.extents[:, -2]

    @property
    def supports(self) -> np.ndarray:
        """The smallest share of the volume that has 90 % of each field's energy, (L,)."""
        return self.extents[:, -1]

    @property
    def gram(self) -> np.ndarray:
        """G_kl = integral of delta_k . delta_l over the domain: (L, L)."""
        return self.products / self.volumes.astype(np.float64).sum()

    @property
    def energies(self) -> np.ndarray:
        """E_k = integral of |delta_k|^2 over the domain: (L,)."""
        return np.diagonal(self.gram)


@dataclass(frozen=True)
class AnchorScore:
    """One number about a decomposition."""

    subject: str
    key: str
    name: str
    range: str
    good: Literal["small", "large", "neither"]
    aim: float | None = None  # a value from which on it is good

    @property
    def aim_text(self) -> str:
        """`≤ 0.4`, or `small` without an aim"""
        if self.aim is None:
            return "" if self.good == "neither" else self.good
        return f"{'≤' if self.good == 'small' else '≥'} {self.aim:g}"

    def reached(self, value: float | None) -> bool | None:
        """Return whether a value is good; None where there is no aim or no value."""
        if value is None or self.aim is None:
            return None
        return value <= self.aim if self.good == "small" else value >= self.aim


_TABLE: dict[str, list[tuple[Any, ...]]] = {
    "accuracy": [("nmae", "NMAE of the prediction", "0 ..", "small")],
    "locality": [
        ("anchor_distance", "anchor to centroid / spacing", "0 .. √L", "small", 0.4),
        ("own_anchor_nearest", "own anchor is nearest", "0 .. 1", "large", 0.6),
        ("start_anchor_distance", "start of the anchor to centroid", "0 .. √L", "small"),
        ("start_own_anchor_nearest", "own start is nearest", "0 .. 1", "large"),
        ("support", "volume with 90 % of the energy", "0 .. 0.9", "small", 0.08),
        ("gyration_radius", "radius of gyration / spacing", "0 .. √L", "small"),
        ("overlap", "overlap of pairs", "0 .. 1", "small"),
    ],
    "economy": [
        ("top_share", f"energy of the top {TOP}", f"{TOP}/L .. 1", "large"),
        ("gini", "Gini of the energies", "0 .. 1 - 1/L", "large"),
        ("cancellation", "cancellation", "1 .. ∞", "small"),
    ],
    "faithfulness": [
        ("insertion_area", "area under insertion", "0 ..", "small"),
        ("deletion_area", "area under deletion", "0 ..", "large"),
        ("random_area", "the same in random order", "0 ..", "neither"),
        ("ablation_after", "energy ranks the effect of zₖ = 0", "-1 .. 1", "large"),
        ("ablation_before", "the same before the processor", "-1 .. 1", "large"),
    ],
    "stability": [
        ("time_correlation", "matched, first to last step", "-1 .. 1", "large"),
        ("time_kept", "anchors that keep their field", "0 .. 1", "large"),
        ("seed_correlation", "matched, with the other run", "-1 .. 1", "large", 0.8),
    ],
    "meaning": [
        ("contiguity", "contiguity of the partition", "0 .. 1", "large"),
        ("temporal_variance", "temporal variance", "0 .. 1", "neither"),
        ("vortex_distance", "moving part to vortex / spacing", "0 .. √L", "neither"),
        ("vortex_chance", "the same at other times", "0 .. √L", "neither"),
    ],
    "error": [("error_carried", "error at the worst tenth of anchors", "0.1 .. 1", "neither")],
    "rhythm": [
        ("frequency_error", "error of the flow's frequency", "0 ..", "small", 0.1),
        ("locked_in", "anchors within 20 % of it", "0 .. 1", "large"),
        ("rhythm_kept", "part of the rollout within 20 %", "0 .. 1", "large"),
    ],
}
SCORES = tuple(AnchorScore(subject, *row) for subject, rows in _TABLE.items() for row in rows)


def field_scores(fields: AnchorFields, spacing_m: float) -> dict[str, float]:
    """Compute the scores that follow from the fields alone, medians over the fields with energy."""
    gram, energies = fields.gram, fields.energies
    values = {
        **place_scores(fields, spacing_m),
        "support": _median(fields.supports),
        "gyration_radius": _median(fields.radii) / spacing_m,
        "overlap": overlap(fields),
        "top_share": float(energy_curve(energies)[min(TOP, len(energies))]),
        "gini": gini(energies),
        "cancellation": cancellation(fields),
    }
    if gram.sum() > 0:
        order = by_energy(gram)
        values |= {
            "insertion_area": area(insertion_curve(gram, order)),
            "deletion_area": area(deletion_curve(gram, order)),
            "random_area": area(random_deletion(gram)),
        }
    return {key: value for key, value in values.items() if math.isfinite(value)}


def place_scores(fields: AnchorFields, spacing_m: float) -> dict[str, float]:
    """Compute the scores of how far fields are from their anchors; none without positions."""
    distances = anchor_distances(fields)
    if distances is None:
        return {}
    nearest = own_anchor_nearest(fields)[np.isfinite(distances)].mean()
    return {"anchor_distance": _median(distances) / spacing_m, "own_anchor_nearest": float(nearest)}


def _median(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else float("nan")


def values_by_score(scores: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """Return the values of each score that cases or runs have, in the order of SCORES."""
    found = {each.key: [of[each.key] for of in scores if each.key in of] for each in SCORES}
    return {key: values for key, values in found.items() if values}


def mean_scores(scores: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each score over the cases that have it."""
    return {key: float(np.mean(values)) for key, values in values_by_score(scores).items()}


def overlap(fields: AnchorFields) -> float:
    """Return the mean overlap of pairs of fields: 0 apart, 1 with the same magnitude everywhere."""
    roots, joint, num = np.sqrt(fields.shares), np.zeros(len(fields.points)), 0
    for magnitude in fields.magnitudes:
        scaled = roots * magnitude
        if norm := float(np.linalg.norm(scaled)):
            joint += scaled / norm
            num += 1
    # |sum of unit vectors|^2 is num plus the sum over ordered pairs.
    return max(0.0, float((joint @ joint - num) / (num * (num - 1)))) if num > 1 else 0.0


def anchor_distances(fields: AnchorFields) -> np.ndarray | None:
    """Return the distance from each anchor to its field's centroid, (L,) m; None without places."""
    if fields.anchors is None:
        return None
    return np.linalg.norm(fields.centroids - fields.anchors, axis=1)


def own_anchor_nearest(fields: AnchorFields) -> np.ndarray:
    """Return whether no anchor is nearer to a field's centroid than its own, (L,) bool."""
    distances = anchor_distances(fields)
    assert fields.anchors is not None and distances is not None
    nearest = point_tree(fields.anchors).query(np.nan_to_num(fields.centroids))[0]
    return distances <= nearest * (1 + 1e-9)  # NaN is no distance


def energy_curve(energies: np.ndarray) -> np.ndarray:
    """Return the share of the energy that the k strongest hold, for k = 0..L: (L + 1,)."""
    held = np.concatenate([[0.0], np.cumsum(np.sort(energies)[::-1])])
    return held / (held[-1] or 1.0)


def gini(energies: np.ndarray) -> float:
    """Return the Gini coefficient of the energies, 0 (all alike) to 1 - 1/L (one has all)."""
    total, num = float(energies.sum()), len(energies)
    if not total:
        return 0.0
    ranks = np.arange(1, num + 1)
    return float(2 * (ranks @ np.sort(energies)) / (num * total) - (num + 1) / num)


def cancellation(fields: AnchorFields) -> float:
    """Return how many times larger the fields are than their sum; 1 is the least, NaN of zero."""
    apart = (fields.magnitudes @ fields.shares).sum()
    return float(ratio(apart, fields.total @ fields.shares))


def by_energy(gram: np.ndarray) -> np.ndarray:
    """Return the numbers of the anchors, the strongest first."""
    return np.argsort(-np.diagonal(gram), kind="stable")


def deletion_curve(gram: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return the relative squared error without the first j anchors, j = 0..L: (L + 1,)."""
    ordered = gram[np.ix_(order, order)]
    # The sum over the leading j x j block, for every j.
    blocks = np.diagonal(np.cumsum(np.cumsum(ordered, axis=0), axis=1))
    return np.concatenate([[0.0], blocks]) / float(gram.sum())


def insertion_curve(gram: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return the relative squared error with only the first j anchors, j = 0..L: (L + 1,)."""
    return deletion_curve(gram, order[::-1])[::-1]


def random_deletion(gram: np.ndarray) -> np.ndarray:
    """Return the mean deletion curve over all orders, exactly; reversed it is that of insertion."""
    num, own, whole = len(gram), float(np.trace(gram)), float(gram.sum())
    taken = np.arange(num + 1)
    pairs = taken * (taken - 1) / max(1, num * (num - 1))
    return (taken / num * own + pairs * (whole - own)) / whole


def area(curve: np.ndarray) -> float:
    """Return the area under a curve over the share j / L of the anchors, 0 to 1."""
    return float((curve[1:] + curve[:-1]).mean() / 2)


def product_sums(first: np.ndarray, second: np.ndarray, volumes: np.ndarray) -> np.ndarray:
    """Return sums over points of V a_k . b_l, of fields (K, M, C) and (L, M, C): (K + 1, L + 1).

    The further row and column are the energies. The sums add up over parts of the points.
    """
    found = np.zeros((len(first) + 1, len(second) + 1))
    scaled = (first * volumes[:, None].astype(first.dtype)).reshape(len(first), -1)
    found[:-1, :-1] = scaled @ second.reshape(len(second), -1).T
    found[:-1, -1] = np.square(first).sum(axis=-1) @ volumes
    found[-1, :-1] = np.square(second).sum(axis=-1) @ volumes
    return found


class Matching(NamedTuple):
    """Fields that have each a partner in another decomposition."""

    score: float  # the mean correlation of partners, weighted by energy; 0 for a field left over
    kept: float  # the share of the energy whose fields are their own partners


def match(sums: np.ndarray) -> Matching:
    """Match fields by their `product_sums` over all points."""
    cross, first, second = sums[:-1, :-1], sums[:-1, -1], sums[-1, :-1]
    correlations = np.nan_to_num(ratio(cross, np.sqrt(np.outer(first, second))))
    rows, columns = linear_sum_assignment(correlations, maximize=True)
    found, total = correlations[rows, columns] @ first[rows], float(first.sum()) or 1.0
    return Matching(float(found) / total, float(first[rows[rows == columns]].sum()) / total)


def temporal_moments(fields: np.ndarray, volumes: np.ndarray) -> np.ndarray:
    """Return sums over points of V Var_t(delta_k) and V mean_t |delta_k|^2, (2, L).

    `fields` are (T, L, M, C). The sums add up over parts of the points; v_k is their ratio.
    """
    variance = np.square(fields - fields.mean(axis=0)).mean(axis=0).sum(axis=-1)
    power = np.square(fields).mean(axis=0).sum(axis=-1)
    return np.stack([variance @ volumes, power @ volumes]).astype(np.float64)


def contiguity(
    labels: np.ndarray, points: np.ndarray, volumes: np.ndarray, dimension: int
) -> float | None:
    """Return the share of the volume in the largest piece of its region, (M,) labels, 0..1.

    Neighbours are the nearest points, so the two sides of a body thinner than its cells count as
    one piece. In cells that are stretched across a layer even the whole domain falls into pieces;
    there contiguity means nothing, and the result is None.
    """
    number = min(JOINED_NEIGHBOURS[dimension] + 1, len(points))
    near = point_tree(points[:, :dimension]).query(points[:, :dimension], k=number)[1]
    near = np.asarray(near).reshape(len(points), number)[:, 1:]
    own, near = np.repeat(np.arange(len(points)), near.shape[1]), near.ravel()

    def share(labels: np.ndarray) -> float:
        alike, num = labels[own] == labels[near], len(labels)
        joined = (np.ones(int(alike.sum()), bool), (own[alike], near[alike]))
        pieces = connected_components(coo_array(joined, shape=(num, num)), directed=False)[1]
        sizes = np.bincount(pieces, weights=volumes)
        largest = np.zeros(int(labels.max()) + 1)
        np.maximum.at(largest, labels, sizes[pieces])
        return float(largest.sum() / volumes.sum())

    return share(labels) if share(np.zeros_like(labels)) >= CONNECTED else None


def velocity_gradients(points: np.ndarray, velocity: np.ndarray) -> np.ndarray:
    """Return du_i/dx_j at points (N, d) of velocities (N, d), (N, d, d), by least squares.

    Each is fitted to the nearest points, weighted by the inverse square of their distance, so a
    linear flow is found exactly. Zero where the points do not span the domain's directions.
    """
    dimension = points.shape[1]
    number = min(STENCIL[dimension] + 1, len(points))
    near = np.asarray(point_tree(points).query(points, k=number)[1]).reshape(len(points), number)
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
    around = point_tree(points[candidates]).query_ball_point(points[candidates], radius)
    # Candidates are in order: a core is the first of those around it.
    cores = [number for number, near in enumerate(around) if min(near) == number]
    return points[candidates[cores]]


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
            found = point_tree(places).query(np.nan_to_num(centroids))[0]
            every[step] = np.where(known, found, np.nan)
    steps = np.arange(num)
    now = every[steps, steps]
    every[steps, steps] = np.nan
    return now, ratio(np.nansum(every, axis=0), np.isfinite(every).sum(axis=0))


def following_scores(
    motion: np.ndarray, cores: Sequence[np.ndarray], spacing_m: float
) -> dict[str, float]:
    """Return the median over fields of their mean distances, now and at other times, in spacings.

    Takes `motion_sums` over all points, (T, L, d + 1). Nothing where there are no cores at two
    steps or more.
    """
    if sum(len(places) > 0 for places in cores) < 2:
        return {}
    now, others = core_distances(ratio(motion[..., :-1], motion[..., -1:]), cores)
    both = np.isfinite(now) & np.isfinite(others)
    if not both.any():
        return {}
    here, elsewhere = (
        _median(ratio(np.where(both, each, 0.0).sum(axis=0), both.sum(axis=0))) / spacing_m
        for each in (now, others)
    )
    return {"vortex_distance": here, "vortex_chance": elsewhere}


def partition_fields(fields: AnchorFields, labels: np.ndarray) -> AnchorFields:
    """Give each cell's sum of fields to the anchor that `labels` (M,) names, as a control."""
    magnitudes = np.zeros_like(fields.magnitudes)
    magnitudes[labels, np.arange(len(labels))] = fields.total
    weights = fields.volumes * np.square(fields.total, dtype=np.float64)
    energies = np.bincount(labels, weights=weights, minlength=fields.num_anchors)
    return replace(fields, magnitudes=magnitudes, products=np.diag(energies))


@dataclass(frozen=True)
class ErrorAddresses:
    """The squared error of a prediction, divided among L anchors."""

    sums: np.ndarray  # over points of V w_k |e|^2, V w_k and V w_k |e|^2 x: (L, 2 + d)
    volume: float
    squared: np.ndarray  # |e|^2 at each point: (M,)

    @classmethod
    def of(
        cls, weights: np.ndarray, errors: np.ndarray, points: np.ndarray, volumes: np.ndarray
    ) -> Self:
        """Divide errors (M, C) at points (M, d) by weights (M, L) that sum to one."""
        weights, volumes = weights.astype(np.float64), volumes.astype(np.float64)
        # In single precision the weights sum to one to 1e-7 only.
        weights = weights / weights.sum(axis=1, keepdims=True)
        squared = np.square(errors, dtype=np.float64).sum(axis=1)
        density = (volumes * squared)[:, None]
        columns = np.hstack([density, volumes[:, None], density * points.astype(np.float64)])
        return cls(weights.T @ columns, float(volumes.sum()), squared)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Join the addresses at parts of the points, in order."""
        return cls(
            np.sum([part.sums for part in parts], axis=0),
            float(sum(part.volume for part in parts)),
            np.concatenate([part.squared for part in parts]),
        )

    @property
    def errors(self) -> np.ndarray:
        """E_k: (L,)."""
        return self.sums[:, 0] / self.volume

    @property
    def governed(self) -> np.ndarray:
        """V_k: (L,), each anchor's share of the volume."""
        return self.sums[:, 1] / self.volume

    @property
    def centres(self) -> np.ndarray:
        """The centroid of w_k |e|^2, (L, d) m; NaN where E_k is zero."""
        return ratio(self.sums[:, 2:], self.sums[:, :1])

    @property
    def total(self) -> float:
        """The mean square error over the volume, summed over the components."""
        return float(self.errors.sum())

    @property
    def densities(self) -> np.ndarray:
        """E_k / V_k, the mean square error where each anchor has weight: (L,)."""
        return np.nan_to_num(ratio(self.errors, self.governed))

    @property
    def worst(self) -> np.ndarray:
        """The numbers of the anchors, the one with most of the error first."""
        return np.argsort(-self.errors, kind="stable")

    def worst_part(self, share: float = WORST_SHARE) -> float:
        """Return the part of the error at the worst `share` of the anchors, at least one."""
        number = max(1, round(share * len(self.sums)))
        return float(self.errors[self.worst[:number]].sum()) / (self.total or 1.0)


@dataclass(frozen=True)
class CaseScores:
    """The scores of one case's decomposition, and what they were computed from."""

    case: str
    scores: dict[str, float]
    fields: AnchorFields
    spacing_m: float
    controls: dict[str, AnchorFields]
    dominant: np.ndarray | None  # (M,) anchor of largest weight; None for a model without weights
    temporal_variance: np.ndarray | None  # v_k, (L,); None for one state
    addresses: ErrorAddresses | None  # None without weights, or a solution at the time

    @cached_property
    def control_scores(self) -> dict[str, dict[str, float]]:
        """The scores of the controls' fields, by control."""
        return {n: field_scores(of, self.spacing_m) for n, of in self.controls.items()}

    def arrays(self) -> dict[str, np.ndarray]:
        """Return what the scores were computed from, by anchor or by cell."""
        fields, addresses = self.fields, self.addresses
        found = {
            "energies": fields.energies,
            "gram": fields.gram,
            "centroids": fields.centroids,
            "gyration_radii": fields.radii,
            "support": fields.supports,
            "anchors": fields.anchors,
            "temporal_variance": self.temporal_variance,
            "points": fields.points,
            "volumes": fields.volumes,
            "dominant_anchor": self.dominant,
        }
        if addresses is not None:
            found |= {"error_address": addresses.errors, "error_governed": addresses.governed}
            found |= {"error_centre": addresses.centres, "squared_error": addresses.squared}
        return {name: values for name, values in found.items() if values is not None}


def score_case(
    surrogate: Surrogate,
    case: StoredCase,
    *,
    other: Surrogate | None = None,
    training: Callable[[], TrainingFields] | None = None,
    progress: Progress = lambda done, total: None,
) -> CaseScores:
    """Score the prediction that ends at the case's last snapshot (steady: the prediction).

    The fields are matched with those of the run `other`. `training` reads the training cases, of
    which the POD of a steady case is made. InputError for a model that does not decompose.
    """
    problem, points, volumes = surrogate.problem, case.points, volumes_of(case)
    start = problem.shown_start(case)
    scores: dict[str, float] = {}

    # The predicted state and its error, (M, C) in standard deviations.
    times = None if start is None else surrogate.times(start)
    last = surrogate.predict_last(case, start_s=start)
    std = np.asarray(surrogate.normaliser.at(case.parameters).std, np.float32)
    truth = problem.solution(case, None if times is None else float(times[-1]))
    if truth is not None:
        errors = ErrorSums(surrogate.channels)
        errors.add(last[None], truth[None])
        scores["nmae"] = errors.total(ALL)["nmae"]

    # Anchors are where they are decoded: in the last window at the last step, if windows move them.
    decomposed = surrogate.decomposition(case, start_s=start)
    starts = places = surrogate.places(decomposed.anchors)
    moved: Sequence[Tensor] = getattr(decomposed, "window_anchors", ())
    if places is not None and moved:
        ends = moved[-1][0]
        places = surrogate.places(ends.reshape(-1, *ends.shape[-2:])[[-1]])

    # One walk over the cells: fields and labels are joined, all else adds up.
    size = _chunk(decomposed)
    others: Iterator[seam.Contributions] = iter(())
    if other is not None:
        steps = None if start is None else problem.num_steps
        others = other.decomposition(case, start_s=start, steps=steps).chunks(size)
    joined, labels, addressed = [], [], []
    sums: dict[str, np.ndarray] = {}
    for part in decomposed.chunks(size):
        values = part.contributions[0].cpu().numpy()  # (T, L, m, C)
        at, here = points[part.queries], volumes[part.queries]
        joined.append(AnchorFields.of(values[-1], at, here, places))
        found = {}
        if other is not None:
            theirs = next(others).contributions[0, -1].cpu().numpy()
            found["seed"] = product_sums(values[-1], theirs, here)
        if len(values) > 1:
            found["time"] = product_sums(values[0], values[-1], here)
            found["moments"] = temporal_moments(values, here)
            found["motion"] = motion_sums(values, at, here)
        for key, value in found.items():
            sums[key] = value + sums.get(key, 0.0)
        if isinstance(part, seam.Partitions):
            weights = part.weights[0, -1].mean(0).cpu().numpy()
            labels.append(np.argmax(weights, axis=-1))
            if truth is not None:
                error = (last[part.queries] - truth[part.queries]) / std
                addressed.append(ErrorAddresses.of(weights, error, at, here))
        progress(part.queries.stop, len(points))

    fields = AnchorFields.joined(joined)
    spacing_m = 2 * surrogate.normaliser.length_scale / math.sqrt(fields.num_anchors)
    scores |= field_scores(fields, spacing_m)
    if places is not starts:
        at_starts = place_scores(replace(fields, anchors=starts), spacing_m)
        scores |= {f"start_{key}": each for key, each in at_starts.items() if np.isfinite(each)}
    variance = None
    if "time" in sums:
        over_time = match(sums["time"])
        variance = ratio(*sums["moments"])
        scores |= {"time_correlation": over_time.score, "time_kept": over_time.kept}
        if np.isfinite(variance).any():
            scores["temporal_variance"] = float(np.nanmedian(variance))
    dominant = np.concatenate(labels) if labels else None
    if dominant is not None:
        dimension = case.dataset.schema.dimension
        whole = contiguity(dominant, fields.points, fields.volumes, dimension)
        scores |= {} if whole is None else {"contiguity": whole}
    if "seed" in sums:
        scores["seed_correlation"] = match(sums["seed"]).score
    if start is not None and "motion" in sums:
        cores = solved_cores(surrogate, case, start, CORE_RADIUS * spacing_m)
        if cores is not None:
            strongest = by_energy(fields.gram)[:TOP]
            columns = [*range(cores[0].shape[1]), -1]
            motion = sums["motion"][:, strongest][..., columns]
            scores |= following_scores(motion, cores, spacing_m)
    addresses = ErrorAddresses.joined(addressed) if addressed else None
    if addresses is not None:
        scores["error_carried"] = addresses.worst_part()
    controls = case_controls(surrogate, case, fields, last / std, training)
    return CaseScores(case.id, scores, fields, spacing_m, controls, dominant, variance, addresses)


def _chunk(decomposed: seam.FieldDecomposition) -> int:
    """Return how many points' contributions are in memory at once."""
    return max(1, MAX_VALUES // next(iter(decomposed.chunks(1))).contributions.numel())


def solved_cores(
    surrogate: Surrogate, case: StoredCase, start_s: float, radius: float
) -> list[np.ndarray] | None:
    """Return the vortex cores (n, d) m of the solution at each step of a training's rollout.

    None where the velocity is not modelled in all directions of the domain, or the case has no
    solution at one of the times.
    """
    dimension = case.dataset.schema.dimension
    names = [f"velocity.{axis}" for axis in "xyz"[:dimension]]
    times = surrogate.times(start_s)
    if times is None or dimension < 2 or not set(names) <= set(surrogate.channels):
        return None
    columns = [surrogate.channels.index(name) for name in names]
    points, found = case.points[:, :dimension], []
    for time in times.tolist():
        state = surrogate.problem.solution(case, time)
        if state is None:
            return None
        strength = swirl(velocity_gradients(points, state[:, columns]))
        found.append(vortex_cores(points, strength, radius))
    return found


def case_controls(
    surrogate: Surrogate,
    case: StoredCase,
    fields: AnchorFields,
    values: np.ndarray,
    training: Callable[[], TrainingFields] | None,
) -> dict[str, AnchorFields]:
    """Decompose a predicted field, `values` (M, C) in deviations, by chance, by place and by POD.

    POD is of the case's own snapshots, which favours it, or of a steady case of training fields.
    """
    labels = np.random.default_rng(0).integers(fields.num_anchors, size=len(fields.points))
    found = {RANDOM: partition_fields(fields, labels)}
    if fields.anchors is not None:
        nearest = np.asarray(point_tree(fields.anchors).query(fields.points)[1])
        found[NEAREST] = partition_fields(fields, nearest)
    start, snapshots = surrogate.problem.start(case), np.zeros((0, *values.shape))
    normaliser = surrogate.normaliser.at(case.parameters)
    std = np.asarray(normaliser.std, np.float32)
    if start is not None and case.time is not None:
        frames = np.flatnonzero(case.time >= start)
        chosen = slice(int(frames[0]), None, -(-len(frames) // MAX_SNAPSHOTS))
        snapshots = read_states(case, normaliser.channels, chosen) / std
    elif start is None and training is not None:
        shift = np.asarray(normaliser.mean, np.float32) / std
        snapshots = training().at(case.points, without=case.id) + shift
    if len(snapshots) > 1:
        modes = pod(snapshots, fields.volumes, fields.num_anchors)
        projected = modes.fields(values, fields.volumes)
        found[POD] = AnchorFields.of(projected, fields.points, fields.volumes)
    return found


def ablation_effects(
    surrogate: Surrogate, case: StoredCase, start_s: float | None
) -> dict[str, np.ndarray]:
    """Return the change of the prediction without each anchor, (L,), "before" and "after".

    Empty for a model that cannot decode a changed state; no "before" without a processor.
    """
    model, steps = surrogate.model, surrogate.problem.num_steps
    if not isinstance(model, seam.Decodes):
        return {}
    inputs, queries = surrogate.model_inputs(case, start_s)
    num = queries.points.shape[1]
    queries = queries.part(slice(0, num, -(-num // MAX_CELLS)))
    anchors = inputs.anchors
    if anchors is None:
        anchors = model.place_anchors(inputs.points, inputs.mask)

    def decode(Z: Tensor) -> Tensor:
        """States (b, L, d) -> fields (b, m, C) at the same queries."""
        points, features, places = (
            None if each is None else each.expand(len(Z), *each.shape[1:])
            for each in (queries.points, queries.features, anchors)
        )
        assert points is not None
        return model.decode(Z, seam.Queries(points, features), anchors=places)

    def advance(Z: Tensor) -> Tensor:
        return model.rollout(Z, steps)[:, -1] if isinstance(model, seam.Evolves) else Z

    def effects(Z: Tensor, change: Callable[[Tensor], Tensor]) -> np.ndarray:
        kept = 1 - torch.eye(Z.shape[1], device=Z.device, dtype=Z.dtype)
        fields = (decode(change(Z * part[..., None])) for part in kept.split(TOGETHER))
        return torch.cat([(each - whole).square().mean((1, 2)) for each in fields]).cpu().numpy()

    with torch.inference_mode():
        encoded = model.encode(inputs)
        evolves = surrogate.step_s is not None and isinstance(model, seam.Evolves)
        state = advance(encoded) if evolves else encoded
        whole = decode(state)
        found = {"after": effects(state, lambda Z: Z)}
        return found | ({"before": effects(encoded, advance)} if evolves else {})


def ablation_scores(effects: dict[str, np.ndarray], energies: np.ndarray) -> dict[str, float]:
    """Return Spearman's correlations of energies (L,) with the effects of ablations."""
    return {
        f"ablation_{name}": float(spearmanr(energies, values)[0])
        for name, values in effects.items()
        if np.ptp(values) > 0 and np.ptp(energies) > 0
    }


def ranked_fields(surrogate: Surrogate, case: StoredCase, top: int) -> dict[str, np.ndarray]:
    """Return the prediction that `score_case` scores as arrays, in physical units.

    `offset` u_0 (C,), `contributions` (K, M, C) of the `top` strongest anchors, `total` u (M, C);
    of all anchors `energies` E_k (L,) in standard deviations squared, their `ranking` (L,), and the
    `anchors` where they start (L, 3) m. InputError for a model that does not decompose.
    """
    decomposed = surrogate.decomposition(case, start_s=surrogate.problem.shown_start(case))
    volumes = volumes_of(case)
    energies = [
        np.square(fields).sum(axis=-1) @ volumes[where].astype(np.float64)
        for where, fields in last_fields(decomposed)
    ]
    energy = np.sum(energies, axis=0) / volumes.sum(dtype=np.float64)
    ranking = np.argsort(-energy, kind="stable")
    found = {
        "ranking": ranking,
        "energies": energy,
        **contributions_of(surrogate, case, decomposed, ranking[:top]),
        "points": case.points,
        "volumes": volumes,
    }
    places = surrogate.places(decomposed.anchors)
    return found if places is None else found | {"anchors": places}


def last_fields(decomposed: seam.FieldDecomposition) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield parts of the points, and all anchors' fields there at the last step, (L, m, C)."""
    for part in decomposed.chunks(_chunk(decomposed)):
        yield part.queries, part.contributions[0, -1].float().cpu().numpy()


def contributions_of(
    surrogate: Surrogate, case: StoredCase, decomposed: seam.FieldDecomposition, anchors: np.ndarray
) -> dict[str, np.ndarray]:
    """Return `offset`, the `contributions` of some anchors, and `total`, in physical units."""
    normaliser = surrogate.normaliser.at(case.parameters)
    std = np.asarray(normaliser.std, np.float32)
    offset = np.asarray(normaliser.restore(decomposed.offset.cpu().numpy()))
    kept, sums = zip(
        *((fields[anchors], fields.sum(axis=0)) for _, fields in last_fields(decomposed)),
        strict=True,
    )
    return {
        "offset": offset,
        "contributions": np.concatenate(kept, axis=1) * std,
        "total": offset + np.concatenate(sums) * std,
    }


@dataclass(frozen=True)
class AnchorMaps:
    """Maps of A chosen anchors in a prediction of T steps (1 of a steady model) at M points."""

    chosen: np.ndarray  # (A,) numbers of the anchors
    times: np.ndarray | None  # (T,) s; None of a steady model
    dominant: np.ndarray  # anchor of largest decoder weight, heads averaged: (T, M)
    weights: np.ndarray  # decoder weights of the chosen anchors, 0..1: (T, A, M)
    points: np.ndarray  # (M, 3) m
    reading: np.ndarray | None
    """Encoder attention of the chosen anchors to the input points, at each level: (levels, A, N),
    one in sum over the points; None for a model without
    """
    read_points: np.ndarray  # (N, 3) m, the points that the encoder reads
    places: np.ndarray | None  # (L, 3) m; None for anchors without positions
    moved: np.ndarray | None  # (levels, L, 3) m at each level; None where levels move none

    @property
    def displacements(self) -> np.ndarray | None:
        """How far each level has moved each anchor from where it started, (levels, L) m."""
        if self.moved is None or self.places is None:
            return None
        return np.asarray(np.linalg.norm(self.moved - self.places, axis=-1))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all arrays that are there, by name."""
        found = {**vars(self), "displacements": self.displacements}
        return {name: values for name, values in found.items() if values is not None}


def map_anchors(
    surrogate: Surrogate, case: StoredCase, chosen: Sequence[int], start: float | None = None
) -> AnchorMaps:
    """Map some anchors in the prediction of a case that starts at a time.

    InputError for a number that no anchor has, and for a model without weights.
    """
    model, decomposed = surrogate.model, surrogate.decomposition(case, start_s=start)
    first = next(decomposed.chunks(1))
    if not isinstance(first, seam.Partitions):
        raise InputError(
            f"{surrogate.url}: a model of kind {model.config.kind} does not divide the domain among"
            " anchors, so there is nothing to map"
        )
    number = first.weights.shape[-1]
    if wrong := [each for each in chosen if not 0 <= each < number]:
        raise InputError(f"anchor {wrong[0]}: this model has anchors 0 to {number - 1}")
    dominant, weights = [], []
    for part in decomposed.chunks(max(1, MAPPED_WEIGHTS // first.weights.shape[1])):
        assert isinstance(part, seam.Partitions)
        averaged = part.weights[0].mean(dim=1).cpu().numpy()  # (T, m, L)
        dominant.append(np.argmax(averaged, axis=-1))
        weights.append(averaged[..., list(chosen)].swapaxes(1, 2))
    inputs, _ = surrogate.model_inputs(case, start)
    reading, moved = None, []
    if isinstance(model, seam.Reads):
        with torch.inference_mode():
            found = model.reading(inputs, chosen)
        reading = found.weights[0].cpu().numpy()
        moved = [np.asarray(surrogate.places(each)) for each in found.anchors]
    return AnchorMaps(
        chosen=np.array(chosen),
        times=None if start is None else surrogate.times(start),
        dominant=np.concatenate(dominant, axis=1),
        weights=np.concatenate(weights, axis=2),
        points=np.asarray(case.points),
        reading=reading,
        read_points=np.asarray(surrogate.places(inputs.points)),
        places=surrogate.places(decomposed.anchors),
        moved=np.stack(moved) if moved else None,
    )


def representative_anchors(energies: np.ndarray, variance: np.ndarray | None) -> list[int]:
    """Choose three of the stronger half: two that vary most, the steadiest; else the strongest."""
    strong = np.argsort(-energies, kind="stable")[: max(3, len(energies) // 2)]
    if variance is None:
        return [int(each) for each in strong[:3]]
    by_variance = strong[np.argsort(-np.nan_to_num(variance[strong]), kind="stable")]
    return [int(each) for each in dict.fromkeys([*by_variance[:2], by_variance[-1]])]
