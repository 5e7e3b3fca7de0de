"""Find the OpenFOAM cases of a folder, and survey each without reading its values.

A case is a directory with a mesh, with parts of a decomposed mesh, or with a system/controlDict.
Its parts are the directory itself, or its processor directories where these hold the solution. The
survey finds mesh, times, fields with their units, patches with their kinds, parameters, and what
dictionaries and log hold of the solver.
"""

from __future__ import annotations

import fnmatch
import gzip
import math
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from simgen.case import Field, Gate, Role
from simgen.errors import CaseError, InputError
from simgen.foam.field import COMPONENT_NAMES, PatchEntry, entries_of, patch_entries
from simgen.foam.log import SolverLog
from simgen.foam.mesh import (
    PatchRange,
    all_time_directories,
    moved_meshes,
    read_boundary,
    read_geometry,
    read_points,
    time_directories,
    time_of,
)
from simgen.foam.reader import COMPONENTS, FoamReader
from simgen.imports.folder import Surveyed, fingerprint
from simgen.imports.openfoam.dictionaries import DictionaryPlace, read_entry, read_number
from simgen.imports.source_case import one_line
from simgen.solving.gates import rejection

_MESH_FILES = ("points", "faces", "owner", "neighbour", "boundary")
_OF_CASE = ("constant", "system", "postProcessing", "VTK", "dynamicCode")
_PROCESSOR = re.compile(r"processor(\d+)")
_COLLATED = re.compile(r"processors\d+(_\d+-\d+)?")
_NUM_CELLS = re.compile(rb"nCells:\s*(\d+)")
HEAD_BYTES = 2048
#: Times that differ by less, relative to themselves, are one time.
SAME_TIME = 1e-9
MOST_LISTED = 10
FIGURES = ("courant", "continuity", "residual")
"""Figures of a log, which limits may be set on"""


@dataclass(frozen=True)
class FoamOptions:
    """The options of an import of OpenFOAM cases."""

    fields: Mapping[str, str]
    """OpenFOAM's name to the dataset's; empty for the usual one"""
    given: frozenset[str] = frozenset()
    """Those that are known before a case is solved"""
    region: str = ""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Patch, with wildcards, to kind; `none` leaves a patch out"""
    patch_values: frozenset[str] = frozenset()
    """Conditions that have the cell's value on patches where they write none"""
    parameters: Mapping[str, DictionaryPlace] = field(default_factory=dict)
    steady: bool | None = None
    """Whether cases are steady; None = as in their dictionaries"""
    after: float = 0.0
    """Times before this one are left out"""
    every: int = 1
    """Of the times of a transient case every n-th"""
    interval: float | None = None
    """Seconds between the times of a transient case, to which its snapshots are interpolated"""
    allow_unfinished: bool = False
    limits: Mapping[str, float] = field(default_factory=dict)
    """By the name of the figure"""

    def __post_init__(self) -> None:
        for name, limit in self.limits.items():
            if name not in FIGURES or not math.isfinite(limit):
                raise InputError(
                    f"{name}={limit:g} is no limit; expected a number for one of"
                    f" {', '.join(FIGURES)}"
                )
        if self.interval is not None and not 0 < self.interval < math.inf:
            raise InputError(f"--interval {self.interval:g} is no interval; expected seconds")


@dataclass(frozen=True, kw_only=True)
class FoamCase(Surveyed):
    """A surveyed OpenFOAM case."""

    parts: tuple[Path, ...]
    """The directories that hold its mesh"""
    stored: tuple[tuple[float, str], ...]
    """Times with the names of their directories"""
    kind_of: Mapping[str, str]
    """Kinds of the patches that are boundaries"""
    patches: frozenset[str]
    """All of them"""
    application: str
    version: str
    figures: Mapping[str, float]
    """Those of FIGURES that a log holds"""
    gates: tuple[Gate, ...]


# Finding cases and their parts


def find_cases(folder: Path, on_left_out: Callable[[Path, str], None]) -> Iterator[Path]:
    """Yield the case directories at and below `folder`, in order of their paths.

    A case may have others beside its own directories. Links to directories are followed if they
    are cases; other links and what cannot be read are passed to `on_left_out` with the reason.
    """
    if is_case(folder):
        yield folder
    for path, folders, _ in os.walk(
        folder, onerror=lambda error: on_left_out(Path(error.filename), f"{error.strerror}")
    ):
        here = Path(path)
        if is_case(here):
            folders[:] = [
                name
                for name in folders
                if not (name in _OF_CASE or name.startswith("processor")) and time_of(name) is None
            ]
        folders.sort()
        for name in folders:
            if is_case(here / name):
                yield here / name
            elif (here / name).is_symlink():
                on_left_out(here / name, "it links to a folder that is no case")


def is_case(directory: Path) -> bool:
    """Return whether the directory is an OpenFOAM case, solved or not."""
    try:
        return (
            has_file(directory / "system/controlDict")
            or bool(regions_of(directory))
            or (directory / "constant/polyMesh").is_dir()
            or (directory / "processor0").is_dir()
        )
    except PermissionError:  # which its survey reports
        return True


def regions_of(directory: Path) -> list[str]:
    """List the regions that have a mesh of their own."""
    meshes = (directory / "constant").glob("*/polyMesh")
    return sorted(path.parent.name for path in meshes if path.is_dir())


def has_file(path: Path) -> bool:
    """Return whether OpenFOAM would find this file, packed or not."""
    return path.is_file() or path.with_name(f"{path.name}.gz").is_file()


def solved_times(part: Path, region: str, fields: Sequence[str]) -> list[tuple[float, str]]:
    """List the times after 0, with their directories' names, that have any of these fields."""
    return [
        (time, path.name)
        for time, path in time_directories(part)
        if any(has_file(path / region / name) for name in fields)
    ]


def processors_of(directory: Path) -> tuple[Path, ...]:
    """List the parts of a decomposed case; CaseError where one is missing."""
    found = [path for path in directory.glob("processor*") if path.is_dir()]
    if collated := [path.name for path in found if _COLLATED.fullmatch(path.name)]:
        raise CaseError(
            f"it is stored in OpenFOAM's collated format ({collated[0]}); put it together first,"
            " with reconstructPar"
        )
    numbered = {int(each[1]): path for path in found if (each := _PROCESSOR.fullmatch(path.name))}
    if missing := set(range(len(numbered))) - set(numbered):
        raise CaseError(f"its part processor{min(missing)} is missing")
    return tuple(numbered[number] for number in sorted(numbered))


def parts_of(directory: Path, region: str, fields: Sequence[str]) -> tuple[Path, ...]:
    """Return the directories that hold the case's mesh, and the times of these fields.

    Processors without cells are left out. CaseError where there is no mesh, or where two meshes of
    different sizes lie in one case.
    """

    def by_end(times: list[tuple[float, str]]) -> tuple[float, int]:
        return (times[-1][0] if times else 0.0), len(times)

    serial = has_file(directory / "constant" / region / "polyMesh" / "points")
    processors = processors_of(directory)
    of_parts = (solved_times(part, region, fields) for part in processors)
    stored = max(of_parts, key=by_end, default=[])
    if processors and (stored or not serial):
        if serial:
            whole = num_cells(directory, region)
            parts = sum(num_cells(part, region) for part in processors)
            if whole != parts:
                raise CaseError(
                    f"it holds two meshes: constant/polyMesh of {whole} cells, and processor0 to"
                    f" processor{len(processors) - 1} of {parts}; delete the one that is out of"
                    " date"
                )
        # reconstructPar -latestTime leaves all other times in the parts.
        if not serial or by_end(stored) > by_end(solved_times(directory, region, fields)):
            if found := tuple(part for part in processors if num_cells(part, region)):
                return found
            raise CaseError("its mesh has no cells")
    if serial:
        return (directory,)
    regions = ", ".join(regions_of(directory))
    if region:
        raise CaseError(f"it has no region {region}; it has {regions or 'none'}")
    if regions:
        raise CaseError(f"it has a mesh for each of {regions}; choose one with --region")
    raise CaseError("it has no mesh in constant/polyMesh")


def num_cells(directory: Path, region: str) -> int:
    """Return the number of cells, from the header of `owner` where that has it."""
    found = _NUM_CELLS.search(read_head(directory / "constant" / region / "polyMesh" / "owner"))
    return int(found[1]) if found else len(read_geometry(directory, region).centres)


def read_head(path: Path) -> bytes:
    """Return the first bytes of a file, unpacked where only `<path>.gz` is there."""
    packed = path.with_name(f"{path.name}.gz")
    try:
        with path.open("rb") if path.exists() else gzip.open(packed) as file:
            return file.read(HEAD_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise CaseError(f"{path} cannot be read: {one_line(error)}") from error


# The survey


def survey_case(directory: Path, place: str, options: FoamOptions) -> FoamCase:
    """Survey a case; CaseError or InputError is why it cannot be imported, in one line."""
    region, names = options.region, list(options.fields)
    parts = parts_of(directory, region, names)
    for part in parts:
        if moved := moved_meshes(part, region):
            raise CaseError(
                f"its mesh moves: it has {moved[0]} beside constant/polyMesh, and only meshes that"
                " stay the same are imported"
            )
    application, end, steady = read_control(directory, region)
    stored = _common_times(parts, options)
    if options.steady is not None:
        steady = options.steady
    if steady is None:
        steady = len(stored) == 1
    log = find_log(directory, application)
    # Where its end is known not to be reached, nothing else of a case is looked at.
    finished = None if options.allow_unfinished else check_finished(stored[-1][0], end, log)
    figures = {} if log is None else figures_of(log[2])
    limits = tuple(
        Gate.at_most(f"{name} in the log", figures[name], limit)
        for name, limit in options.limits.items()
        if name in figures
    )
    if why := rejection(list(limits)):
        raise CaseError(why)
    times = tuple(each for each in stored if each[0] >= options.after)[:: options.every]
    if steady:
        times = stored[-1:]
    elif not times:
        last = stored[-1][0]
        raise CaseError(f"it has no time from {options.after:g} on; its last is {last:g}")
    ends = () if finished is None else (Gate("solver finished", times[-1][0], "End", finished),)
    files = [part / "constant" / region / "polyMesh" / of for part in parts for of in _MESH_FILES]
    for part in parts:
        for _, time in times:
            for name in names:
                files.append(Path(part, time, region, name))
                if not has_file(files[-1]):
                    raise CaseError(_missing(part, time, name, times, options))
    patches: dict[str, PatchRange] = {}
    conditions: dict[str, str] = {}
    for part in parts:
        for name, patch in read_boundary(
            part / "constant" / region / "polyMesh" / "boundary"
        ).items():
            before = patches[name].size if name in patches else 0
            patches[name] = replace(patch, size=before + patch.size)
    for part in parts:
        conditions |= velocity_conditions(Path(part, times[0][1], region, "U"), patches)
    found = {
        name: patch_kind(name, patch.type, conditions.get(name, ""), options.kinds)
        for name, patch in patches.items()
        if patch.size
    }
    kinds = {name: kind for name, kind in found.items() if kind is not None}
    parameters = {}
    for name, at in options.parameters.items():
        # Boundary conditions of a decomposed case may lie in its parts alone.
        roots = [root for root in (directory, *parts) if has_file(root / at.file)]
        if not roots:
            raise CaseError(f"it has no file {at.file}, where a parameter is read from")
        parameters[name] = read_number(roots[0], at)
    dimension = 3
    if any(patch.type == "empty" and patch.size for patch in patches.values()):
        meshes = (part / "constant" / region / "polyMesh" for part in parts)
        points = np.concatenate([read_points(mesh / "points") for mesh in meshes])
        tolerance = 1e-6 * float(np.ptp(points, axis=0).max())
        z = points[:, 2]
        on_sheets = (z <= z.min() + tolerance) | (z >= z.max() - tolerance)
        # One layer of cells across z. Plane cases across another axis are imported in 3D.
        if on_sheets.all() and np.ptp(z) > 2 * tolerance:
            dimension = 2
    taken = tuple(time for time, _ in times)
    if not steady and options.interval is not None:
        first_s, last_s = taken[0], taken[-1]
        steps = int((last_s - first_s) / options.interval * (1 + SAME_TIME))
        if not steps:
            raise CaseError(
                f"its times lie from {first_s:g} to {last_s:g}, which is less than the interval"
                f" of {options.interval:g}"
            )
        taken = tuple(
            float(f"{first_s + step * options.interval:.12g}") for step in range(steps + 1)
        )
    first = Path(parts[0], times[0][1], region)
    settings = (
        *(region, options.after, options.every, options.interval),
        sorted(kinds.items()),
        sorted(options.patch_values),
    )
    return FoamCase(
        place=place,
        files=fingerprint(
            [of if of.exists() else of.with_name(f"{of.name}.gz") for of in files], settings
        ),
        fields=tuple(
            describe_field(
                first / name, called, "given" if name in options.given else "solved", dimension
            )
            for name, called in options.fields.items()
        ),
        dimension=dimension,
        times=None if steady else taken,
        kinds=frozenset(kinds.values()),
        parameters=parameters,
        left_out=tuple(_left_out(directory, parts, stored, options)),
        parts=parts,
        stored=times,
        kind_of=kinds,
        patches=frozenset(patches),
        application=application,
        version="" if log is None else log[1],
        figures=figures,
        gates=(*ends, *limits),
    )


def _common_times(parts: Sequence[Path], options: FoamOptions) -> tuple[tuple[float, str], ...]:
    """Return the times with fields, which all parts of a decomposed case must have."""
    names = list(options.fields)
    found = [tuple(solved_times(part, options.region, names)) for part in parts]
    if not any(found):
        there = time_directories(parts[0])
        if not there:
            raise CaseError("it has no solved time: no time directory after 0")
        raise CaseError(_missing(parts[0], there[-1][1].name, names[0], (), options))
    for part, times in zip(parts, found, strict=True):
        if times != found[0]:
            odd = min(set(times) ^ set(found[0]))
            raise CaseError(
                f"it is unfinished: {part.name} and {parts[0].name} differ in time {odd[1]}"
            )
    for (before, name), (after, other) in pairwise(found[0]):
        if after - before <= SAME_TIME * after:
            raise CaseError(
                f"it has two directories of the time {before:g}: {name} and {other}; move one"
                " elsewhere"
            )
    return found[0]


def _missing(
    part: Path, time: str, name: str, times: Sequence[tuple[float, str]], options: FoamOptions
) -> str:
    others = [of for _, of in times if has_file(Path(part, of, options.region, name))]
    if others:
        return f"its time {time} has no {name}, which its time {others[0]} has"
    regions = [of for of in regions_of(part) if has_file(Path(part, time, of, name))]
    if regions and not options.region:
        return f"its time {time} has {name} for {', '.join(regions)} only; choose one with --region"
    folder = Path(part, time, options.region)
    files = folder.iterdir() if folder.is_dir() else ()
    there = sorted(path.name.removesuffix(".gz") for path in files if path.is_file())
    return f"its time {time} has no {name}; it has {', '.join(there) or 'no fields'}"


def _left_out(
    directory: Path,
    parts: Sequence[Path],
    stored: Sequence[tuple[float, str]],
    options: FoamOptions,
) -> Iterator[str]:
    """Describe what the case has and the import does not read, though nobody asked for that."""

    def listed(names: Sequence[str]) -> str:
        more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
        return ", ".join(names[:MOST_LISTED]) + more

    names = list(options.fields)
    there = {path.name: time for part in parts for time, path in all_time_directories(part)}
    if before := [name for name, time in there.items() if time < 0]:
        yield f"times before 0: {listed(before)}"
    known = {name for _, name in stored}
    if bare := [name for name, time in there.items() if time > 0 and name not in known]:
        yield f"times without {' or '.join(names)}: {listed(bare)}"
    is_serial = parts[0] == directory
    solved = {time for time, _ in stored}
    elsewhere = {
        name: f"{name} of {other.name}"
        for other in (processors_of(directory) if is_serial else (directory,))
        for time, name in solved_times(other, options.region, names)
        if time not in solved
    }
    if elsewhere:
        place = "the case itself" if is_serial else "its processors"
        yield f"times that are not in {place}: {listed(list(elsewhere.values()))}"
    if not options.region and (regions := regions_of(parts[0])):
        yield f"the regions {listed(regions)}: choose one with --region"


# Fields: names, units, components

#: OpenFOAM's incompressible p is a pressure over a density, and is called so.
KINEMATIC = {"p": "kinematic_pressure", "p_rgh": "kinematic_pressure_without_gravity"}
NAMES = {
    "U": "velocity",
    "p": "pressure",
    "p_rgh": "pressure_without_gravity",
    "T": "temperature",
    "rho": "density",
    "k": "turbulent_kinetic_energy",
    "epsilon": "dissipation_rate",
    "omega": "specific_dissipation_rate",
    "nut": "turbulent_viscosity",
}
_UNITS: dict[tuple[float, ...], str] = {
    (1, -1, -2, 0, 0, 0, 0): "Pa",
    (1, 1, -2, 0, 0, 0, 0): "N",
    (1, 2, -2, 0, 0, 0, 0): "J",
    (1, 2, -3, 0, 0, 0, 0): "W",
}
_BASE = ("kg", "m", "s", "K", "mol", "A", "cd")
_CLASS = re.compile(rb"class\s+vol(\w+)Field\s*;")
_DIMENSIONS = re.compile(rb"dimensions\s*\[([^\]]*)\]\s*;")


def describe_field(path: Path, called: str, role: Role, dimension: int) -> Field:
    """Describe a field from the head of one of its files; CaseError where that is none.

    The vector's component across a plane case is left out.
    """
    head = read_head(path)
    found, measured = _CLASS.search(head), _DIMENSIONS.search(head)
    kind = found[1].decode() if found else ""
    number = COMPONENTS.get(kind[:1].lower() + kind[1:])
    if number is None:
        raise CaseError(f"{path} is no field of cells (no class vol…Field in its header)")
    unit = unit_of(measured[1].split()) if measured else ""
    openfoam, plain = path.name, re.sub(r"\W+", "_", path.name)
    usual = {**NAMES, **(KINEMATIC if unit == "m2/s2" else {})}
    components = (plain,) if number == 1 else COMPONENT_NAMES[number]
    if number == 3:
        components = components[:dimension]
    return Field(called or usual.get(openfoam, plain), unit, components, openfoam, role)


def unit_of(exponents: Sequence[bytes]) -> str:
    """Write dimensions as a unit: [0 1 -1 0 0 0 0] is m/s."""
    try:
        powers = [float(each) for each in exponents]
    except ValueError:
        return ""
    powers += [0.0] * (len(_BASE) - len(powers))
    if known := _UNITS.get(tuple(powers)):
        return known
    factors = [
        (power > 0, base if abs(power) == 1 else f"{base}{abs(power):g}")
        for base, power in zip(_BASE, powers, strict=False)
        if power
    ]
    above = " ".join(factor for is_above, factor in factors if is_above)
    below = "/".join(factor for is_above, factor in factors if not is_above)
    return f"{above or '1'}/{below}" if below else above or "1"


# Kinds of patches: by type, by name, and by the condition of U

#: In `--kind`: the patch is left out.
NONE = "none"
OPEN = "open"
"""A patch of which nothing else is known"""
_NO_BOUNDARY = ("empty", "wedge", "processor", "cyclic", "nonConformal")
_OF_TYPE = {
    "wall": "wall",
    "mappedWall": "wall",
    "symmetry": "symmetry",
    "symmetryPlane": "symmetry",
}
_OF_NAME = {"inlet": "inlet", "inflow": "inlet", "outlet": "outlet", "outflow": "outlet"}
#: By the beginning of the velocity's boundary condition.
_OF_VELOCITY = {
    "freestream": "farfield",
    "inletOutlet": "outlet",
    "pressureInletOutlet": "outlet",
    "zeroGradient": "outlet",
    "advective": "outlet",
    "waveTransmissive": "outlet",
    "noSlip": "wall",
    "slip": "symmetry",
    "fixedValue": "inlet",
    "flowRateInlet": "inlet",
    "surfaceNormalFixedValue": "inlet",
    "uniformFixedValue": "inlet",
    "turbulent": "inlet",
    "codedFixedValue": "inlet",
    "exprFixedValue": "inlet",
    "timeVaryingMapped": "inlet",
}
_UNIFORM = re.compile(rb"\s*+uniform\s*+\(([^()]*+)\)")


def patch_kind(patch: str, type_: str, condition: str, kinds: Mapping[str, str]) -> str | None:
    """Return a patch's kind; None for one that is no boundary of the flow.

    `condition` is that of U there, if it is known; `kinds` has kinds by patterns of names.
    """
    for pattern, kind in kinds.items():
        if fnmatch.fnmatchcase(patch, pattern):
            return None if kind == NONE else kind
    if type_.startswith(_NO_BOUNDARY):
        return None
    if type_ in _OF_TYPE:
        return _OF_TYPE[type_]
    for word, kind in _OF_NAME.items():
        if word in patch.lower():
            return kind
    for beginning, kind in _OF_VELOCITY.items():
        if condition.startswith(beginning):
            return kind
    return OPEN


def velocity_conditions(path: Path, patches: Mapping[str, PatchRange]) -> dict[str, str]:
    """Return the condition of each patch in a file of U; empty where there is no such file.

    A fixed velocity of zero is `noSlip`, which older cases have no word for.
    """
    if not has_file(path):
        return {}
    reader = FoamReader(path)
    entries: list[PatchEntry] = []
    for key in reader.names():
        if key == "boundaryField":
            entries = patch_entries(reader)
        else:
            reader.skip_entry()
    found = {}
    for name, entry in entries_of(patches, entries).items():
        found[name] = entry.condition
        at = entry.at.get("value")
        if entry.condition == "fixedValue" and at is not None:
            value = _UNIFORM.match(reader.data, at)
            try:
                if value and not any(float(each) for each in value[1].split()):
                    found[name] = "noSlip"
            except ValueError:  # a macro, which may be anything
                pass
    return found


# The solver: its dictionaries and its log

_EXEC = re.compile(r"^Exec\s*:\s*(?:\S*/)?([\w.-]+)", re.MULTILINE)
_VERSION = re.compile(r"^(?:Version|Build)\s*:\s*(\S+)", re.MULTILINE)
_LOG_HEAD = 8192

FoundLog = tuple[Path, str, SolverLog]
"""A log's file, the version of OpenFOAM, and what it holds"""


def read_control(directory: Path, region: str = "") -> tuple[str, float | None, bool | None]:
    """Return application, end time and whether the case is steady, from its dictionaries.

    Empty and None where they lack it; CaseError where they are damaged. A region has schemes
    of its own in system/<region>.
    """
    control, own = directory / "system/controlDict", directory / "system" / region / "fvSchemes"
    schemes = own if has_file(own) else directory / "system/fvSchemes"
    application, end = "", None
    if has_file(control):
        application = read_entry(control, ["application"]) or ""
        if (read_entry(control, ["stopAt"]) or "endTime") == "endTime":
            try:
                end = float(read_entry(control, ["endTime"]) or "none")
            except ValueError:
                end = None
    scheme = read_entry(schemes, ["ddtSchemes", "default"]) if has_file(schemes) else None
    # localEuler steps each cell by a time of its own: its times are iterations.
    steady = None if scheme is None else scheme.startswith(("steadyState", "localEuler"))
    return application, end, steady


def find_log(directory: Path, application: str) -> FoundLog | None:
    """Return the newest log of this application; of whatever solver, if it is not known."""
    found: list[tuple[float, Path, str]] = []
    for path in {*directory.glob("log*"), *directory.glob("*.log")}:
        if not path.is_file():
            continue
        with path.open(errors="replace") as file:
            head = file.read(_LOG_HEAD)
        program = _EXEC.search(head)
        if program and (program[1] == application if application else "Time = " in head):
            release = _VERSION.search(head)
            found.append((path.stat().st_mtime, path, release[1] if release else ""))
    if not found:
        return None
    _, path, version = max(found)
    log = SolverLog()
    with path.open(errors="replace") as file:
        for line in file:
            log.read(line.rstrip("\n"))
    return path, version, log


def check_finished(last_time: float, end: float | None, log: FoundLog | None) -> bool | None:
    """Return whether the solver came to its end; None where neither log nor end time is known.

    CaseError names what shows that it did not.
    """
    if (log is not None and log[2].finished) or (end is not None and last_time >= end * (1 - 1e-6)):
        return True
    if log is not None:
        why = f": {log[2].fatal}" if log[2].fatal else ", which has no End"
        raise CaseError(
            f"it is unfinished: its last time is {last_time:g}, and see {log[0].name}{why}"
        )
    if end is None:
        return None
    raise CaseError(
        f"it is unfinished: its last time is {last_time:g}, controlDict's endTime is {end:g}, and"
        " no log shows that it converged; --allow-unfinished imports it as it is"
    )


def figures_of(log: SolverLog) -> dict[str, float]:
    """Return the figures that the log holds, by the names of FIGURES."""
    residuals = list(log.last_residuals.values())
    figures = {"residual": float(np.max(residuals))} if residuals else {}
    if log.max_courant != 0:  # NaN too, which passes no limit
        figures["courant"] = log.max_courant
    if log.last_continuity_error != 0:
        figures["continuity"] = log.last_continuity_error
    return figures
