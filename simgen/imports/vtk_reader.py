"""Read mesh files in a process of their own: VTK's formats with VTK, others with meshio.

Readers allocate what a file's header asks for, and VTK ends its process where that fails or where a
file is damaged. So a child reads the files: its memory is bounded by their size (on Linux, by the
kernel), and a file that ends it costs one case.
"""

from __future__ import annotations

import contextlib
import importlib.util
import multiprocessing
import os
import re
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import meshio
import numpy as np

from simgen.errors import CaseError, InputError
from simgen.imports.importing import one_line

MESHES = frozenset({".vtu", ".vtk", ".vti", ".vtr", ".vts", ".vtp"})
"""Suffixes of files that VTK reads"""
MEMORY, MEMORY_A_BYTE = 256 << 20, 100
"""Bytes of memory for a snapshot: so many, and so many for each byte of its files"""
GHOSTS = "vtkGhostType"
HIDDEN_CELL, HIDDEN_POINT = 1 | 8 | 32, 1 | 2
"""Its bits: repeated from another piece, refined, hidden"""
#: VTK's types of cells of a grid: the usual type, and the order of the corners in that.
_OF_GRIDS = {8: (9, [0, 1, 3, 2]), 11: (12, [0, 1, 3, 2, 4, 5, 7, 6])}

Found = TypeVar("Found")


@dataclass(frozen=True)
class Snapshot:
    """Arrays on the cells or the points of a mesh."""

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
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> MeshReader:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()
        self._pool = None

    def read(self, files: Sequence[Path], arrays: Sequence[str]) -> Snapshot:
        """Read the parts of one mesh; InputError or CaseError where VTK cannot, or an array lacks.

        Parts of fewer dimensions than others (a volume's boundary) are left out, as are repeated
        and hidden cells. A cell or point that an earlier part has at the same place is that part's.
        """
        return self._bounded(read_snapshot, files, arrays)

    def read_mesh(self, file: Path) -> meshio.Mesh:
        """Read a mesh with all its arrays, cells in the file's order; InputError where it cannot.

        A format of VTK's is read by meshio where VTK is not installed.
        """
        return self._bounded(read_whole, [file])

    def _bounded(self, read: Callable[..., Found], files: Sequence[Path], *more: Any) -> Found:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(1, context, initializer=_begin)
        limit = MEMORY + MEMORY_A_BYTE * sum(file.stat().st_size for file in files)
        try:
            return self._pool.submit(_within, limit, read, tuple(files), *more).result()
        except BrokenProcessPool as error:
            self.__exit__()
            raise InputError(
                f"{files[0]} cannot be read as a mesh: its reader ended; it is damaged or, written"
                f" without compression, would be more than {MEMORY_A_BYTE} times as large"
            ) from error


def _begin() -> None:
    """Leave Ctrl-C to the parent, whose end is this process's, and the screen to it as well."""
    global _held
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for output in (1, 2):
        os.dup2(nowhere, output)
    if has_vtk():
        from vtkmodules.vtkCommonCore import vtkSMPTools

        vtkSMPTools.SetBackend("Sequential")  # threads reserve memory of their own
    with contextlib.suppress(OSError):  # where the system does not count a process's bytes of data
        pages = int(Path("/proc/self/statm").read_text().split()[5])
        _held = pages * os.sysconf("SC_PAGE_SIZE")


_held = 0
"""Bytes of this process's data before it reads anything"""


def _within(limit: int, read: Callable[..., Found], files: Sequence[Path], *more: Any) -> Found:
    """Read files within so many bytes; whatever is wrong with them is an InputError."""
    if _held:
        import resource  # which other systems lack

        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        bound = _held + limit if most == resource.RLIM_INFINITY else min(_held + limit, most)
        resource.setrlimit(resource.RLIMIT_DATA, (bound, most))
    try:
        return read(files, *more)
    except (CaseError, InputError):
        raise
    except MemoryError:
        os.abort()
    # meshio lets its parsers' errors through, and exits the process on an unknown suffix.
    except (Exception, SystemExit) as error:
        why = one_line(error) or type(error).__name__
        if isinstance(error, SystemExit):
            why = f"it is no {files[0].suffix or 'mesh'} file"
        raise InputError(f"{files[0]} cannot be read as a mesh: {why}") from None


def read_whole(files: Sequence[Path]) -> meshio.Mesh:
    """Read a file with all its arrays; InputError where a cell cannot be written again."""
    (file,) = files
    if file.suffix.lower() in MESHES and has_vtk():
        from vtkmodules.util.numpy_support import vtk_to_numpy
        from vtkmodules.vtkIOXML import vtkXMLUnstructuredGridWriter

        # Written again in the form and with the cells that meshio reads.
        whole = _joined([_part(file)])
        types, cells = vtk_to_numpy(whole.GetCellTypes()), whole.GetCells()
        offsets, corners = map(
            vtk_to_numpy, (cells.GetOffsetsArray(), cells.GetConnectivityArray())
        )
        for kind, (usual, order) in _OF_GRIDS.items():
            starts = offsets[:-1][types == kind, None]
            corners[starts + np.arange(len(order))] = corners[starts + order]
            types[types == kind] = usual
        with tempfile.TemporaryDirectory() as folder:
            plain = Path(folder) / "plain.vtu"
            writer = vtkXMLUnstructuredGridWriter()
            writer.SetInputData(whole)
            writer.SetDataModeToBinary()
            writer.SetFileName(str(plain))
            writer.Write()
            mesh = meshio.read(plain)
        if sum(map(len, mesh.cells)) != len(types):
            raise InputError(f"{file} holds cells of a type that is not written again")
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


def read_snapshot(files: Sequence[Path], arrays: Sequence[str]) -> Snapshot:
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
    is_on_cells = on_cells.issuperset(arrays)
    if not is_on_cells and (others := [name for name in arrays if name not in on_points]):
        raise CaseError(
            f"{others[0]} is on its cells, other fields on its points; bring all to one"
        )
    mesh = _joined(parts)
    points = vtk_to_numpy(mesh.GetPoints().GetData())
    data = mesh.GetCellData() if is_on_cells else mesh.GetPointData()
    values = {name: vtk_to_numpy(data.GetArray(name)) for name in arrays}
    if is_on_cells:
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
        kept &= vtk_to_numpy(ghosts) & (HIDDEN_CELL if is_on_cells else HIDDEN_POINT) == 0
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
