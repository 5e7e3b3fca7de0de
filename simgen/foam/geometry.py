"""Cell and face geometry of a polyMesh in plain numpy, by OpenFOAM's own formulas.

Face centre and area from the fan of triangles around the mean of its points; cell centre and volume from the pyramids
of its faces over the mean of its face centres (primitiveMesh::calcFaceCentresAndAreas, calcCellCentresAndVols).
VTK's own centres and volumes of polyhedra are off by up to 19 %, which is why they are not used.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simgen.foam.field import read_boundary, read_faces, read_list


@dataclass(frozen=True)
class PatchRange:
    """A patch's type and its contiguous range of faces."""

    type: str
    start: int
    size: int

    @property
    def faces(self) -> slice:
        return slice(self.start, self.start + self.size)


@dataclass(frozen=True)
class MeshGeometry:
    """Geometry of a mesh with C cells and F faces, SI units.

    centres (C, 3), volumes (C,), face_centres (F, 3), face_areas (F, 3) vectors out of the owner cell, owner (F,);
    faces as (offsets (F + 1,), point labels) into points (P, 3).
    """

    centres: np.ndarray
    volumes: np.ndarray
    face_centres: np.ndarray
    face_areas: np.ndarray
    owner: np.ndarray
    patches: dict[str, PatchRange]
    points: np.ndarray
    face_offsets: np.ndarray
    face_points: np.ndarray


def read_geometry(directory: Path) -> MeshGeometry:
    """The geometry of `directory`/constant/polyMesh."""
    mesh = directory / "constant" / "polyMesh"
    points = read_list(mesh / "points", 3)
    offsets, labels = read_faces(mesh / "faces")
    owner = read_list(mesh / "owner", 1, "label")[:, 0].astype(np.int64)
    neighbour = read_list(mesh / "neighbour", 1, "label")[:, 0].astype(np.int64)
    patches = {name: PatchRange(*entry) for name, entry in read_boundary(mesh / "boundary").items()}
    face_centres, face_areas = _faces(points, offsets, labels)
    centres, volumes = _cells(face_centres, face_areas, owner, neighbour)
    return MeshGeometry(centres, volumes, face_centres, face_areas, owner, patches, points, offsets, labels)


def _faces(points: np.ndarray, offsets: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    sizes = np.diff(offsets)
    face_of_corner = np.repeat(np.arange(len(sizes)), sizes)
    corner = points[labels]
    # Each corner's successor around its face; the last one's is the first.
    following = np.arange(1, len(labels) + 1)
    following[offsets[1:] - 1] = offsets[:-1]
    next_corner = corner[following]
    middle = np.add.reduceat(corner, offsets[:-1]) / sizes[:, None]
    apex = middle[face_of_corner]
    triangle_area = 0.5 * np.cross(next_corner - corner, apex - corner)
    area = np.add.reduceat(triangle_area, offsets[:-1])
    # OpenFOAM weighs each triangle by its area along the face's normal.
    normal = area / np.maximum(np.linalg.norm(area, axis=1), 1e-300)[:, None]
    weight = np.einsum("ij,ij->i", triangle_area, normal[face_of_corner])
    weighted = np.add.reduceat(weight[:, None] * (corner + next_corner + apex) / 3, offsets[:-1])
    total = np.add.reduceat(weight, offsets[:-1])
    centre = np.where(total[:, None] > 1e-300, weighted / np.maximum(total, 1e-300)[:, None], middle)
    return centre, area


def _cells(
    face_centres: np.ndarray, face_areas: np.ndarray, owner: np.ndarray, neighbour: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    num_cells = int(owner.max()) + 1
    internal = len(neighbour)
    cell = np.concatenate([owner, neighbour])
    centre = np.concatenate([face_centres, face_centres[:internal]])
    area = np.concatenate([face_areas, -face_areas[:internal]])

    def total(values: np.ndarray) -> np.ndarray:
        return np.bincount(cell, values, minlength=num_cells)

    count = total(np.ones(len(cell)))
    estimate = np.stack([total(centre[:, axis]) for axis in range(3)], axis=1) / count[:, None]
    pyramid = np.einsum("ij,ij->i", area, centre - estimate[cell]) / 3
    pyramid_centre = 0.75 * centre + 0.25 * estimate[cell]
    volume = total(pyramid)
    weighted = np.stack([total(pyramid * pyramid_centre[:, axis]) for axis in range(3)], axis=1)
    return weighted / volume[:, None], volume
