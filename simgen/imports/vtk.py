"""Import a folder of VTK's mesh files: each file or list of files a case.

Lists of times (.pvd, .vtu.series and its kin) name snapshots of a case; lists of parts (.vtm,
.vtpd, .pvtu and their kin) name the parts of a mesh. Values on cells are at the cells' middles,
values on points at the points. Faces among volumes, or edges among faces, are no cells.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from simgen.case import Field
from simgen.cell_mesh import VTK_SYMMETRIC
from simgen.errors import CaseError, InputError
from simgen.foam.field import COMPONENT_NAMES
from simgen.imports.folder import NotImported, Surveyed, fingerprint
from simgen.imports.importing import SourceCase, check_finite, one_line, shown
from simgen.imports.vtk_reader import MESHES, MeshReader, has_vtk
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


@dataclass(frozen=True)
class VtkOptions:
    """The options of `courant dataset import vtk` for its files."""

    fields: Mapping[str, str]
    """Array's name to the field's in the dataset"""
    given: frozenset[str] = frozenset()
    units: Mapping[str, str] = field(default_factory=dict)
    """By the field's name in the dataset"""


@dataclass(frozen=True, kw_only=True)
class VtkCase(Surveyed):
    """A surveyed file or list of files."""

    snapshots: Snapshots
    mesh: bytes
    """Digest of its places"""


class VtkFolder:
    """The reader for VTK's files, as `simgen.imports.folder` needs one."""

    has_volumes = False

    def __init__(self, options: VtkOptions, meshes: MeshReader) -> None:
        if not has_vtk():
            raise InputError("VTK is not installed: pip install 'courant-surrogate[vtk]'")
        names = options.fields.values()
        if unknown := sorted(options.units.keys() - set(names)):
            raise InputError(
                f"a unit is given for {unknown[0]}, which is not imported; choose of"
                f" {', '.join(names)}"
            )
        self.options, self.meshes = options, meshes
        self.paths: dict[str, Path] = {}
        self.beside: set[Path] = set()
        """The lists that cannot be used and have files beside them, which are no cases"""
        self.left_out: list[NotImported] = []

    def find(self, folder: Path) -> list[str]:
        """Find the cases at and below a folder.

        A file that a list names is no case, nor is a list whose files another one names too. Files
        beside or below a list that cannot be used may be those which it should name: no cases.
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
        for path in sorted(wrong & cases):
            below = {of for of in cases if path.parent in of.parents and _rank(of) < _rank(path)}
            self.beside |= {path} if below else set()
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
        options, path = self.options, self.paths[place]
        try:
            snapshots = read_snapshots(path)
            first = self.meshes.read(snapshots[0][1], list(options.fields))
        except (CaseError, InputError) as error:
            if path not in self.beside:
                raise
            raise CaseError(
                f"{error}; files beside it are no cases as long as it cannot be used: correct or"
                " remove it"
            ) from error
        times = tuple(time for time, _ in snapshots if time is not None)
        dimension = 2 if first.extent[2] <= FLAT * first.extent.max() else 3
        fields = []
        for array, name in options.fields.items():
            number = first.values[array].shape[-1]
            components = COMPONENT_NAMES.get(number, tuple(f"c{at}" for at in range(number)))
            if number == 1:
                components = (name,)
            elif number == 3 and not _leaves(first.values[array], dimension):
                components = components[:dimension]
            unit = options.units.get(name, "")
            role = "given" if array in options.given else "solved"
            fields.append(Field(name, unit, components, role=role))  # type: ignore[arg-type]
        return VtkCase(
            place=place,
            files=fingerprint(
                [file for _, files in snapshots for file in files],
                *(sorted(options.fields.items()), list(times)),
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
        arrays = {name: array for array, name in self.options.fields.items()}
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
            provenance={"solver": "imported", "directory": case.place},
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
    except (
        *(ElementTree.ParseError, LookupError, AttributeError, TypeError, ValueError, OSError),
    ) as error:
        raise InputError(f"{path} is no list of files: {one_line(error)}") from error
    if not found:
        raise InputError(f"{path} lists no file")
    return found
