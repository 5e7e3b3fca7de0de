"""Read a stored case's mesh edges, and compute distance fields where there is no stored case.

A dataset stores distances to the meshed faces; those of design parameters alone are distances to
the exact shapes. They differ by the sagitta of a face: 0.3 % of the radius at the cylinder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from courant.model.coordinates import farthest_point_sampling, gather_points
from simgen.cell_mesh import CellMesh
from simgen.cell_neighbours import face_neighbours
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.read import StoredCase


# As in simgen.cases.cylinder.family; repeated, because a machine that only predicts has no mesher
# to import.
INLET_X, OUTLET_X, HALF_HEIGHT = -20.0, 40.0, 10.0

DistanceField = tuple[np.ndarray, np.ndarray]
"""distance (N, K) m and direction (N, K, 3), a unit vector to the nearest boundary point of each
patch kind
"""


def check_mesh(case: StoredCase) -> None:
    """Raise InputError for a case without a mesh on record."""
    _mesh_of(case)


def read_edges(case: StoredCase) -> np.ndarray:
    """Return (N, k) i4, the cells that share a face with each of a case's; InputError without."""
    return face_neighbours(_mesh_of(case), case.num_points)


def stack_edges(lists: Sequence[np.ndarray], most: int) -> Tensor:
    """Stack neighbour lists (N, k) to (K, most, most k), with -1 where there is none."""
    width = max(each.shape[1] for each in lists)
    padded = [
        np.pad(each, ((0, most - len(each)), (0, width - each.shape[1])), constant_values=-1)
        for each in lists
    ]
    return torch.from_numpy(np.stack(padded))


def _mesh_of(case: StoredCase) -> CellMesh:
    mesh = case.mesh
    if mesh is None:
        raise InputError(
            f'case {case.id} has no mesh on record, whose edges model.edges = "mesh" reads; set it'
            ' to "nearest"'
        )
    return mesh


def distance_field(
    family: str, points: np.ndarray, parameters: Mapping[str, float]
) -> DistanceField:
    """Compute the distance field of (N, 3) points in a family's geometry.

    Patch kinds come in the family's order. InputError for a family whose shapes have no closed form
    here: give the distance field itself.
    """
    if family not in _FIELDS:
        raise InputError(
            f"no distance field from the parameters of {family} alone; pass distance=(distance,"
            " direction), as a stored case has"
        )
    return _FIELDS[family](points, parameters)


def _cylinder_flow(points: np.ndarray, parameters: Mapping[str, float]) -> DistanceField:
    """Compute the kinds inlet, outlet, wall and cylinder."""
    x, y = points[:, 0], points[:, 1]
    zero = np.zeros_like(x)
    side = np.where(y >= 0, 1.0, -1.0)
    dx, dy = parameters["center_x"] - x, parameters["center_y"] - y
    to_centre = np.maximum(np.hypot(dx, dy), 1e-12)
    distance = np.stack(
        [x - INLET_X, OUTLET_X - x, HALF_HEIGHT - np.abs(y), to_centre - parameters["radius"]],
        axis=1,
    )
    direction = np.stack(
        [
            np.stack([zero - 1, zero, zero], axis=1),
            np.stack([zero + 1, zero, zero], axis=1),
            np.stack([zero, side, zero], axis=1),
            np.stack([dx / to_centre, dy / to_centre, zero], axis=1),
        ],
        axis=1,
    )
    outside = int((distance < 0).any(axis=1).sum())
    if outside:
        raise InputError(
            f"{outside} of {len(points)} points lie outside the channel or inside the cylinder;"
            " leave them out"
        )
    return distance, direction


_FIELDS: dict[str, Callable[[np.ndarray, Mapping[str, float]], DistanceField]] = {
    "cylinder-flow": _cylinder_flow
}


GROUP = 8
"""Points that stand for the volume of one anchor"""
ROUNDS = 20
"""Of Lloyd's iteration; anchors hardly move after these"""


@dataclass(frozen=True)
class AnchorChoice:
    """How many anchors are sampled from each cloud, and how they are spread.

    Nothing of it is learned: the same cloud has the same anchors in training and prediction.
    """

    num: int
    by: Literal["distance", "volume"] = "distance"

    def among(self, points: Tensor, mask: Tensor | None = None) -> Tensor:
        """Choose (B, L, 3) anchors among (B, N, 3) normalised points.

        `mask` (B, N) is True at real points. Farthest point sampling starts from the point nearest
        the centroid.
        """
        if self.num == 0:
            return points.new_zeros(len(points), 0, points.shape[-1])
        if self.by == "volume":
            return self._in_the_middle(points, mask)
        return gather_points(points, farthest_point_sampling(points, self.num, mask))

    def _in_the_middle(self, points: Tensor, mask: Tensor | None) -> Tensor:
        real = [slice(None)] * len(points) if mask is None else list(mask)
        return torch.stack(
            [self._of_one(cloud[here][None]) for cloud, here in zip(points, real, strict=True)]
        )

    def _of_one(self, cloud: Tensor) -> Tensor:
        """Return (L, 3), of a cloud (1, N, 3) without padding; zeros where it has no point."""
        if not cloud.shape[1]:
            return cloud.new_zeros(self.num, cloud.shape[-1])
        chosen = farthest_point_sampling(cloud, min(GROUP * self.num, cloud.shape[1]))
        middles = _middles(gather_points(cloud, chosen)[0], self.num)
        return cloud[0, torch.cdist(middles, cloud[0]).argmin(dim=1)]


def _middles(points: Tensor, num: int) -> Tensor:
    """Divide points (K, 3) into `num` compact groups, and return their means, (num, 3).

    It starts from the first `num` points, which farthest point sampling put far apart.
    """
    # Fewer points than anchors: some share one, as in farthest point sampling.
    middles = points[torch.arange(num, device=points.device) % len(points)]
    for _ in range(ROUNDS):
        group = torch.cdist(points, middles).argmin(dim=1)
        count = torch.zeros(num, device=points.device).index_add_(
            0, group, torch.ones(len(points), device=points.device)
        )
        total = torch.zeros_like(middles).index_add_(0, group, points)
        means = total / count.clamp(min=1)[:, None]
        middles = torch.where(count[:, None] > 0, means, middles)
    return middles
