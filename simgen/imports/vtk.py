"""Import a folder of VTK's mesh files: each file or list of files a case.

Lists of times (.pvd, .vtu.series and its kin) name snapshots of a case; lists of parts (.vtm,
.vtpd, .pvtu and their kin) name the parts of a mesh. Values on cells are at the cells' middles,
values on points at the points. Faces among volumes, or edges among faces, are no cells.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import math
import multiprocessing
import os
import re
import signal
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import meshio
import numpy as np

from simgen.case import Field
from simgen.cell_mesh import VTK_SYMMETRIC
from simgen.errors import CaseError, InputError
from simgen.foam.field import COMPONENT_NAMES
from simgen.imports.folder import NotImported, Surveyed, fingerprint
from simgen.imports.importing import SourceCase, check_finite, one_line, shown
from simgen.store.schema import Schema

#: How far, in lengths of the case, points of a plane case may lie off the plane z = const, and how
#: much of the largest component its vectors may have across.
FLAT = 1e-6
_SURFACE = re.compile(rb"^\s*DATASET\s+POLYDATA", re.MULTILINE | re.IGNORECASE)
HEAD_BYTES = 1024
REFINED = (".vth", ".vthb")
TIMES = 3
LISTS = {
    **dict.fromkeys((".pvtu", ".pvti", ".pvtr", ".pvts", ".pvtp"), 1),
    **dict.fromkeys((".vtm", ".vtpd", ".vtpc", *REFINED), 2),
    **dict.fromkeys((".pvd", ".series"), TIMES),
}
"""Rank by suffix: a list names files of lower rank"""

Snapshots = tuple[tuple[float | None, tuple[Path, ...]], ...]
"""Times, with the files of each; None for a steady case"""


@dataclass(frozen=True, kw_only=True)
class VtkCase(Surveyed):
    """A surveyed file or list of files."""

    snapshots: Snapshots
    mesh: bytes  # Digest of its places


@dataclass
class VtkFolder:
    """The reader for VTK's files, with the options of `courant dataset import vtk`."""

    has_volumes = False

    meshes: MeshReader
    fields: Mapping[str, str]  # Array's name to the field's in the dataset
    given: frozenset[str] = frozenset()
    units: Mapping[str, str] = field(default_factory=dict)  # By the field's name in the dataset
    paths: dict[str, Path] = field(default_factory=dict, init=False)
    left_out: list[NotImported] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        if not has_vtk():
            raise InputError("VTK is not installed: pip install 'courant-surrogate[vtk]'")
        names = self.fields.values()
        if unknown := sorted(self.units.keys() - set(names)):
            raise InputError(
                f"a unit is given for {unknown[0]}, which is not imported; choose of"
                f" {', '.join(names)}"
            )

    def find(self, folder: Path) -> list[str]:
        """Find the cases: files that no list names, and lists whose files no other one names.

        Files beside or below a list that cannot be used may be those which it should name.
        """
        files = [
            path
            for path in sorted(folder.rglob("*"))
            if (path.suffix.lower() in MESHES or _rank(path)) and path.is_file()
        ]
        lists = {path: _named(path) for path in files if _rank(path)}
        named = {path: meshes for path, (meshes, _) in lists.items()}
        wrong = {path for path, (_, is_usable) in lists.items() if not is_usable}
        cases: set[Path] = set()
        in_lists: set[Path] = set()
        for path in sorted(named, key=lambda of: (of in wrong, -len(named[of]), -_rank(of))):
            if not named[path] or not named[path] <= in_lists:
                cases.add(path)
                in_lists |= named[path]
        cases |= {path for path in files if not _rank(path) and path.resolve() not in in_lists}
        surfaces = [of for of in sorted(cases) if all(map(_is_surface, named.get(of) or {of}))]
        if surfaces:  # such as a volume's boundary
            more = f"it has polygons and no cells, as {len(surfaces)} files in all"
            self.left_out.append(NotImported(str(surfaces[0].relative_to(folder)), more))
        cases.difference_update(surfaces)
        for path in sorted(wrong & cases, key=lambda of: (-_rank(of), of)):
            below = {of for of in cases if path.parent in of.parents and _rank(of) < _rank(path)}
            if below:
                more = "files beside it are no cases as long as it cannot be used"
                self.left_out.append(NotImported(str(path.relative_to(folder)), more))
            cases -= below
        places: dict[str, list[Path]] = defaultdict(list)
        for path in sorted(cases):
            suffix = r"(\.\w+)?\.series$" if path.suffix.lower() == ".series" else r"\.\w+$"
            name = path.relative_to(folder).as_posix()
            places[re.sub(suffix, "", name, flags=re.IGNORECASE)].append(path)
        # Files that differ in their suffix alone are several cases.
        self.paths = {
            place if len(paths) == 1 else f"{place}-{path.suffix[1:]}": path
            for place, paths in places.items()
            for path in paths
        }
        if not self.paths:
            raise InputError(f"{folder} holds no file that ends in .vtu, .vtk, .vtm or .pvd")
        return list(self.paths)

    def survey(self, place: str) -> VtkCase:
        path = self.paths[place]
        snapshots = read_snapshots(path)
        first = self.meshes.read(snapshots[0][1], list(self.fields))
        times = tuple(time for time, _ in snapshots if time is not None)
        dimension = 2 if first.extent[2] <= FLAT * first.extent.max() else 3
        fields = []
        for array, name in self.fields.items():
            number = first.values[array].shape[-1]
            components = COMPONENT_NAMES.get(number, tuple(f"c{at}" for at in range(number)))
            if number == 1:
                components = (name,)
            elif number == 3 and not _leaves(first.values[array], dimension):
                components = components[:dimension]
            unit = self.units.get(name, "")
            role = "given" if array in self.given else "solved"
            fields.append(Field(name, unit, components, role=role))  # type: ignore[arg-type]
        return VtkCase(
            place=place,
            files=fingerprint(
                [file for _, files in snapshots for file in files],
                *(sorted(self.fields.items()), list(times)),
            ),
            fields=tuple(fields),
            dimension=dimension,
            times=times if len(times) > 1 else None,
            snapshots=snapshots,
            mesh=hashlib.blake2b(first.places.tobytes(), digest_size=16).digest(),
        )

    def notes(self, cases: Sequence[VtkCase]) -> Iterator[str]:
        alike = defaultdict(list)
        for case in cases:
            if case.times is None:
                alike[case.mesh, re.sub(r"\d[\d.]*", "", case.place)].append(case.place)
        for places in alike.values():
            if len(places) > 1:
                yield (
                    f"{places[0]}, {places[1]}, … ({len(places)} cases) have one mesh and names"
                    " that differ in a number: if they are snapshots of one run, list them in a"
                    " .pvd or .series file, or training and test share the run"
                )

    def read(self, case: VtkCase, schema: Schema) -> SourceCase:
        """Read all snapshots of a case; CaseError names the file where one departs."""
        arrays = {name: array for array, name in self.fields.items()}
        points: np.ndarray | None = None
        values: dict[str, list[np.ndarray]] = {each.name: [] for each in case.fields}
        for _, files in case.snapshots:
            try:
                mesh = self.meshes.read(files, list(arrays.values()))
            except CaseError as error:
                raise CaseError(f"{files[0]}: {error}") from error
            places = mesh.places[:, : case.dimension]
            if points is not None and not np.array_equal(places, points):
                first = case.snapshots[0][1][0]
                raise CaseError(f"its mesh changes: {files[0]} has other places than {first}")
            points = places
            for each in case.fields:
                array, number = mesh.values[arrays[each.name]], len(each.components)
                check_finite(array, f"{arrays[each.name]} in {files[0]}")
                if array.shape[1] == len(VTK_SYMMETRIC):
                    array = array[:, VTK_SYMMETRIC]
                if _leaves(array, number):
                    raise CaseError(f"{each.name} in {files[0]} has a part across the plane")
                values[each.name].append(array[:, :number])
        return SourceCase(
            name=case.name,
            points=points,
            fields={name: np.stack(of) if case.times else of[0] for name, of in values.items()},
            time=case.times,
            parameters=case.parameters,
            split=case.split,
            provenance={"solver": "imported", "directory": str(self.paths[case.place])},
        )


def _leaves(values: np.ndarray, dimension: int) -> bool:
    """Return whether vectors (N, 3) have components beyond so many dimensions."""
    largest = np.abs(values).max(axis=0, initial=0.0)
    return bool(largest[dimension:].max(initial=0.0) > FLAT * largest.max())


def _is_surface(path: Path) -> bool:
    if path.suffix.lower() == ".vtk":
        with path.open("rb") as file:
            return _SURFACE.search(file.read(HEAD_BYTES)) is not None
    return re.search(r"\.p?vtp(\.series)?$", path.name, re.IGNORECASE) is not None


def _rank(path: Path) -> int:
    return LISTS.get(path.suffix.lower(), 0)


def read_snapshots(path: Path) -> Snapshots:
    """Return times and files of a case; InputError or CaseError where a list cannot be used."""
    if _rank(path) < TIMES:
        return ((None, tuple(_parts(path))),)
    entries = _entries(path)
    if num := sum(not entry.time for entry in entries) % len(entries):
        raise CaseError(f"{path.name} has no time for {num} of its {len(entries)} files")
    found: dict[float, dict[str, Path]] = {}
    for entry in entries:
        try:
            time = float(entry.time.replace(",", ".") or "0")  # some languages write a comma
        except ValueError:
            time = math.nan
        if not math.isfinite(time):
            raise CaseError(f"{path.name} has a time that is no number: {shown(entry.time)}")
        first = found.setdefault(time, {}).setdefault(entry.part, entry.file)
        # A run that was continued may be listed twice.
        if first != entry.file:
            of = f"of time {time:g}" if entry.time else "without times"
            raise CaseError(f"{path.name} names {first.name} and {entry.file.name}, two files {of}")
    return tuple(
        (
            time if entries[0].time else None,
            tuple(part for file in found[time].values() for part in _parts(file, path)),
        )
        for time in sorted(found)
    )


def _named(path: Path) -> tuple[set[Path], bool]:
    """Return the files that a list names, as far as they are there, and whether it can be used."""
    try:
        return {file.resolve() for _, files in read_snapshots(path) for file in files}, True
    except (CaseError, InputError):
        with contextlib.suppress(InputError):
            return {of.file.resolve() for of in _entries(path) if of.file.is_file()}, False
    return set(), False


def _parts(file: Path, of: Path | None = None) -> Iterator[Path]:
    """Yield the meshes of a file, or of a list of parts; CaseError where one is not there."""
    if of is not None and not _rank(file) < _rank(of):
        raise CaseError(f"{of.name} names {file.name}, another list")
    if not file.is_file():
        raise CaseError(f"it is unfinished: {file.name}, which it lists, is not there")
    if file.suffix.lower() in REFINED:
        raise CaseError(f"{file.name} is of adaptive grids, whose cells lie over each other")
    if _rank(file):
        for entry in _entries(file):
            yield from _parts(entry.file, file)
    else:
        yield file


@dataclass(frozen=True)
class _Entry:
    """A line of a list."""

    file: Path
    time: str = ""
    part: str = ""


def _entries(path: Path) -> list[_Entry]:
    """Return what a list names; InputError where it cannot be read."""

    def file(name: str) -> Path:
        """Return the file of that name, or where there is none, the one that is meant by it."""
        whole = Path(path.stem)
        # Programs on Windows write backslashes; `foamToVTK -legacy` of v1912 "_5" for run_5.vtk.
        meant = (name, name.replace("\\", "/"), f"{whole.stem}{name}{whole.suffix}")
        files = [path.parent / each for each in meant]
        return next((each for each in files if each.is_file()), files[0])

    try:
        if path.suffix.lower() == ".series":
            listed = json.loads(path.read_bytes())["files"]
            found = [_Entry(file(each["name"]), str(each.get("time", ""))) for each in listed]
        else:
            lines, has_all = ElementTree.parse(path).getroot().iter(), _rank(path) == TIMES
            found = [
                _Entry(
                    file(line.get("Source") or line.attrib["file"]),
                    line.get("timestep", ""),
                    f"{line.get('group', '')}/{line.get('part', '0')}",
                )
                for line in lines
                # an empty block of a .vtm names no file
                if line.get("Source")
                or (line.tag == "DataSet" and (has_all or "file" in line.attrib))
            ]
    except Exception as error:
        raise InputError(f"{path} is no list of files: {one_line(error)}") from error
    if not found:
        raise InputError(f"{path} lists no file")
    return found


# Mesh files are read by a process of their own: VTK's formats with VTK, others with meshio. Readers
# allocate what a file's header asks for, and VTK ends its process where that fails or where a file
# is damaged. So the child's memory is bounded by the files' size (on Linux, by the kernel), and a
# file that ends it costs one case.

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

    places: np.ndarray  # (N, 3) m: each cell's mean of corners, or the points
    values: Mapping[str, np.ndarray]  # (N, C) by the array's name
    extent: np.ndarray  # (3,) m of its points


def has_vtk() -> bool:
    return importlib.util.find_spec("vtkmodules") is not None


class MeshReader(contextlib.AbstractContextManager["MeshReader"]):
    """The process that reads; a context, which ends it."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

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


_held = 0  # Bytes of this process's data before it reads anything


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
    found = {file: of for file, of in found.items() if of.GetMaxSpatialDimension() == dimension}
    parts = list(found.values())
    on_cells = set.intersection(*(_names(part.GetCellData()) for part in parts))
    on_points = set.intersection(*(_names(part.GetPointData()) for part in parts))
    if missing := [name for name in arrays if name not in on_points | on_cells]:
        there = ", ".join(sorted(on_points | on_cells)) or "none"
        raise CaseError(f"it has no array {missing[0]}; it has {there}")
    is_on_cells = on_cells.issuperset(arrays)
    if not is_on_cells and (others := [name for name in arrays if name not in on_points]):
        raise CaseError(f"{others[0]} is on cells, other fields on its points; bring all to one")
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
