"""Find the cases in a folder of VTK's files, and read the lists of files that make up a case.

Lists of times (.pvd, .vtu.series and its kin) name snapshots of a case; lists of parts (.vtm,
.vtpd, .pvtu and their kin) name the parts of a mesh.
"""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from simgen.errors import CaseError, InputError
from simgen.imports.told import shown, told

MESHES = frozenset({".vtu", ".vtk", ".vti", ".vtr", ".vts", ".vtp"})
_SURFACE = re.compile(rb"^\s*DATASET\s+POLYDATA", re.MULTILINE | re.IGNORECASE)
HEAD_BYTES = 1024
PIECES = {".pvtu": 1, ".pvti": 1, ".pvtr": 1, ".pvts": 1, ".pvtp": 1}
REFINED = (".vth", ".vthb")
LISTS = {
    **PIECES,
    **dict.fromkeys((".vtm", ".vtpd", ".vtpc", *REFINED), 2),
    **dict.fromkeys((".pvd", ".series"), 3),
}
"""Rank by suffix: a list names files of lower rank"""
TIMES = 3

Snapshots = tuple[tuple[float | None, tuple[Path, ...]], ...]
"""Times, with the files of each; None for a steady case"""


@dataclass(frozen=True)
class Found:
    """The cases of a folder."""

    cases: Mapping[str, Path]
    """By their places without suffix"""
    beside: Mapping[Path, int]
    """Of each list that cannot be used the number of files beside it, which are no cases"""
    surfaces: Sequence[Path]
    """Files of surfaces alone, such as a volume's boundary, which are no cases either"""


@dataclass(frozen=True)
class _Entry:
    """A line of a list."""

    file: Path
    time: str | None = None
    part: str = ""


def find_cases(folder: Path) -> Found:
    """Find the cases at and below a folder.

    A file that a list names is no case, nor is a list whose files another one names too. Files
    beside or below a list that cannot be used may be those which it should name: no cases.
    """
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if (path.suffix.lower() in MESHES or _rank(path)) and path.is_file()
    ]
    named = {path: _named(path) for path in files if _rank(path)}
    wrong = {path for path in named if not _is_usable(path)}
    cases: set[Path] = set()
    taken: set[Path] = set()
    for path in sorted(named, key=lambda path: (path in wrong, -len(named[path]), -_rank(path))):
        if not named[path] or not named[path] <= taken:
            cases.add(path)
            taken |= named[path]
    cases |= {path for path in files if not _rank(path) and path.resolve() not in taken}
    surfaces = [path for path in sorted(cases) if all(map(_is_surface, named.get(path) or {path}))]
    cases -= set(surfaces)
    beside = dict.fromkeys(sorted(wrong & cases), 0)
    for path in sorted(cases):
        near = (of for of in beside if of.parent in path.parents and _rank(of) > _rank(path))
        if of := next(near, None):
            beside[of] += 1
            cases.remove(path)
    return Found(_by_place(folder, sorted(cases)), beside, surfaces)


def _is_surface(path: Path) -> bool:
    if path.suffix.lower() == ".vtk":
        with path.open("rb") as file:
            return _SURFACE.search(file.read(HEAD_BYTES)) is not None
    return re.search(r"\.p?vtp(\.series)?$", path.name, re.IGNORECASE) is not None


def _rank(path: Path) -> int:
    return LISTS.get(path.suffix.lower(), 0)


def _by_place(folder: Path, cases: Sequence[Path]) -> dict[str, Path]:
    """Name each case; files that differ in their suffix alone are several cases."""
    whole = [path.with_suffix("") if path.suffix.lower() == ".series" else path for path in cases]
    places = [path.relative_to(folder).with_suffix("").as_posix() for path in whole]
    return {
        place if places.count(place) == 1 else f"{place}-{path.suffix[1:]}": path
        for place, path in zip(places, cases, strict=True)
    }


def _is_usable(path: Path) -> bool:
    try:
        read_snapshots(path)
    except (CaseError, InputError):
        return False
    return True


def _named(path: Path) -> set[Path]:
    """Return the meshes that a file is or names, as far as they are there and can be read."""
    if not _rank(path):
        return {path.resolve()} if path.is_file() else set()
    try:
        files = [entry.file for entry in _entries(path)]
    except InputError:
        return set()
    return set().union(*(_named(file) for file in files if _rank(file) < _rank(path)))


def read_snapshots(path: Path) -> Snapshots:
    """Return times and files of a case; InputError or CaseError where a list cannot be used."""
    if _rank(path) < TIMES:
        return ((None, tuple(_parts(path))),)
    entries = _entries(path)
    if num := sum(entry.time is None for entry in entries) % len(entries):
        raise CaseError(f"{path.name} has no time for {num} of its {len(entries)} files")
    found: dict[float | None, dict[str, Path]] = {}
    for entry in entries:
        time = None if entry.time is None else _seconds(entry.time, path)
        first = found.setdefault(time, {}).setdefault(entry.part, entry.file)
        # A run that was continued may be listed twice.
        if first != entry.file:
            of = "without times" if time is None else f"of time {time:g}"
            raise CaseError(f"{path.name} names {first.name} and {entry.file.name}, two files {of}")
    return tuple(
        (time, tuple(part for file in found[time].values() for part in _parts(file, path)))
        for time in sorted(found, key=lambda time: time or 0.0)
    )


def _seconds(text: str, path: Path) -> float:
    """Parse a time; some languages write a comma."""
    try:
        time = float(text.replace(",", "."))
    except ValueError:
        time = math.nan
    if not math.isfinite(time):
        raise CaseError(f"{path.name} has a time that is no number: {shown(text)}")
    return time


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


def _entries(path: Path) -> list[_Entry]:
    """Return what a list names; InputError where it cannot be read."""
    try:
        suffix = path.suffix.lower()
        if suffix == ".series":
            found = [
                _Entry(_file(path, each["name"]), str(each["time"]) if "time" in each else None)
                for each in json.loads(path.read_bytes())["files"]
            ]
        elif suffix in PIECES:
            pieces = ElementTree.parse(path).getroot().iter("Piece")
            found = [_Entry(_file(path, each.attrib["Source"])) for each in pieces]
        else:
            found = [
                _Entry(
                    _file(path, each.attrib["file"]),
                    each.get("timestep"),
                    f"{each.get('group', '')}/{each.get('part', '0')}",
                )
                for each in ElementTree.parse(path).getroot().iter("DataSet")
                # an empty block of a .vtm has none
                if suffix == ".pvd" or "file" in each.attrib
            ]
    except (ElementTree.ParseError, LookupError, TypeError, ValueError, OSError) as error:
        raise InputError(f"{path} is no list of files: {told(error)}") from error
    if not found:
        raise InputError(f"{path} lists no file")
    return found


def _file(path: Path, name: str) -> Path:
    """Return the file of that name, or where there is none, the one that is meant by it."""
    whole = Path(path.stem)
    # Programs on Windows write backslashes, and `foamToVTK -legacy` of v1912 "_5" for run_5.vtk.
    meant = (name, name.replace("\\", "/"), f"{whole.stem}{name}{whole.suffix}")
    files = [path.parent / each for each in meant]
    return next((file for file in files if file.is_file()), files[0])
