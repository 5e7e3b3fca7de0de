"""Look at one case without reading its values: mesh, times, fields, patches, parameters, solver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from simgen.errors import CaseError
from simgen.foam.mesh_files import (
    PatchRange,
    all_time_directories,
    moved_meshes,
    read_boundary,
    read_points,
    time_directories,
)
from simgen.imports.openfoam.dictionary import DictionaryPlace, read_number
from simgen.imports.openfoam.finding import (
    has_file,
    parts_of,
    processors_of,
    regions_of,
    solved_times,
)
from simgen.imports.openfoam.foam_fields import AskedField, field_of
from simgen.imports.openfoam.patch_kinds import boundary_conditions, patch_kind
from simgen.imports.openfoam.solver_log import (
    FoundLog,
    SolverControl,
    check_finished,
    check_limits,
    figures_of,
    find_log,
    read_control,
)
from simgen.imports.surveyed import Asked, Surveyed, fingerprint

_MESH_FILES = ("points", "faces", "owner", "neighbour", "boundary")
#: Times that differ by less, relative to themselves, are one time.
SAME_TIME = 1e-9
MOST_LISTED = 10


@dataclass(frozen=True)
class FoamOptions:
    """What is asked of the import of OpenFOAM cases."""

    fields: tuple[AskedField, ...]
    region: str = ""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Patch, with wildcards, to kind"""
    patch_values: frozenset[str] = frozenset()
    """Conditions that have the cell's value on patches where they write none"""
    parameters: Mapping[str, DictionaryPlace] = field(default_factory=dict)
    steady: bool | None = None
    """Whether cases are steady; None = what their dictionaries say"""
    after: float = 0.0
    """Times before this one are left out"""
    every: int = 1
    """Of the times of a transient case every n-th"""
    interval: float | None = None
    """Seconds between the times of a transient case, to which its snapshots are interpolated"""
    allow_unfinished: bool = False
    limits: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class FoamCase:
    """What the reader of a case needs."""

    parts: tuple[Path, ...]
    times: tuple[tuple[float, str], ...]
    """Times with the names of their directories"""
    kinds: Mapping[str, str]
    """Patch to kind, of those that are boundaries"""
    patches: frozenset[str]
    """All of them"""
    control: SolverControl
    log: FoundLog | None
    finished: bool | None


def survey_case(directory: Path, place: str, asked: Asked, options: FoamOptions) -> Surveyed:
    """Survey a case; CaseError and InputError say in one line why it cannot be imported."""
    names = [each.openfoam for each in options.fields]
    parts = parts_of(directory, options.region, names)
    _check_mesh_rests(parts, options.region)
    control = read_control(directory, options.region)
    stored = _common_times(parts, options)
    steady = _is_steady(control, stored, options)
    log = find_log(directory, control.application)
    # Where its end is known not to be reached, nothing else of a case is looked at.
    finished = None if options.allow_unfinished else check_finished(stored[-1][0], control, log)
    check_limits(figures_of(log), options.limits)
    times = stored[-1:] if steady else _chosen(stored, options)
    files = _field_files(parts, times, options)
    patches = _patches(parts, options.region)
    kinds = _kinds(parts, times, patches, options)
    dimension = 2 if _is_plane(parts, patches, options.region) else 3
    first = Path(parts[0], times[0][1], options.region)
    row = asked.row_of(place)
    numbers = {name: _number(parts, directory, at) for name, at in options.parameters.items()}
    settings = (
        *(options.region, options.after, options.every, options.interval),
        sorted(kinds.items()),
        sorted(options.patch_values),
    )
    meshes = [
        _found(part / "constant" / options.region / "polyMesh" / name)
        for part in parts
        for name in _MESH_FILES
    ]
    return Surveyed(
        place=place,
        files=fingerprint([*meshes, *files], settings),
        fields=tuple(field_of(first / each.openfoam, each, dimension) for each in options.fields),
        dimension=dimension,
        times=None if steady else _asked_times([time for time, _ in times], options.interval),
        kinds=frozenset(kinds.values()),
        parameters={**row.parameters, **numbers},
        split=row.split,
        left_out=tuple(_left_out(directory, parts, stored, options)),
        details=FoamCase(parts, times, kinds, frozenset(patches), control, log, finished),
    )


def _check_mesh_rests(parts: Sequence[Path], region: str) -> None:
    for part in parts:
        if moved := moved_meshes(part, region):
            raise CaseError(
                f"its mesh moves: it has {moved[0]} beside constant/polyMesh, and only meshes that"
                " stay the same are imported"
            )


def _common_times(parts: Sequence[Path], options: FoamOptions) -> tuple[tuple[float, str], ...]:
    """Return the times with fields, which all parts of a decomposed case must have."""
    names = [each.openfoam for each in options.fields]
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


def _left_out(
    directory: Path,
    parts: Sequence[Path],
    stored: Sequence[tuple[float, str]],
    options: FoamOptions,
) -> Iterator[str]:
    """Describe what the case has and the import does not read, though nobody asked for that."""
    names = [each.openfoam for each in options.fields]
    there = {path.name: time for part in parts for time, path in all_time_directories(part)}
    if before := [name for name, time in there.items() if time < 0]:
        yield f"times before 0: {_listed(before)}"
    known = {name for _, name in stored}
    if bare := [name for name, time in there.items() if time > 0 and name not in known]:
        yield f"times without {' or '.join(names)}: {_listed(bare)}"
    others = (directory,) if parts[0] != directory else processors_of(directory)
    solved = {time for time, _ in stored}
    elsewhere = {
        name: f"{name} of {other.name}"
        for other in others
        for time, name in solved_times(other, options.region, names)
        if time not in solved
    }
    if elsewhere:
        place = "the case itself" if parts[0] == directory else "its processors"
        yield f"times that are not in {place}: {_listed(list(elsewhere.values()))}"
    if not options.region and (regions := regions_of(parts[0])):
        yield f"the regions {_listed(regions)}: choose one with --region"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return ", ".join(names[:MOST_LISTED]) + more


def _asked_times(stored: Sequence[float], interval: float | None) -> tuple[float, ...]:
    """Return the stored times, or those at an interval from the first to the last of them."""
    if interval is None:
        return tuple(stored)
    steps = int((stored[-1] - stored[0]) / interval * (1 + SAME_TIME))
    if not steps:
        raise CaseError(
            f"its times lie from {stored[0]:g} to {stored[-1]:g}, which is less than the interval"
            f" of {interval:g}"
        )
    return tuple(float(f"{stored[0] + step * interval:.12g}") for step in range(steps + 1))


def _is_steady(
    control: SolverControl, stored: Sequence[tuple[float, str]], options: FoamOptions
) -> bool:
    if options.steady is not None:
        return options.steady
    return len(stored) == 1 if control.is_steady is None else control.is_steady


def _chosen(
    stored: Sequence[tuple[float, str]], options: FoamOptions
) -> tuple[tuple[float, str], ...]:
    times = tuple(each for each in stored if each[0] >= options.after)[:: options.every]
    if not times:
        raise CaseError(f"it has no time from {options.after:g} on; its last is {stored[-1][0]:g}")
    return times


def _field_files(
    parts: Sequence[Path], times: Sequence[tuple[float, str]], options: FoamOptions
) -> list[Path]:
    """List the files of all fields at all times; CaseError names the first that is missing."""
    files = []
    for part in parts:
        for _, time in times:
            for each in options.fields:
                path = Path(part, time, options.region, each.openfoam)
                if not has_file(path):
                    raise CaseError(_missing(part, time, each.openfoam, times, options))
                files.append(_found(path))
    return files


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


def _patches(parts: Sequence[Path], region: str) -> dict[str, PatchRange]:
    """Return each patch, with the number of its faces in all parts."""
    patches: dict[str, PatchRange] = {}
    for part in parts:
        mesh = part / "constant" / region / "polyMesh"
        for name, patch in read_boundary(mesh / "boundary").items():
            before = patches[name].size if name in patches else 0
            patches[name] = replace(patch, size=before + patch.size)
    return patches


def _kinds(
    parts: Sequence[Path],
    times: Sequence[tuple[float, str]],
    patches: Mapping[str, PatchRange],
    options: FoamOptions,
) -> dict[str, str]:
    velocity: dict[str, str] = {}
    for part in parts:
        velocity |= boundary_conditions(Path(part, times[0][1], options.region, "U"), patches)
    found = {
        name: patch_kind(name, patch.type, velocity, options.kinds)
        for name, patch in patches.items()
        if patch.size
    }
    return {patch: kind for patch, kind in found.items() if kind is not None}


def _is_plane(parts: Sequence[Path], patches: Mapping[str, PatchRange], region: str) -> bool:
    """Tell whether the case is one layer of cells across z, between empty patches.

    Plane cases that lie across another axis are taken as they are, in three dimensions.
    """
    if not any(patch.type == "empty" and patch.size for patch in patches.values()):
        return False
    points = np.concatenate(
        [read_points(part / "constant" / region / "polyMesh" / "points") for part in parts]
    )
    tolerance = 1e-6 * float(np.ptp(points, axis=0).max())
    z = points[:, 2]
    on_sheets = (z <= z.min() + tolerance) | (z >= z.max() - tolerance)
    return bool(on_sheets.all() and np.ptp(z) > 2 * tolerance)


def _number(parts: Sequence[Path], directory: Path, place: DictionaryPlace) -> float:
    """Read a parameter; boundary conditions of a decomposed case may lie in its parts alone."""
    for root in (directory, *parts):
        if has_file(root / place.file):
            return read_number(root, place)
    raise CaseError(f"it has no file {place.file}, where a parameter is read from")


def _found(path: Path) -> Path:
    return path if path.exists() else path.with_name(f"{path.name}.gz")
