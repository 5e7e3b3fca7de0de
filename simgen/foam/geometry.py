"""Compute a polyMesh's cell and face geometry in plain numpy, by OpenFOAM's own formulas.

Face centre and area from the fan of triangles around the mean of its points, each weighed by its
own area; cell centre and volume from the pyramids of its faces over the mean of its face centres
(primitiveMesh::calcFaceCentresAndAreas, calcCellCentresAndVols of openfoam.com's v1912, with which
warped faces agree to rounding; openfoam.org's weigh triangles by their area along the face's
normal). VTK's own centres and volumes of polyhedra are off by up to 19 %, which is why they are not
used.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simgen.errors import CaseError
from simgen.foam.mesh_files import (
    PatchRange,
    moved_meshes,
    read_boundary,
    read_faces,
    read_labels,
    read_points,
)

#: Faces in one block: few enough that their arrays stay in the processor's cache.
BLOCK = 2000


@dataclass(frozen=True)
class MeshGeometry:
    """The geometry of a mesh with C cells and F faces, in SI units.

    centres (C, 3), volumes (C,), face_centres (F, 3), face_areas (F, 3) vectors out of the owner
    cell, owner (F,); faces as (offsets (F + 1,), point labels) into points (P, 3).
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


def read_geometry(directory: Path, region: str = "") -> MeshGeometry:
    """Read the geometry of `directory`/constant/polyMesh; CaseError where the mesh moves.

    The mesh of a region lies in constant/<region>/polyMesh.
    """
    if moved := moved_meshes(directory, region):
        raise CaseError(
            f"{directory} has {moved[0]} beside constant/polyMesh: cases whose mesh moves or"
            " changes in time are not read"
        )
    mesh = directory / "constant" / region / "polyMesh"
    points = read_points(mesh / "points")
    offsets, labels = read_faces(mesh / "faces", len(points))
    owner = read_labels(mesh / "owner", len(offsets) - 1)
    if len(owner) != len(offsets) - 1:
        raise CaseError(f"{mesh / 'owner'} has {len(owner)} labels for {len(offsets) - 1} faces")
    neighbour = read_neighbour(directory, len(owner), region)
    patches = read_boundary(mesh / "boundary")
    for name, patch in patches.items():
        if patch.size and not len(neighbour) <= patch.start <= patch.start + patch.size <= len(
            owner
        ):
            raise CaseError(
                f"{mesh / 'boundary'}: the patch {name} has {patch.size} faces from"
                f" {patch.start} on, which the mesh has not"
            )
    face_centres, face_areas = _faces(points, offsets, labels)
    centres, volumes = _cells(face_centres, face_areas, owner, neighbour)
    return MeshGeometry(
        centres=np.ascontiguousarray(centres.T),
        volumes=volumes,
        face_centres=np.ascontiguousarray(face_centres.T),
        face_areas=np.ascontiguousarray(face_areas.T),
        owner=owner,
        patches=patches,
        points=points,
        face_offsets=offsets,
        face_points=labels,
    )


def read_neighbour(directory: Path, num_faces: int, region: str = "") -> np.ndarray:
    """Read the cell behind each internal face, (F internal,)."""
    return read_labels(directory / "constant" / region / "polyMesh" / "neighbour", num_faces)


def _faces(
    points: np.ndarray, offsets: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return centres and area vectors (3, F), in blocks of faces with equally many corners."""
    sizes = np.diff(offsets)
    centres, areas = np.empty((3, len(sizes))), np.empty((3, len(sizes)))
    components = np.ascontiguousarray(points.T)
    for size in np.flatnonzero(np.bincount(sizes)):
        of_size = np.flatnonzero(sizes == size)
        for begin in range(0, len(of_size), BLOCK):
            block = of_size[begin : begin + BLOCK]
            corners = labels[offsets[block] + np.arange(size)[:, None]]
            centres[:, block], areas[:, block] = _fans(components.take(corners, axis=1))
    return centres, areas


def _fans(corners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Turn corners (3, k, n) of n faces into centres and area vectors, (3, n)."""
    middle = corners.mean(axis=1)
    spoke = corners - middle[:, None]
    following = np.roll(spoke, -1, axis=1)
    (x, y, z), (next_x, next_y, next_z) = spoke, following
    triangle = np.stack(
        [y * next_z - z * next_y, z * next_x - x * next_z, x * next_y - y * next_x]
    )  # twice its area
    area = triangle.sum(axis=1)
    weight = np.sqrt(np.einsum("cin,cin->in", triangle, triangle))
    shift = ((spoke + following) * weight).sum(axis=1)
    return middle + shift / np.maximum(3 * weight.sum(axis=0), 1e-300), 0.5 * area


def _cells(
    face_centres: np.ndarray, face_areas: np.ndarray, owner: np.ndarray, neighbour: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return centres (3, C) and volumes (C,) from the faces' centres and area vectors (3, F)."""
    # The last cell may own no face.
    num_cells = int(max(owner.max(initial=-1), neighbour.max(initial=-1))) + 1
    internal = slice(len(neighbour))

    def total(of_owner: np.ndarray, of_neighbour: np.ndarray) -> np.ndarray:
        return np.bincount(owner, of_owner, num_cells) + np.bincount(
            neighbour, of_neighbour, num_cells
        )

    count = np.bincount(owner, minlength=num_cells) + np.bincount(neighbour, minlength=num_cells)
    estimate = np.stack([total(x, x[internal]) / count for x in face_centres])
    # Vectors from the estimate to the faces' centres, and volumes of the pyramids over the faces.
    arm = face_centres - estimate.take(owner, axis=1)
    back = face_centres[:, internal] - estimate.take(neighbour, axis=1)
    pyramid = np.einsum("cf,cf->f", face_areas, arm) / 3
    behind = np.einsum("cf,cf->f", face_areas[:, internal], back) / -3
    volume = total(pyramid, behind)
    # A pyramid's centre lies three quarters of the way to its base.
    shift = np.stack([total(pyramid * x, behind * y) for x, y in zip(arm, back, strict=True)])
    return estimate + 0.75 * shift / volume, volume
