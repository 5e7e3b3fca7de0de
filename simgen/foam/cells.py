"""Turn a polyMesh, which lists faces, into cells by their corners in VTK's order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from simgen.cell_mesh import HEXAHEDRON, POLYGON, PYRAMID, QUAD, TETRA, TRIANGLE, WEDGE, CellMesh
from simgen.foam.geometry import MeshGeometry

Face = list[int]
_OF_SIZES = {
    (3, 3, 3, 3): TETRA,
    (3, 3, 3, 3, 4): PYRAMID,
    (3, 3, 4, 4, 4): WEDGE,
    (4, 4, 4, 4, 4, 4): HEXAHEDRON,
}
_OF_FACE = {3: TRIANGLE, 4: QUAD}


def cell_mesh(
    geometry: MeshGeometry, neighbour: np.ndarray, boundary: np.ndarray
) -> CellMesh | None:
    """Return the mesh with the faces `boundary`; None if a cell is a polyhedron of another kind.

    `neighbour` (F internal,) is the cell behind each internal face.
    """
    corners = np.split(geometry.face_points, geometry.face_offsets[1:-1])
    faces: list[Face] = [each.tolist() for each in corners]
    entries: list[int] = []
    for around in _faces_of_cells(geometry, neighbour, faces):
        cell = vtk_cell(around)
        if cell is None:
            return None
        kind, labels = cell
        entries += [kind, len(labels), *labels]
    for face in boundary.tolist():
        entries += [_OF_FACE.get(len(faces[face]), POLYGON), len(faces[face]), *faces[face]]
    return CellMesh(geometry.points, np.array(entries, dtype="i4"))


def _faces_of_cells(
    geometry: MeshGeometry, neighbour: np.ndarray, faces: Sequence[Face]
) -> Iterator[list[Face]]:
    """Yield the faces of each cell, every one turned so that its normal points out of the cell."""
    around: list[list[Face]] = [[] for _ in range(len(geometry.centres))]
    for face, cell in zip(faces, geometry.owner.tolist(), strict=True):
        around[cell].append(face)
    for face, cell in zip(faces, neighbour.tolist(), strict=False):  # internal faces come first
        around[cell].append(face[::-1])
    yield from around


def vtk_cell(faces: Sequence[Face]) -> tuple[int, list[int]] | None:
    """Return the VTK type and corners of a cell with these outward faces; None if it has none."""
    kind = _OF_SIZES.get(tuple(sorted(len(face) for face in faces)))
    if kind is None:
        return None
    if kind in (TETRA, PYRAMID):
        base = max(faces, key=len)[::-1]
        rest = {corner for face in faces for corner in face} - set(base)
        return (kind, [*base, *rest]) if len(rest) == 1 else None
    # The normal of a wedge's base points out of it in VTK, that of a hexahedron's into it.
    base = min(faces, key=len) if kind == WEDGE else faces[0][::-1]
    above: dict[int, int] = {}
    for face in faces:
        for here, there in zip(face, face[1:] + face[:1], strict=True):
            if here in base and there not in base:
                above[here] = there
    top = [above[corner] for corner in base if corner in above]
    return (kind, [*base, *top]) if len({*base, *top}) == 2 * len(base) else None
