"""Put a mesh together from the pieces that a .pvtu lists, one of each process of a parallel run.

Cells that a piece only repeats from its neighbour (ghosts) are left out. A point that an earlier
piece has at the same place is taken from there, so that the borders between pieces come once.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import meshio
import numpy as np

from simgen.errors import InputError
from simgen.imports.mesh_file import read_mesh
from simgen.imports.told import told

_GHOSTS = ("vtkGhostType", "vtkGhostLevels")


def read_pieces(file: Path) -> tuple[Path, ...]:
    """Return the files that a .pvtu puts together; InputError where it cannot be read."""
    try:
        root = ElementTree.parse(file).getroot()
        return tuple(file.parent / each.attrib["Source"] for each in root.iter("Piece"))
    except (ElementTree.ParseError, KeyError, OSError) as error:
        raise InputError(f"{file} is no list of pieces: {told(error)}") from error


def read_whole(file: Path) -> meshio.Mesh:
    """Return the mesh of all pieces; its arrays are those that every piece has."""
    found = [_without_ghosts(read_mesh(piece)) for piece in read_pieces(file)]
    pieces = [each for each in found if len(each.points)]
    if not pieces:
        raise InputError(f"{file} lists no piece with points")
    places = np.concatenate([each.points for each in pieces])
    numbers, kept = _numbered([each.points for each in pieces])
    cells = [
        (block.type, of[block.data])
        for each, of in zip(pieces, numbers, strict=True)
        for block in each.cells
    ]
    on_points = set.intersection(*(set(each.point_data) for each in pieces))
    on_cells = set.intersection(*(set(each.cell_data) for each in pieces))
    return meshio.Mesh(
        places[kept],
        cells,
        point_data={
            name: np.concatenate([each.point_data[name] for each in pieces])[kept]
            for name in pieces[0].point_data
            if name in on_points
        },
        cell_data={
            name: [values for each in pieces for values in each.cell_data[name]]
            for name in pieces[0].cell_data
            if name in on_cells
        },
    )


def _without_ghosts(mesh: meshio.Mesh) -> meshio.Mesh:
    for name in _GHOSTS:
        if name in mesh.cell_data:
            real = [np.asarray(values).ravel() == 0 for values in mesh.cell_data[name]]
            return meshio.Mesh(
                mesh.points,
                [
                    (block.type, block.data[own])
                    for block, own in zip(mesh.cells, real, strict=True)
                ],
                point_data=mesh.point_data,
                cell_data={
                    key: [values[own] for values, own in zip(of, real, strict=True)]
                    for key, of in mesh.cell_data.items()
                },
            )
    return mesh


def _numbered(clouds: list[np.ndarray]) -> tuple[list[np.ndarray], np.ndarray]:
    """Return each piece's points by their numbers in the whole, and which (N,) of all are kept."""
    first: dict[bytes, int] = {}
    numbers: list[np.ndarray] = []
    kept: list[int] = []
    count = at = 0
    for cloud in clouds:
        keys = [row.tobytes() for row in np.ascontiguousarray(cloud) + 0.0]  # no negative zero
        of = np.empty(len(cloud), dtype=np.int64)
        for place, key in enumerate(keys):
            if key in first:
                of[place] = first[key]
                continue
            of[place] = count
            kept.append(at + place)
            count += 1
        # Points of one piece that lie together, as at a thin wall, stay apart.
        first |= dict(zip(keys, of.tolist(), strict=True))
        numbers.append(of)
        at += len(cloud)
    return numbers, np.array(kept, dtype=np.int64)
