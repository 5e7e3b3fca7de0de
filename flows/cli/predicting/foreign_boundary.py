"""Read the boundary of a foreign steady case.

It is a surface mesh with the kind of each face and the prescribed fields.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import meshio
import numpy as np

from courant.data.geometry import DistanceField
from simgen.errors import InputError
from simgen.solving.wall_distance import Faces, distance_to_faces

PATCH = "patch"
"""The cell array with each face's kind, a number in the family's order"""
EXPORTED = {PATCH, "normal", "area"}
"""The point arrays of an exported case's boundary"""


@dataclass(frozen=True)
class ForeignBoundary:
    """B faces, in the file's order."""

    faces: Faces
    patch: np.ndarray
    """(B,) numbers of patch kinds"""
    arrays: dict[str, np.ndarray]
    """(B, ...) by name, as the file has them"""

    def conditions(self) -> dict[str, np.ndarray]:
        """Return the conditions as a steady model's `predict` takes them."""
        return {**self.arrays, "points": self.faces.centres, "patch": self.patch}

    def distance(self, places: np.ndarray, kinds: Sequence[str]) -> DistanceField:
        """Return distance (N, K) m and direction (N, K, 3) from places (N, 3) to the faces.

        They have the form that datasets have.
        """
        missing = [kind for number, kind in enumerate(kinds) if not (self.patch == number).any()]
        if missing:
            raise InputError(
                f"the boundary has no face of kind {', '.join(missing)};"
                f" {PATCH} numbers {_numbered(kinds)}"
            )
        fields = [
            distance_to_faces(places, self.faces, np.flatnonzero(self.patch == k))
            for k in range(len(kinds))
        ]
        return np.stack([distance for distance, _ in fields], axis=1), np.stack(
            [way for _, way in fields], axis=1
        )


def read_boundary(file: Path, mesh: meshio.Mesh, kinds: Sequence[str]) -> ForeignBoundary:
    """Read the boundary from a mesh of faces; InputError where it is none.

    The boundary of an exported case may have the centres of the faces in place of their corners.
    """
    if {block.type for block in mesh.cells} == {"vertex"} and set(mesh.point_data) >= EXPORTED:
        return _read_centres(file, mesh, kinds)
    wrong = sorted({block.type for block in mesh.cells if block.dim != 2})
    if wrong or not mesh.cells:
        raise InputError(
            f"{file} holds cells of type {', '.join(wrong) or 'none'};"
            " a boundary is a mesh of faces"
        )
    arrays = {name: np.concatenate(blocks) for name, blocks in mesh.cell_data.items()}
    if PATCH not in arrays:
        raise InputError(
            f"{file} needs the cell array {PATCH}, with the kind of each face: {_numbered(kinds)}"
        )
    patch = _checked(file, arrays.pop(PATCH), kinds)
    points = np.asarray(mesh.points, dtype=np.float64)
    sizes = np.concatenate([np.full(len(block.data), block.data.shape[1]) for block in mesh.cells])
    centres = np.concatenate([points[block.data].mean(axis=1) for block in mesh.cells])
    labels = np.concatenate([block.data.ravel() for block in mesh.cells])
    faces = Faces(centres, points, np.concatenate([[0], np.cumsum(sizes)]), labels)
    return ForeignBoundary(faces, patch, arrays)


def _read_centres(file: Path, mesh: meshio.Mesh, kinds: Sequence[str]) -> ForeignBoundary:
    """Read the boundary that `courant dataset export-vtu` writes; each face becomes a square."""
    warnings.warn(
        f"{file} has the centres, normals and areas of the faces, not their corners: distances are"
        " to squares of these areas",
        stacklevel=3,
    )
    arrays = {name: np.asarray(values) for name, values in mesh.point_data.items()}
    patch = _checked(file, arrays.pop(PATCH), kinds)
    centres = np.asarray(mesh.points, dtype=np.float64)
    # One edge is perpendicular to the normal and to the axis that is farthest from it.
    axis = np.eye(3)[np.abs(arrays["normal"]).argmin(axis=1)]
    first = np.cross(arrays["normal"], axis)
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    half = 0.5 * np.sqrt(arrays["area"])[:, None]
    first, second = half * first, half * np.cross(arrays["normal"], first)
    corners = np.stack(
        [centres + a * first + b * second for a, b in ((1, 1), (-1, 1), (-1, -1), (1, -1))], axis=1
    ).reshape(-1, 3)
    faces = Faces(centres, corners, np.arange(0, len(corners) + 1, 4), np.arange(len(corners)))
    return ForeignBoundary(faces, patch, arrays)


def _checked(file: Path, patch: np.ndarray, kinds: Sequence[str]) -> np.ndarray:
    if not np.isin(patch, np.arange(len(kinds))).all():
        raise InputError(f"{file}: {PATCH} holds other numbers than {_numbered(kinds)}")
    return patch.astype(np.int64)


def _numbered(kinds: Sequence[str]) -> str:
    return ", ".join(f"{number} {kind}" for number, kind in enumerate(kinds))
