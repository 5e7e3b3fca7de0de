"""Read mesh files in a process of their own: VTK's formats with VTK, others with meshio.

Readers allocate what a file's header asks for, and VTK ends its process where that fails or where a
file is damaged. So a child reads the files: its memory is bounded by their size (on Linux, by the
kernel), and a file that ends it costs one case.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import meshio
import numpy as np

from simgen.errors import CaseError, InputError
from simgen.imports.source_case import one_line

MESHES = frozenset({".vtu", ".vtk", ".vti", ".vtr", ".vts", ".vtp"})
"""Suffixes of files that VTK reads"""
MEMORY, MEMORY_A_BYTE = 256 << 20, 100
"""Bytes of memory for a snapshot: so many, and so many for each byte of its files"""
GHOSTS = "vtkGhostType"
HIDDEN_CELL, HIDDEN_POINT = 1 | 8 | 32, 1 | 2
"""Its bits: repeated from another piece, refined, hidden"""
_SERVE = "from simgen.imports.vtk_reader import serve; serve()"
_PIXEL, _VOXEL = [0, 1, 3, 2], [0, 1, 3, 2, 4, 5, 7, 6]
#: VTK's types of cells: meshio's names, and where meshio has another order, VTK's corners in it.
_MESHIO: dict[int, tuple[str, list[int] | None]] = {
    1: ("vertex", None),
    3: ("line", None),
    5: ("triangle", None),
    7: ("polygon", None),
    8: ("quad", _PIXEL),
    9: ("quad", None),
    10: ("tetra", None),
    11: ("hexahedron", _VOXEL),
    12: ("hexahedron", None),
    13: ("wedge", [0, 2, 1, 3, 5, 4]),
    14: ("pyramid", None),
    21: ("line3", None),
    22: ("triangle6", None),
    23: ("quad8", None),
    24: ("tetra10", None),
    25: ("hexahedron20", None),
    26: ("wedge15", None),
    27: ("pyramid13", None),
    28: ("quad9", None),
    29: ("hexahedron27", None),
}


@dataclass(frozen=True)
class Snapshot:
    """Arrays on the cells or the points of a mesh."""

    on: Literal["cells", "points"]
    places: np.ndarray
    """(N, 3) m: each cell's mean of corners, or the points"""
    values: Mapping[str, np.ndarray]
    """(N, C) by the array's name"""
    extent: np.ndarray
    """(3,) m of its points"""


def has_vtk() -> bool:
    """Return whether VTK is installed."""
    return importlib.util.find_spec("vtkmodules") is not None


class MeshReader:
    """The process that reads; a context, which ends it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> MeshReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def read(self, files: Sequence[Path], arrays: Sequence[str]) -> Snapshot:
        """Read the parts of one mesh; InputError or CaseError where VTK cannot, or an array lacks.

        Parts of fewer dimensions than others (a volume's boundary) are left out, as are repeated
        and hidden cells. A cell or point that an earlier part has at the same place is that part's.
        """
        snapshot: Snapshot = self._ask(tuple(files), tuple(arrays))
        return snapshot

    def read_mesh(self, file: Path) -> meshio.Mesh:
        """Read a mesh with all its arrays, cells in the file's order; InputError where it cannot.

        A format of VTK's is read by meshio where VTK is not installed.
        """
        mesh: meshio.Mesh = self._ask((file,), None)
        return mesh

    def _ask(self, files: tuple[Path, ...], arrays: tuple[str, ...] | None) -> Any:
        if self._process is None:
            # Threads would reserve memory of their own.
            alone = {"VTK_SMP_BACKEND_IN_USE": "Sequential", "OPENBLAS_NUM_THREADS": "1"}
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SERVE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **alone, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        child = self._process
        assert child.stdin is not None and child.stdout is not None
        limit = MEMORY + MEMORY_A_BYTE * sum(file.stat().st_size for file in files)
        try:
            pickle.dump((files, arrays, limit), child.stdin)
            child.stdin.flush()
            found = pickle.load(child.stdout)
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise InputError(
                f"{files[0]} cannot be read as a mesh: its reader ended with {self._end()}; it is"
                f" damaged or, written without compression, would be more than {MEMORY_A_BYTE}"
                " times as large"
            ) from error
        except BaseException:
            child.kill()  # half of an answer may be on its way
            self._end()
            raise
        if isinstance(found, Exception):
            raise found
        return found

    def _end(self) -> str:
        """End the process; return what it ended with."""
        child, self._process = self._process, None
        if child is None:
            return ""
        with child:  # closes its input, at which it ends
            pass
        return signal.Signals(-child.returncode).name if child.returncode < 0 else "an error"


def serve() -> None:
    """Answer requests on standard input with meshes or errors, until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's end is this one's
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # for lines of the readers' own
    try:
        held = int(Path("/proc/self/statm").read_text().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # the system does not count a process's bytes of data
        held = 0
    while True:
        try:
            files, arrays, limit = pickle.load(requests)
        except EOFError:
            return
        try:
            if held:
                import resource

                _, most = resource.getrlimit(resource.RLIMIT_DATA)
                bound = held + limit if most == resource.RLIM_INFINITY else min(held + limit, most)
                resource.setrlimit(resource.RLIMIT_DATA, (bound, most))
            found = _whole(files[0]) if arrays is None else _read(files, arrays)
            answer = pickle.dumps(found)
        except (CaseError, InputError) as error:
            answer = pickle.dumps(error)
        except MemoryError:
            os.abort()
        # meshio lets its parsers' errors through, and exits the process on an unknown suffix.
        except (Exception, SystemExit) as error:
            why = one_line(error) if str(error) else type(error).__name__
            if isinstance(error, SystemExit):
                why = f"it is no {files[0].suffix or 'mesh'} file"
            answer = pickle.dumps(InputError(f"{files[0]} cannot be read as a mesh: {why}"))
        answers.write(answer)
        answers.flush()


def _whole(file: Path) -> meshio.Mesh:
    """Read a file with all its arrays; InputError where a cell cannot be written again."""
    if file.suffix.lower() in MESHES and has_vtk():
        mesh = _as_meshio(file, _joined([_part(file)]))
    else:
        mesh = meshio.read(file)
        mesh = meshio.Mesh(mesh.points, mesh.cells, mesh.point_data, mesh.cell_data)
    points = np.asarray(mesh.points, dtype=float)
    mesh.points = np.pad(points, ((0, 0), (0, 3 - points.shape[1])))
    for block in mesh.cells:
        if block.type.startswith("polyhedron"):
            raise InputError(f"{file} holds polyhedra, which are not written again")
        if block.data.size and not 0 <= block.data.min() <= block.data.max() < len(points):
            raise InputError(f"{file} is damaged: a cell has a corner that is none of its points")
    return mesh


def _as_meshio(file: Path, mesh: Any) -> meshio.Mesh:
    """Convert VTK's mesh; cells that follow each other and are of one type are a block."""
    from vtkmodules.util.numpy_support import vtk_to_numpy

    cells = mesh.GetCells()
    types = vtk_to_numpy(mesh.GetCellTypes()) if mesh.GetNumberOfCells() else np.empty(0, int)
    offsets = vtk_to_numpy(cells.GetOffsetsArray())
    corners = vtk_to_numpy(cells.GetConnectivityArray())
    if unknown := sorted(set(types.tolist()) - set(_MESHIO)):
        raise InputError(f"{file} holds cells of VTK's type {unknown[0]}, which are not written")
    sizes = np.diff(offsets)
    changes = (types[1:] != types[:-1]) | (sizes[1:] != sizes[:-1])
    starts = np.flatnonzero(np.concatenate([[True], changes])[: len(types)])
    blocks = []
    for start, end in zip(starts, [*starts[1:], len(types)], strict=True):
        name, order = _MESHIO[int(types[start])]
        data = corners[offsets[start] : offsets[end]].reshape(end - start, -1)
        blocks.append((name, data if order is None else data[:, order]))
    on_cells, on_points = mesh.GetCellData(), mesh.GetPointData()
    return meshio.Mesh(
        vtk_to_numpy(mesh.GetPoints().GetData()),
        blocks,
        {name: vtk_to_numpy(on_points.GetArray(name)) for name in _names(on_points)},
        {
            name: np.split(vtk_to_numpy(on_cells.GetArray(name)), starts[1:])
            for name in (_names(on_cells) if blocks else ())
        },
    )


def _read(files: Sequence[Path], arrays: Sequence[str]) -> Snapshot:
    from vtkmodules.util.numpy_support import vtk_to_numpy
    from vtkmodules.vtkCommonDataModel import vtkCellTypeUtilities

    found = {file: part for file in files if (part := _part(file)).GetNumberOfPoints()}
    if not found:
        raise CaseError(f"{files[0]} has no points")
    dimension = max(part.GetMaxSpatialDimension() for part in found.values())
    found = {
        file: part for file, part in found.items() if part.GetMaxSpatialDimension() == dimension
    }
    parts = list(found.values())
    on_cells = set.intersection(*(_names(part.GetCellData()) for part in parts))
    on_points = set.intersection(*(_names(part.GetPointData()) for part in parts))
    if missing := [name for name in arrays if name not in on_points | on_cells]:
        there = ", ".join(sorted(on_points | on_cells)) or "none"
        raise CaseError(f"it has no array {missing[0]}; it has {there}")
    on: Literal["cells", "points"] = "cells" if on_cells.issuperset(arrays) else "points"
    if on == "points" and (others := [name for name in arrays if name not in on_points]):
        raise CaseError(
            f"{others[0]} is on its cells, other fields on its points; bring all to one"
        )
    mesh = _joined(parts)
    points = vtk_to_numpy(mesh.GetPoints().GetData())
    data = mesh.GetCellData() if on == "cells" else mesh.GetPointData()
    values = {name: vtk_to_numpy(data.GetArray(name)) for name in arrays}
    if on == "cells":
        of_type = np.array([vtkCellTypeUtilities.GetDimension(kind) for kind in range(256)])
        kept = of_type[vtk_to_numpy(mesh.GetCellTypes())] == dimension
        sizes = [part.GetNumberOfCells() for part in parts]
        ends = vtk_to_numpy(mesh.GetCells().GetOffsetsArray())
        corners = vtk_to_numpy(mesh.GetCells().GetConnectivityArray())
        counts = np.diff(ends)
        held = counts > 0
        places = np.zeros((len(counts), 3))
        for axis in range(3):
            sums = np.add.reduceat(points[corners, axis], ends[:-1][held])
            places[held, axis] = sums / counts[held]
    else:
        kept = np.ones(len(points), dtype=bool)
        places, sizes = points, [part.GetNumberOfPoints() for part in parts]
    if (ghosts := data.GetArray(GHOSTS)) is not None:
        kept &= vtk_to_numpy(ghosts) & (HIDDEN_CELL if on == "cells" else HIDDEN_POINT) == 0
    if len(parts) > 1:
        part = np.repeat(np.arange(len(parts)), sizes)
        seen = set(part[kept])
        # Of places that several parts have the first part's are kept. Those of one part that lie
        # together, as points do at a thin wall, stay apart.
        _, place = np.unique(places[kept], axis=0, return_inverse=True)
        earliest = np.full(len(place), len(parts))
        np.minimum.at(earliest, place, part[kept])
        kept[kept] = part[kept] == earliest[place]
        if lost := seen - set(part[kept]):
            file = list(found)[min(lost)]
            raise CaseError(f"all of {file} lies where other parts are: it may be another snapshot")
    return Snapshot(
        on,
        places[kept],
        {name: array.reshape(len(array), -1)[kept] for name, array in values.items()},
        np.ptp(points, axis=0),
    )


def _joined(parts: Sequence[Any]) -> Any:
    """Put VTK's data sets together to one of cells, with points in double precision."""
    from vtkmodules.vtkCommonExecutionModel import vtkAlgorithm
    from vtkmodules.vtkFiltersCore import vtkAppendFilter

    joined = vtkAppendFilter()
    joined.SetOutputPointsPrecision(vtkAlgorithm.DOUBLE_PRECISION)
    for part in parts:
        joined.AddInputData(part)
    joined.Update()
    return joined.GetOutput()


def _part(file: Path) -> Any:
    """Read one file as VTK's data set; InputError with VTK's first complaint where it cannot."""
    from vtkmodules.vtkCommonCore import vtkOutputWindow, vtkStringOutputWindow
    from vtkmodules.vtkCommonDataModel import vtkDataSet
    from vtkmodules.vtkIOLegacy import vtkDataSetReader
    from vtkmodules.vtkIOXML import vtkXMLGenericDataObjectReader

    complaints = vtkStringOutputWindow()
    vtkOutputWindow.SetInstance(complaints)
    reader: Any
    if file.suffix.lower() == ".vtk":
        reader = vtkDataSetReader()
        for kind in ("Scalars", "Vectors", "Normals", "Tensors", "ColorScalars", "TCoords"):
            getattr(reader, f"ReadAll{kind}On")()
        reader.ReadAllFieldsOn()
    else:
        reader = vtkXMLGenericDataObjectReader()
    reader.SetFileName(os.fsencode(file))
    reader.Update()
    found = reader.GetOutputDataObject(0)
    if wrong := re.search(r"ERROR: .*\n(?:\w+ \(\w+\): )?(.*)", complaints.GetOutput()):
        raise InputError(f"{file} cannot be read as a mesh: {wrong[1]}")
    if not isinstance(found, vtkDataSet):
        kind = "nothing" if found is None else f"a {found.GetClassName()}"
        raise InputError(f"{file} cannot be read as a mesh: it holds {kind}")
    return found


def _names(data: Any) -> set[str]:
    """Return the names of the arrays of numbers."""
    arrays = (data.GetArray(at) for at in range(data.GetNumberOfArrays()))
    return {array.GetName() for array in arrays if array is not None} - {GHOSTS}
