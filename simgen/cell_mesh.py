"""Hold the cells and boundary faces of a case's mesh by their corners, for drawing.

`entries` lists the cells in the order of the cloud's points, then the faces in the order of the
boundary's: for each its VTK type, its number of corners, and these as rows of `points`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simgen.errors import InputError

TRIANGLE, POLYGON, QUAD, TETRA, HEXAHEDRON, WEDGE, PYRAMID = 5, 7, 9, 10, 12, 13, 14
"""VTK's numbers"""
NAMES = {
    TRIANGLE: "triangle",
    POLYGON: "polygon",
    QUAD: "quad",
    TETRA: "tetra",
    HEXAHEDRON: "hexahedron",
    WEDGE: "wedge",
    PYRAMID: "pyramid",
}
"""meshio's names"""


@dataclass(frozen=True)
class CellMesh:
    """P corners, N cells and B boundary faces."""

    points: np.ndarray
    """(P, 3) m, of the type of the case's points"""
    entries: np.ndarray
    """(E,) i4"""

    def check(self, num_cells: int, num_faces: int) -> None:
        """Raise InputError unless it has so many cells and faces, with corners that exist."""
        if self.points.ndim != 2 or self.points.shape[1] != 3 or self.entries.ndim != 1:
            raise InputError(
                f"mesh: points have shape {self.points.shape}, entries {self.entries.shape},"
                " expected (P, 3) and (E,)"
            )
        if not np.isfinite(self.points).all():
            raise InputError("mesh: points hold values that are not finite")
        starts = self.starts
        if len(starts) != num_cells + num_faces:
            raise InputError(
                f"mesh: it has {len(starts)} cells and faces, expected {num_cells} and {num_faces}"
            )
        if not np.isin(self.entries[starts], list(NAMES)).all():
            raise InputError(f"mesh: a cell is none of {', '.join(NAMES.values())}")
        is_label = np.ones(len(self.entries), dtype=bool)
        is_label[starts] = is_label[starts + 1] = False
        labels = self.entries[is_label]
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(self.points):
            raise InputError("mesh: a corner is none of its points")

    @cached_property
    def starts(self) -> np.ndarray:
        """Where each cell, then each face, begins in `entries`."""
        entries, starts, at = self.entries.tolist(), [], 0
        while at < len(entries):
            starts.append(at)
            size = entries[at + 1] if at + 1 < len(entries) else 0
            at += 2 + size
            if size < 1 or at > len(entries):
                raise InputError("mesh: its entries are cut short")
        return np.array(starts, dtype=np.int64)

    def blocks(self, first: int, number: int) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """Group entries by type: VTK type, corners (k, n), and which of the entries (k,)."""
        starts = self.starts[first : first + number]
        kinds = np.stack([self.entries[starts], self.entries[starts + 1]], axis=1)
        found = []
        for kind, size in np.unique(kinds, axis=0).tolist():
            members = np.flatnonzero((kinds == (kind, size)).all(axis=1))
            corners = self.entries[starts[members][:, None] + 2 + np.arange(size)]
            found.append((kind, corners, members))
        return found
