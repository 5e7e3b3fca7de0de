"""Read a stored case's mesh edges, and compute distance fields where there is no stored case.

A dataset stores distances to the meshed faces; those of design parameters alone are distances to
the exact shapes. They differ by the sagitta of a face: 0.3 % of the radius at the cylinder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from simgen.cell_mesh import CellMesh
from simgen.cell_neighbours import face_neighbours
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.access.stored_case import StoredCase

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
