"""Read mesh files of other programs with meshio."""

from __future__ import annotations

import contextlib
import io
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
            unknown = f"{type(error).__name__}: write it again with zlib or no compression"
            why = told(error) if str(error) else unknown
        raise InputError(f"{file} cannot be read as a mesh: {why}") from error


def cell_centres(mesh: meshio.Mesh) -> np.ndarray:
    """Return (N, 3) m: the mean of each cell's corners."""
    return np.concatenate([mesh.points[block.data].mean(axis=1) for block in mesh.cells])
