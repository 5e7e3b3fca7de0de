"""Read mesh files of other programs with meshio, and ParaView's lists of them."""

from __future__ import annotations

import contextlib
import io
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import meshio
import numpy as np

from simgen.errors import InputError
from simgen.imports.told import told


def read_mesh(file: Path) -> meshio.Mesh:
    """Read a mesh with meshio; raise InputError where it cannot."""
    try:
        silent = io.StringIO()  # for lines of its own
        with contextlib.redirect_stderr(silent), contextlib.redirect_stdout(silent):
            return meshio.read(file)
    # meshio lets its parsers' errors through, and exits the process on an unknown suffix.
    except (Exception, SystemExit) as error:
        if isinstance(error, SystemExit):
            why = f"it is no {file.suffix or 'mesh'} file"
        else:
            why = told(error) if str(error) else type(error).__name__
        raise InputError(f"{file} cannot be read as a mesh: {why}") from error


def largest_cells(mesh: meshio.Mesh) -> meshio.Mesh:
    """Leave out cells of fewer dimensions than others, such as a volume's boundary faces."""
    highest = max((block.dim for block in mesh.cells), default=0)
    kept = [at for at, block in enumerate(mesh.cells) if block.dim == highest]
    return meshio.Mesh(
        mesh.points,
        [mesh.cells[at] for at in kept],
        point_data=mesh.point_data,
        cell_data={name: [of[at] for at in kept] for name, of in mesh.cell_data.items()},
    )


def cell_centres(mesh: meshio.Mesh) -> np.ndarray:
    """Return (N, 3) m: the mean of each cell's corners."""
    return np.concatenate([mesh.points[block.data].mean(axis=1) for block in mesh.cells])


def read_series(file: Path) -> tuple[tuple[float, Path], ...]:
    """Return the times and files that a .pvd lists; InputError where it cannot be read."""
    try:
        root = ElementTree.parse(file).getroot()
        listed = [
            (float(each.attrib["timestep"]), file.parent / each.attrib["file"])
            for each in root.iter("DataSet")
        ]
    except (ElementTree.ParseError, KeyError, ValueError, OSError) as error:
        raise InputError(f"{file} is no list of times: {told(error)}") from error
    if not listed:
        raise InputError(f"{file} lists no file")
    return tuple(sorted(listed))
