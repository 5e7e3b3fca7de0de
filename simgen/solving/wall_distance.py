"""Compute the distance and unit vector to the nearest point of each kind of boundary.

Exact for the meshed faces, each a fan of triangles: libigl's tree of bounding boxes finds the
nearest point of all of them. Distances to the faces' centres are up to 150 % off beside large
faces, and the nearest face is not always one of the dozen whose centres are nearest.
"""

from __future__ import annotations

from dataclasses import dataclass

import igl
import numpy as np

from simgen.foam.geometry import MeshGeometry, PatchRange


@dataclass(frozen=True)
class Faces:
    """F plane faces: their centres (F, 3), and their corners as labels into points (P, 3).

    The corners of face f are labels[offsets[f] : offsets[f + 1]].
    """

    centres: np.ndarray
    points: np.ndarray
    offsets: np.ndarray
    labels: np.ndarray


def distance_field(
    geometry: MeshGeometry, patches: list[PatchRange]
) -> tuple[np.ndarray, np.ndarray]:
    """Return distance (C,) m and unit direction (C, 3) from cell centres to the patches' faces."""
    chosen = np.concatenate([np.arange(patch.start, patch.start + patch.size) for patch in patches])
    faces = Faces(
        geometry.face_centres, geometry.points, geometry.face_offsets, geometry.face_points
    )
    return distance_to_faces(geometry.centres, faces, chosen)


def distance_to_faces(
    places: np.ndarray, faces: Faces, chosen: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return distance (C,) m and direction (C, 3) from the places (C, 3) to the chosen faces."""
    corners = _triangles(faces, chosen).reshape(-1, 3)
    triangles = np.arange(len(corners)).reshape(-1, 3)
    _, _, nearest = igl.point_mesh_squared_distance(
        np.ascontiguousarray(places, dtype=np.float64), corners, triangles
    )
    distance = np.linalg.norm(nearest - places, axis=1)
    return distance, (nearest - places) / np.maximum(distance, 1e-12)[:, None]


def _triangles(faces: Faces, chosen: np.ndarray) -> np.ndarray:
    """Return the chosen faces' fans of triangles, as corners (K, 3, 3)."""
    offsets, labels, points = faces.offsets, faces.labels, faces.points
    count = offsets[chosen + 1] - offsets[chosen] - 2
    first = np.concatenate([[0], np.cumsum(count)[:-1]])
    owner = np.repeat(np.arange(len(chosen)), count)
    step = np.arange(len(owner)) - first[owner]
    base = offsets[chosen][owner]
    fan = np.stack([labels[base], labels[base + step + 1], labels[base + step + 2]], axis=1)
    return points[fan]
