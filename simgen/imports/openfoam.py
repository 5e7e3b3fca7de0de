"""Import a folder of solved OpenFOAM cases that this project did not make.

A case is a directory with a mesh, with parts of a decomposed mesh, or with a system/controlDict; it
may be serial or decomposed, ascii, binary or packed, of any cells and patches. Its files are read
and never written. The survey finds mesh, times, fields with their units, patches with their kinds,
parameters, and what dictionaries and log hold of the solver; values are read later. The cells of a
decomposed case are those of its parts, one after the other; the faces between parts are no
boundary.
"""

import fnmatch
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from simgen.case import Field, Gate
from simgen.case_description import (
    check_unit,
    describe_field,
    dimension_of,
    has_file,
    patch_kind,
    read_control,
    velocity_conditions,
)
from simgen.errors import CaseError, InputError
from simgen.foam import mesh as foam_mesh
from simgen.foam.dictionaries import DictionaryPlace, differing_numbers, read_number
from simgen.foam.field import read_values
from simgen.foam.log import SolverLog
from simgen.foam.mesh import MeshGeometry, PatchRange, boundary_of, read_geometry, time_directories
from simgen.imports.folder import NotImported, Surveyed, fingerprint
from simgen.imports.importing import SourceCase
from simgen.solving.convert import distance_to_kinds
from simgen.solving.gates import rejection
from simgen.store.schema import Schema

_OF_CASE = ("constant", "system", "postProcessing", "VTK", "dynamicCode")
HEAD_BYTES = 8192
#: Times that differ by less, relative to themselves, are one time.
SAME_TIME = 1e-9
MOST_NAMED = 6  # Entries that differ between cases and are shown
FIGURES = ("courant", "continuity", "residual")  # Figures of a log, which limits may be set on


@dataclass(frozen=True, kw_only=True)
class FoamCase(Surveyed):
    parts: tuple[Path, ...]  # The directories that hold its mesh
    stored: tuple[tuple[float, str], ...]  # Times with the names of their directories
    patches: frozenset[str]  # All of them, boundaries or not
    gates: tuple[Gate, ...]
    provenance: Mapping[str, Any]


@dataclass
class FoamFolder:
    """The reader for OpenFOAM cases, with the options of `courant dataset import openfoam`."""

    has_volumes = True

    fields: Mapping[str, str]  # OpenFOAM's name to the dataset's; empty for the usual one
    given: frozenset[str] = frozenset()
    region: str = ""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Patch, with wildcards, to kind; `none` leaves a patch out"""
    patch_values: frozenset[str] = frozenset()
    """Conditions that have the cell's value on patches where they write none"""
    parameters: Mapping[str, DictionaryPlace] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    steady: bool | None = None  # None: as in the dictionaries
    after: float = 0.0
    every: int = 1
    interval: float | None = None
    allow_unfinished: bool = False
    limits: Mapping[str, float] = field(default_factory=dict)
    directories: dict[str, Path] = field(default_factory=dict, init=False)
    left_out: list[NotImported] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        if unknown := self.limits.keys() - set(FIGURES):
            raise InputError(f"--limit {min(unknown)}: expected one of {', '.join(FIGURES)}")

    def find(self, folder: Path) -> list[str]:
        for directory in find_cases(folder):
            place = directory.relative_to(folder).as_posix()
            # A folder that is a case itself is called by its own name.
            self.directories[folder.resolve().name if place == "." else place] = directory
        if not self.directories:
            raise InputError(
                f"{folder} holds no OpenFOAM case: no constant/polyMesh and no system/controlDict"
            )
        return list(self.directories)

    def notes(self, cases: Sequence[FoamCase]) -> Iterator[str]:
        patches = sorted({patch for case in cases for patch in case.patches})
        for pattern, kind in self.kinds.items():
            if not fnmatch.filter(patches, pattern):
                yield f"--kind {pattern}={kind} is of no patch; they are {', '.join(patches)}"
        if len(cases) > 1 and not any(case.parameters for case in cases):
            differing = differing_numbers([self.directories[case.place] for case in cases])
            named = [f"{at} ({low:g} to {high:g})" for at, (low, high) in differing.items()]
            if named:
                more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
                yield (
                    f"the cases differ in {', '.join(named[:MOST_NAMED])}{more}, and have no"
                    " parameters, so a model cannot distinguish their designs: add --parameter"
                    f" 'NAME (UNIT)={next(iter(differing))}'"
                )

    def survey(self, place: str) -> FoamCase:
        directory, region, names = self.directories[place], self.region, list(self.fields)
        parts = parts_of(directory, region, names)
        meshes = [part / "constant" / region / "polyMesh" for part in parts]
        for part in parts:
            foam_mesh.check_mesh_stays(part, region)
        found = [solved_times(part, region, names) for part in parts]
        stored = found[0]
        if odd := set(stored).union(*found) - set(stored).intersection(*found):
            raise CaseError(f"it is unfinished: its parts differ in time {min(odd)[1]}")
        if not stored:
            raise CaseError(f"it has no solved time: no time directory after 0 has {listed(names)}")
        application, end, steady = read_control(directory, region)
        if self.steady is not None:
            steady = self.steady
        if steady is None:
            steady = len(stored) == 1
        # Where its end is known not to be reached, nothing else of a case is looked at.
        log = find_log(directory, application)
        last, gates = stored[-1][0], []
        if not self.allow_unfinished and (log is not None or end is not None):
            if not ((log and log[2].finished) or (end is not None and last >= end * (1 - 1e-6))):
                why = f"controlDict's endTime is {end}, and no log shows that it converged"
                if log is not None:
                    why = f"see {log[0].name}: {log[2].fatal or 'it has no End'}"
                raise CaseError(
                    f"it is unfinished: its last time is {last:g}, {why}; --allow-unfinished"
                    " imports it as it is"
                )
            gates.append(Gate("solver finished", last, "End", True))
        figures: dict[str, float] = {}
        if log is not None:
            residual = float(np.max([*log[2].last_residuals.values()] or [0.0]))
            measured = (log[2].max_courant, log[2].last_continuity_error, residual)
            # NaN passes no limit.
            figures = {name: of for name, of in zip(FIGURES, measured, strict=True) if of != 0}
        limits = [
            Gate.at_most(f"{name} in the log", figures[name], limit)
            for name, limit in self.limits.items()
            if name in figures
        ]
        if why := rejection(limits):
            raise CaseError(why)
        times = stored[-1:] if steady else [of for of in stored if of[0] >= self.after]
        times = times[:: self.every]
        if not times:
            raise CaseError(f"it has no time from {self.after:g} on; its last is {last:g}")
        files = [mesh / of for mesh in meshes for of in foam_mesh.MESH_FILES]
        for part, (_, time), name in itertools.product(parts, times, names):
            files.append(part / time / region / name)
            if not has_file(files[-1]):
                there = files[-1].parent.glob("*")
                fields = sorted(path.name.removesuffix(".gz") for path in there if path.is_file())
                raise CaseError(f"its time {time} has no {name}; it has {listed(fields)}")
        first = parts[0] / times[0][1] / region
        patches: dict[str, PatchRange] = {}
        conditions: dict[str, str] = {}
        for part, mesh in zip(parts, meshes, strict=True):
            here = foam_mesh.read_boundary(mesh / "boundary")
            for name, patch in here.items():
                before = patches[name].size if name in patches else 0
                patches[name] = replace(patch, size=before + patch.size)
            # Where a part has no face of a patch, its values there are an empty list.
            faced = {name: patch for name, patch in here.items() if patch.size}
            of_part = velocity_conditions(part / times[0][1] / region / "U", faced)
            # A part of an inlet may be at rest.
            moving = {name: of for name, of in conditions.items() if of != "noSlip"}
            conditions |= of_part | moving
        kind_of = {
            name: kind
            for name, patch in patches.items()
            if patch.size
            and (kind := patch_kind(name, patch.type, conditions.get(name, ""), self.kinds))
        }
        parameters = {}
        for name, at in self.parameters.items():
            # Boundary conditions of a decomposed case may lie in its parts alone.
            roots = [root for root in (directory, *parts) if has_file(root / at.file)]
            if not roots:
                raise CaseError(f"it has no file {at.file}, where a parameter is read from")
            parameters[name] = read_number(roots[0], at)
            check_unit(self.units.get(name, ""), roots[0], at)
        dimension = dimension_of(
            patches,
            lambda: np.concatenate([foam_mesh.read_points(mesh / "points") for mesh in meshes]),
        )
        taken = [time for time, _ in times]
        if not steady and (interval := self.interval) is not None:
            steps = int((taken[-1] - taken[0]) / interval * (1 + SAME_TIME))
            if not steps:
                extent = f"{taken[0]:g} to {taken[-1]:g}"
                raise CaseError(f"its times, {extent}, span less than the interval of {interval:g}")
            taken = [float(f"{taken[0] + step * interval:.12g}") for step in range(steps + 1)]
        everywhere = {directory, *directory.glob("processor[0-9]*")}
        known = {of for root in everywhere for of in foam_mesh.all_time_directories(root)}
        passed = sorted({(at, path.name) for at, path in known if at} - set(stored))
        where = "the case itself" if parts[0] == directory else "its processors"
        without = f"times before 0 or without {' or '.join(names)} in {where}: "
        left_out = (without + listed([name for _, name in passed]),) if passed else ()
        return FoamCase(
            place=place,
            files=fingerprint(
                [of if of.exists() else of.with_name(f"{of.name}.gz") for of in files],
                *(region, taken, sorted(kind_of.items()), sorted(self.patch_values)),
            ),
            fields=tuple(
                describe_field(
                    first / name, called, "given" if name in self.given else "solved", dimension
                )
                for name, called in self.fields.items()
            ),
            dimension=dimension,
            times=None if steady else tuple(taken),
            kind_of=kind_of,
            parameters=parameters,
            left_out=left_out,
            parts=parts,
            stored=tuple(times),
            patches=frozenset(patches),
            gates=(*gates, *limits),
            provenance={
                "solver": application or "imported",
                **(log[1] if log else {}),
                "directory": str(directory),
                "patches": dict(kind_of),
                "figures": {name: of for name, of in figures.items() if np.isfinite(of)},
            },
        )

    def read(self, case: FoamCase, schema: Schema) -> SourceCase:
        """Read a case's mesh and values; CaseError names the file where something is wrong."""
        kinds = case.kind_of if schema.boundary else {}
        parts: dict[Path, MeshGeometry] = {}
        first = case.parts[0]
        for directory in case.parts:
            mesh = read_geometry(directory, self.region)
            if not (mesh.volumes > 0).all():
                raise CaseError(f"{directory.name}: its mesh has cells without volume")
            if len(mesh.volumes):  # there may be more processors than cells on one side
                parts[directory] = mesh
        if not parts:
            raise CaseError("its mesh has no cells")
        times = np.array([time for time, _ in case.stored])
        asked, after, share = case.times, None, np.empty(0)
        if asked is not None and not np.array_equal(times, asked):
            after = np.searchsorted(times, asked).clip(1, len(times) - 1)
            share = (np.array(asked) - times[after - 1]) / (times[after] - times[after - 1])
            share = share.clip(0, 1)[:, None, None]

        def snapshot(time: str, stored: Field) -> list[np.ndarray]:
            """Return a field in the cells (C, c) and on the faces (B, c) of all parts."""
            found = [
                read_values(
                    directory / time / self.region / stored.openfoam,
                    mesh,
                    [name for name in mesh.patches if name in kinds],
                    stored.components,
                    self.patch_values,
                    needs_entries=False,
                )
                for directory, mesh in parts.items()
            ]
            both = [np.concatenate(of) for of in zip(*found, strict=True)]
            if wrong := sum(int(np.count_nonzero(~np.isfinite(each))) for each in both):
                where = f"{time}/{stored.openfoam}"
                raise CaseError(f"{where} holds {wrong} values that are not finite")
            return both

        fields: dict[str, np.ndarray] = {}
        on_faces: dict[str, np.ndarray] = {}
        for each in case.fields:
            snapshots = [snapshot(time, each) for _, time in case.stored]
            for at, found in enumerate((fields, on_faces)):
                values = np.stack([of[at] for of in snapshots])
                if after is not None:
                    values = (1 - share) * values[after - 1] + share * values[after]
                found[each.name] = values[0] if asked is None else values
        whole, places = _joined(list(parts.values()))
        groups = [
            (schema.patch_kinds.index(kinds[name]), places_of_part[patch.faces])
            for mesh, places_of_part in zip(parts.values(), places, strict=True)
            for name, patch in mesh.patches.items()
            if name in kinds
        ]
        rows, faces = boundary_of(whole, groups)
        distance = direction = None
        if schema.measured_kinds:
            numbers = map(schema.patch_kinds.index, schema.measured_kinds)
            of_kinds = [rows[faces.patch == number] for number in numbers]
            distance, direction = distance_to_kinds(whole.centres, whole, of_kinds)
        flat = np.array([1.0, 1.0, 1.0 if case.dimension == 3 else 0.0])
        points, normals = faces.points * flat, faces.normals * flat
        boundary = replace(faces, points=points, normals=normals, fields=on_faces)
        return SourceCase(
            name=case.name,
            points=whole.centres * flat,
            fields=fields,
            time=case.times,
            parameters=case.parameters,
            split=case.split,
            volumes=whole.volumes,
            distance=distance,
            direction=direction,
            boundary=boundary if schema.boundary else None,
            mesh=foam_mesh.cell_mesh(whole, rows),
            gates=case.gates,
            provenance={**case.provenance, "parts": len(parts)},
            directory=first.parent if first.name == "processor0" else first,
        )


def _joined(meshes: Sequence[MeshGeometry]) -> tuple[MeshGeometry, list[np.ndarray]]:
    """Put parts' meshes together, without patches; return where the faces of each are, too.

    As in any mesh, the internal faces of all parts come first.
    """

    def joined(name: str, labels: str = "") -> np.ndarray:
        """Concatenate an array of all parts, whose values may be labels of others before it."""
        shift, found = 0, []
        for mesh in meshes:
            found.append(getattr(mesh, name) + shift if labels else getattr(mesh, name))
            shift += len(getattr(mesh, labels)) if labels else 0
        return np.concatenate(found)

    is_outside = [np.arange(len(of.owner)) >= len(of.neighbour) for of in meshes]
    order = np.argsort(np.concatenate(is_outside), kind="stable")
    places = np.split(np.argsort(order), np.cumsum([len(of) for of in is_outside])[:-1])
    sizes = np.concatenate([np.diff(of.face_offsets) for of in meshes])
    starts, sizes = (np.cumsum(sizes) - sizes)[order], sizes[order]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    corners = np.repeat(starts - offsets[:-1], sizes) + np.arange(offsets[-1])
    points, shift, between = joined("points"), 0, [np.empty(0, dtype=int)]
    for mesh in meshes:
        for patch in mesh.patches.values():
            if patch.type.startswith("processor"):
                ends = mesh.face_offsets[[patch.start, patch.start + patch.size]]
                between.append(mesh.face_points[slice(*ends)] + shift)
        shift += len(mesh.points)
    # Both parts have the points of the faces between them; cells are neighbours by common points.
    twice, same = np.unique(np.concatenate(between)), np.arange(len(points))
    _, first, of = np.unique(points[twice], axis=0, return_index=True, return_inverse=True)
    same[twice] = twice[first[of.reshape(-1)]]
    whole = MeshGeometry(
        centres=joined("centres"),
        volumes=joined("volumes"),
        face_centres=joined("face_centres")[order],
        face_areas=joined("face_areas")[order],
        owner=joined("owner", "centres")[order],
        neighbour=joined("neighbour", "centres"),
        patches={},
        points=points,
        face_offsets=offsets,
        face_points=same[joined("face_points", "points")[corners]],
    )
    return whole, places


# Cases, their parts and times


def find_cases(folder: Path) -> Iterator[Path]:
    """Yield the case directories at and below `folder`, links to cases too, in order of paths.

    A case may have others beside its own directories.
    """
    if is_case(folder):
        yield folder
    for path, folders, _ in os.walk(folder):
        here = Path(path)
        if is_case(here):
            folders[:] = [
                name
                for name in folders
                if not (name in _OF_CASE or name.startswith("processor"))
                and foam_mesh.time_of(name) is None
            ]
        folders.sort()
        yield from (here / name for name in folders if is_case(here / name))


def is_case(directory: Path) -> bool:
    """Return whether the directory is an OpenFOAM case, solved or not."""
    return (
        has_file(directory / "system/controlDict")
        or bool(regions_of(directory))
        or (directory / "constant/polyMesh").is_dir()
        or (directory / "processor0").is_dir()
    )


def regions_of(directory: Path) -> list[str]:
    """List the regions that have a mesh of their own."""
    return sorted(path.parent.name for path in (directory / "constant").glob("*/polyMesh"))


def listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return (", ".join(names[:10]) or "no fields") + more


def solved_times(part: Path, region: str, fields: Sequence[str]) -> list[tuple[float, str]]:
    """List the times after 0, with their directories' names, that have any of these fields."""
    return [
        (time, path.name)
        for time, path in time_directories(part)
        if any(has_file(path / region / name) for name in fields)
    ]


def parts_of(directory: Path, region: str, fields: Sequence[str]) -> tuple[Path, ...]:
    """Return the directories that hold the case's mesh, and the later times of these fields.

    CaseError where there is no mesh, or where a part is missing.
    """
    names = sorted(path.name for path in directory.glob("processor*") if path.is_dir())
    if collated := [name for name in names if name.startswith("processors")]:
        raise CaseError(
            f"it is stored in OpenFOAM's collated format ({collated[0]}); put it together first,"
            " with reconstructPar"
        )
    numbers = sorted(int(number) for name in names if (number := name[9:]).isdigit())
    if missing := set(range(len(numbers))) - set(numbers):
        raise CaseError(f"its part processor{min(missing)} is missing")
    parts = tuple(directory / f"processor{number}" for number in numbers)

    def end_of(*of: Path) -> tuple[float, int]:
        times = (solved_times(part, region, fields) for part in of)
        return max(((found[-1][0], len(found)) for found in times if found), default=(0.0, 0))

    is_serial = has_file(directory / "constant" / region / "polyMesh" / "points")
    # reconstructPar -latestTime leaves all other times in the parts.
    if parts and (not is_serial or end_of(*parts) > end_of(directory)):
        return parts
    if is_serial:
        return (directory,)
    regions = ", ".join(regions_of(directory))
    if region:
        raise CaseError(f"it has no region {region}; it has {regions or 'none'}")
    if regions:
        raise CaseError(f"it has a mesh for each of {regions}; choose one with --region")
    raise CaseError("it has no mesh in constant/polyMesh")


# The solver, by its log

_EXEC = re.compile(r"^Exec\s*:\s*(?:\S*/)?([\w.-]+)(?!.*-postProcess)", re.MULTILINE)
_VERSION = re.compile(r"^(?:Version|Build)\s*:\s*(\S+)", re.MULTILINE)
_PROCESSES = re.compile(r"^nProcs\s*:\s*(\d+)", re.MULTILINE)


def find_log(directory: Path, application: str) -> tuple[Path, Mapping[str, Any], SolverLog] | None:
    """Return the newest log of this application (of any, if it is not known).

    With it what it has for a case's provenance: the solver's version, its cores and times.
    """
    found: list[tuple[float, Path, str]] = []
    for path in {*directory.glob("log*"), *directory.glob("*.log")}:
        if not path.is_file():
            continue
        with path.open(errors="replace") as file:
            head = file.read(HEAD_BYTES)
        program = _EXEC.search(head)
        if program and (program[1] == application if application else "Time = " in head):
            found.append((path.stat().st_mtime, path, head))
    if not found:
        return None
    _, path, head = max(found)
    log, of = SolverLog(), dict[str, Any]()
    with path.open(errors="replace") as file:
        for line in file:
            log.read(line.rstrip("\n"))
    if release := _VERSION.search(head):
        of["solver_version"] = f"OpenFOAM {release[1]}"
    if log.cpu_s is not None and np.isfinite(log.cpu_s):
        processes = _PROCESSES.search(head)
        of["cores"] = cores = int(processes[1]) if processes else 1
        of["cpu_time_s"] = {"solve": log.cpu_s * cores}
        # The clock counts whole seconds.
        of["wall_time_s"] = {"solve": float(np.fmax(log.wall_s, log.cpu_s))}
    return path, of, log
