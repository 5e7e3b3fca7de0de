"""Distance field to each kind of boundary: the distance and the unit vector to the nearest point of its faces.

Exact to the faces as they are meshed, not to their centres: the nearest few faces by centre are candidates, and the nearest
point of each of their triangles is computed (Ericson, Real-Time Collision Detection, 5.1.5). Distances to centres
alone are up to 150 % off beside large faces.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from simgen.foam.geometry import MeshGeometry, PatchRange

CANDIDATES = 12


@dataclass(frozen=True)
class Faces:
    """F plane faces: their centres (F, 3), and their corners as labels into points (P, 3), those of face f being
    labels[offsets[f] : offsets[f + 1]]."""

    centres: np.ndarray
    points: np.ndarray
    offsets: np.ndarray
    labels: np.ndarray


def distance_field(geometry: MeshGeometry, patches: list[PatchRange]) -> tuple[np.ndarray, np.ndarray]:
    """Distance (C,) in metres and unit direction (C, 3) from each cell centre to the nearest of the patches' faces."""
    chosen = np.concatenate([np.arange(patch.start, patch.start + patch.size) for patch in patches])
    faces = Faces(geometry.face_centres, geometry.points, geometry.face_offsets, geometry.face_points)
    return distance_to_faces(geometry.centres, faces, chosen)


def distance_to_faces(places: np.ndarray, faces: Faces, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distance (C,) in metres and unit direction (C, 3) from each of the places (C, 3) to the nearest of the chosen faces."""
    tree = cKDTree(faces.centres[chosen])
    _, nearest = tree.query(places, k=min(CANDIDATES, len(chosen)))
    nearest = nearest.reshape(len(places), -1)
    corners, first, count = _triangles(faces, chosen)
    best = np.full(len(places), np.inf)
    target = np.zeros_like(places)
    for column in range(nearest.shape[1]):
        face = nearest[:, column]
        for triangle in range(int(count.max())):
            # Faces with fewer triangles repeat their last one.
            index = first[face] + np.minimum(triangle, count[face] - 1)
            point = _nearest_on_triangle(places, *(corners[index, k] for k in range(3)))
            distance = np.linalg.norm(point - places, axis=1)
            closer = distance < best
            best = np.where(closer, distance, best)
            target[closer] = point[closer]
    direction = (target - places) / np.maximum(best, 1e-12)[:, None]
    return best, direction


def _triangles(faces: Faces, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The chosen faces' fans as corners (K, 3, 3), with each face's first triangle and their number."""
    offsets, labels, points = faces.offsets, faces.labels, faces.points
    count = offsets[chosen + 1] - offsets[chosen] - 2
    first = np.concatenate([[0], np.cumsum(count)[:-1]])
    owner = np.repeat(np.arange(len(chosen)), count)
    step = np.arange(len(owner)) - first[owner]
    base = offsets[chosen][owner]
    corners = np.stack([points[labels[base]], points[labels[base + step + 1]], points[labels[base + step + 2]]], axis=1)
    return corners, first, count


def _nearest_on_triangle(p: np.ndarray, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """The point of triangle abc nearest to p, row by row: the plane's foot where it lies inside, else the nearest edge's."""
    normal = np.cross(b - a, c - a)
    squared = np.maximum(np.einsum("ij,ij->i", normal, normal), 1e-300)
    foot = p - normal * (np.einsum("ij,ij->i", p - a, normal) / squared)[:, None]
    inside = np.ones(len(p), dtype=bool)
    for start, end in ((a, b), (b, c), (c, a)):
        inside &= np.einsum("ij,ij->i", np.cross(end - start, foot - start), normal) >= 0
    result = foot
    best = np.where(inside, -1.0, np.inf)
    for start, end in ((a, b), (b, c), (c, a)):
        edge = end - start
        along = np.einsum("ij,ij->i", p - start, edge) / np.maximum(np.einsum("ij,ij->i", edge, edge), 1e-300)
        point = start + np.clip(along, 0, 1)[:, None] * edge
        distance = np.linalg.norm(point - p, axis=1)
        closer = distance < best
        best = np.where(closer, distance, best)
        result = np.where(closer[:, None], point, result)
    return result
