"""Read a stored case's mesh edges, choose anchors, and compute distance fields of designs.

A dataset stores distances to the meshed faces; those of design parameters alone are distances to
the exact shapes. They differ by the sagitta of a face: 0.3 % of the radius at the cylinder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from courant.model.coordinates import farthest_point_sampling, gather_points
from simgen.cell_mesh import face_neighbours
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.read import StoredCase

# As in simgen.cases.cylinder.family; repeated, because a machine that only predicts has no mesher
# to import.
INLET_X, OUTLET_X, HALF_HEIGHT = -20.0, 40.0, 10.0
GROUP = 8  # Points that represent the volume of one anchor
ROUNDS = 20  # Rounds of Lloyd's iteration; anchors hardly move after these

DistanceField = tuple[np.ndarray, np.ndarray]
"""distance (N, K) m and direction (N, K, 3), unit vectors, to the nearest point of each kind"""


def read_edges(case: StoredCase) -> np.ndarray:
    """Return (N, k) i4, the cells that share a face with each of a case's; InputError without."""
    mesh = case.mesh
    if mesh is None:
        raise InputError(
            f'case {case.id} has no mesh on record, whose edges model.edges = "mesh" reads; set it'
            ' to "nearest"'
        )
    return face_neighbours(mesh, case.num_points)


def distance_field(
    family: str, points: np.ndarray, parameters: Mapping[str, float]
) -> DistanceField:
    """Compute the distance field of (N, 3) points in a family's geometry.

    Patch kinds come in the family's order: inlet, outlet, wall and cylinder. InputError for a
    family whose shapes have no closed form here: give the distance field itself.
    """
    if family != "cylinder-flow":
        raise InputError(
            f"no distance field from the parameters of {family} alone; pass distance=(distance,"
            " direction), as a stored case has"
        )
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


@dataclass(frozen=True)
class AnchorChoice:
    """How many anchors are sampled from each cloud, and how they are spread; nothing is learned."""

    num: int
    by: Literal["distance", "volume"] = "distance"

    def among(self, points: Tensor, mask: Tensor | None = None) -> Tensor:
        """Choose (B, L, 3) anchors among (B, N, 3) normalised points.

        `mask` (B, N) is True at real points. Farthest point sampling starts from the point nearest
        the centroid.
        """
        if self.num == 0:
            return points.new_zeros(len(points), 0, points.shape[-1])
        if self.by == "distance":
            return gather_points(points, farthest_point_sampling(points, self.num, mask))
        clouds = points if mask is None else [c[m] for c, m in zip(points, mask, strict=True)]
        return torch.stack([self._in_the_middle(cloud[None]) for cloud in clouds])

    def _in_the_middle(self, cloud: Tensor) -> Tensor:
        """Return (L, 3), points in the middle of parts of about equal volume of (1, N, 3)."""
        if not cloud.shape[1]:
            return cloud.new_zeros(self.num, cloud.shape[-1])
        chosen = farthest_point_sampling(cloud, min(GROUP * self.num, cloud.shape[1]))
        points = gather_points(cloud, chosen)[0]
        # The first ones are far apart. Fewer points than anchors: some share one.
        middles = points[torch.arange(self.num, device=points.device) % len(points)]
        for _ in range(ROUNDS):
            group = torch.cdist(points, middles).argmin(dim=1)
            count = torch.zeros(self.num, device=points.device).index_add_(
                0, group, torch.ones(len(points), device=points.device)
            )
            total = torch.zeros_like(middles).index_add_(0, group, points)
            means = total / count.clamp(min=1)[:, None]
            middles = torch.where(count[:, None] > 0, means, middles)
        return cloud[0, torch.cdist(middles, cloud[0]).argmin(dim=1)]
