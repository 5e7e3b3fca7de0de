"""The boundary of somebody else's steady case: a surface mesh with the kind of each face and what is prescribed there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import meshio
import numpy as np

from courant.data.geometry import DistanceField
from simgen.errors import InputError
from simgen.wall_distance import Faces, distance_to_faces

PATCH = "patch"
"""The cell array with each face's kind, a number in the family's order."""


@dataclass(frozen=True)
class ForeignBoundary:
    """B faces, in the file's order."""

    faces: Faces
    patch: np.ndarray
    """(B,) numbers of patch kinds"""
    arrays: dict[str, np.ndarray]
    """(B, ...) by name, as the file has them"""

    def conditions(self) -> dict[str, np.ndarray]:
        """As a steady model's `predict` takes them."""
        return {**self.arrays, "points": self.faces.centres, "patch": self.patch}

    def distance(self, places: np.ndarray, kinds: Sequence[str]) -> DistanceField:
        """distance (N, K) m and direction (N, K, 3) of the places (N, 3) to the faces of each kind, as datasets have them."""
        missing = [kind for number, kind in enumerate(kinds) if not (self.patch == number).any()]
        if missing:
            raise InputError(
                f"the boundary has no face of kind {', '.join(missing)}; {PATCH} numbers {_numbered(kinds)}"
            )
        fields = [distance_to_faces(places, self.faces, np.flatnonzero(self.patch == k)) for k in range(len(kinds))]
        return np.stack([distance for distance, _ in fields], axis=1), np.stack([way for _, way in fields], axis=1)


def read_boundary(file: Path, mesh: meshio.Mesh, kinds: Sequence[str]) -> ForeignBoundary:
    """The boundary in a mesh of faces; InputError where it is none."""
    wrong = sorted({block.type for block in mesh.cells if block.dim != 2})
    if wrong or not mesh.cells:
        raise InputError(f"{file} holds cells of type {', '.join(wrong) or 'none'}; a boundary is a mesh of faces")
    arrays = {name: np.concatenate(blocks) for name, blocks in mesh.cell_data.items()}
    if PATCH not in arrays:
        raise InputError(f"{file} needs the cell array {PATCH}, with the kind of each face: {_numbered(kinds)}")
    patch = arrays.pop(PATCH)
    if not np.isin(patch, np.arange(len(kinds))).all():
        raise InputError(f"{file}: {PATCH} holds other numbers than {_numbered(kinds)}")
    points = np.asarray(mesh.points, dtype=np.float64)
    sizes = np.concatenate([np.full(len(block.data), block.data.shape[1]) for block in mesh.cells])
    centres = np.concatenate([points[block.data].mean(axis=1) for block in mesh.cells])
    labels = np.concatenate([block.data.ravel() for block in mesh.cells])
    faces = Faces(centres, points, np.concatenate([[0], np.cumsum(sizes)]), labels)
    return ForeignBoundary(faces, patch.astype(np.int64), arrays)


def _numbered(kinds: Sequence[str]) -> str:
    return ", ".join(f"{number} {kind}" for number, kind in enumerate(kinds))
