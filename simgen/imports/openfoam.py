"""Import a folder of solved OpenFOAM cases that this project did not make.

A case is a directory with a mesh, with parts of a decomposed mesh, or with a system/controlDict; it
may be serial or decomposed, ascii, binary or packed, of any cells and patches. Its files are read
and never written. The survey finds mesh, times, fields with their units, patches with their kinds,
parameters, and what dictionaries and log hold of the solver; values are read later. The cells of a
decomposed case are those of its parts, one after the other; the faces between parts are no
boundary.
"""

from __future__ import annotations

import fnmatch
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from simgen.case import Field, Gate, Role
from simgen.errors import CaseError, InputError
from simgen.foam import mesh as foam_mesh
from simgen.foam.field import COMPONENT_NAMES, read_field
from simgen.foam.log import SolverLog
from simgen.foam.mesh import MeshGeometry, PatchRange, read_geometry, time_directories
from simgen.foam.reader import COMPONENTS, FoamReader
from simgen.imports.folder import NotImported, Surveyed, fingerprint
from simgen.imports.importing import SourceBoundary, SourceCase
from simgen.solving.convert import distance_to_faces, field_values
from simgen.solving.gates import check_sizes, columns_of, rejection
from simgen.store.schema import Schema

_OF_CASE = ("constant", "system", "postProcessing", "VTK", "dynamicCode")
HEAD_BYTES = 8192
#: Times that differ by less, relative to themselves, are one time.
SAME_TIME = 1e-9
FIGURES = ("courant", "continuity", "residual")
"""Figures of a log, which limits may be set on"""


@dataclass(frozen=True)
class FoamOptions:
    """The options of `courant dataset import openfoam` for its cases."""

    fields: Mapping[str, str]
    """OpenFOAM's name to the dataset's; empty for the usual one"""
    given: frozenset[str] = frozenset()
    region: str = ""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Patch, with wildcards, to kind; `none` leaves a patch out"""
    patch_values: frozenset[str] = frozenset()
    """Conditions that have the cell's value on patches where they write none"""
    parameters: Mapping[str, DictionaryPlace] = field(default_factory=dict)
    steady: bool | None = None
    """None: as in the dictionaries"""
    after: float = 0.0
    every: int = 1
    interval: float | None = None
    allow_unfinished: bool = False
    limits: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if unknown := self.limits.keys() - set(FIGURES):
            raise InputError(f"--limit {min(unknown)}: expected one of {', '.join(FIGURES)}")


@dataclass(frozen=True, kw_only=True)
class FoamCase(Surveyed):
    """A surveyed OpenFOAM case."""

    parts: tuple[Path, ...]
    """The directories that hold its mesh"""
    stored: tuple[tuple[float, str], ...]
    """Times with the names of their directories"""
    patches: frozenset[str]
    """All of them, boundaries or not"""
    gates: tuple[Gate, ...]
    provenance: Mapping[str, Any]


class FoamFolder:
    """The reader for OpenFOAM cases, as `simgen.imports.folder` needs one."""

    has_volumes = True

    def __init__(self, options: FoamOptions) -> None:
        self.options = options
        self.directories: dict[str, Path] = {}
        self.left_out: list[NotImported] = []

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
        for pattern, kind in self.options.kinds.items():
            if not fnmatch.filter(patches, pattern):
                yield f"--kind {pattern}={kind} is of no patch; they are {', '.join(patches)}"

    def survey(self, place: str) -> FoamCase:
        options, directory = self.options, self.directories[place]
        region, names = options.region, list(options.fields)
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
        if options.steady is not None:
            steady = options.steady
        if steady is None:
            steady = len(stored) == 1
        # Where its end is known not to be reached, nothing else of a case is looked at.
        log = find_log(directory, application)
        last, gates = stored[-1][0], []
        if not options.allow_unfinished and (log is not None or end is not None):
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
            for name, limit in options.limits.items()
            if name in figures
        ]
        if why := rejection(limits):
            raise CaseError(why)
        times = stored[-1:] if steady else [of for of in stored if of[0] >= options.after]
        times = times[:: options.every]
        if not times:
            raise CaseError(f"it has no time from {options.after:g} on; its last is {last:g}")
        files = [mesh / of for mesh in meshes for of in foam_mesh.MESH_FILES]
        for part, (_, time), name in itertools.product(parts, times, names):
            files.append(part / time / region / name)
            if not has_file(files[-1]):
                there = files[-1].parent.glob("*")
                fields = sorted(path.name.removesuffix(".gz") for path in there if path.is_file())
                raise CaseError(f"its time {time} has no {name}; it has {listed(fields)}")
        first = parts[0] / times[0][1] / region
        patches: dict[str, PatchRange] = {}
        for mesh in meshes:
            for name, patch in foam_mesh.read_boundary(mesh / "boundary").items():
                before = patches[name].size if name in patches else 0
                patches[name] = replace(patch, size=before + patch.size)
        conditions: dict[str, str] = {}
        for part in parts:
            conditions |= velocity_conditions(part / times[0][1] / region / "U", patches)
        kind_of = {
            name: kind
            for name, patch in patches.items()
            if patch.size
            and (kind := patch_kind(name, patch.type, conditions.get(name, ""), options.kinds))
        }
        parameters = {}
        for name, at in options.parameters.items():
            # Boundary conditions of a decomposed case may lie in its parts alone.
            roots = [root for root in (directory, *parts) if has_file(root / at.file)]
            if not roots:
                raise CaseError(f"it has no file {at.file}, where a parameter is read from")
            parameters[name] = read_number(roots[0], at)
        dimension = 3
        if any(patch.type == "empty" and patch.size for patch in patches.values()):
            points = np.concatenate([foam_mesh.read_points(mesh / "points") for mesh in meshes])
            z, tolerance = points[:, 2], 1e-6 * float(np.ptp(points, axis=0).max())
            on_sheets = (z <= z.min() + tolerance) | (z >= z.max() - tolerance)
            # One layer of cells across z. Plane cases across another axis are imported in 3D.
            if on_sheets.all() and np.ptp(z) > 2 * tolerance:
                dimension = 2
        taken = [time for time, _ in times]
        if not steady and (interval := options.interval) is not None:
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
                *(region, taken, sorted(kind_of.items()), sorted(options.patch_values)),
            ),
            fields=tuple(
                describe_field(
                    first / name, called, "given" if name in options.given else "solved", dimension
                )
                for name, called in options.fields.items()
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
                **({"solver_version": f"OpenFOAM {log[1]}"} if log and log[1] else {}),
                "directory": place,
                "patches": dict(kind_of),
                "figures": {name: of for name, of in figures.items() if np.isfinite(of)},
            },
        )

    def read(self, case: FoamCase, schema: Schema) -> SourceCase:
        """Read a case's mesh and values; CaseError names the file where something is wrong."""
        options = self.options
        kinds = case.kind_of if schema.boundary else {}
        parts: dict[Path, MeshGeometry] = {}
        for directory in case.parts:
            mesh = read_geometry(directory, options.region)
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

        def snapshot(
            directory: Path, mesh: MeshGeometry, time: str, stored: Field
        ) -> tuple[np.ndarray, np.ndarray]:
            """Return a field in the cells (C, c) and on the boundary's faces (B, c) of one part."""
            path = directory / time / options.region / stored.openfoam
            boundaries = [name for name in mesh.patches if name in kinds]
            values = read_field(path, mesh.patches)
            # A field without any entry, as post-processing may make it, has its cells' on patches.
            with_values = boundaries if values.patches else ()
            check_sizes(path, values, len(mesh.centres), mesh.patches, with_values)
            columns, precision = columns_of(stored, values), np.dtype("f8")
            where = f"{time}/{stored.openfoam}"
            try:
                both = field_values(
                    mesh, boundaries, values, columns, precision, options.patch_values
                )
            except CaseError as error:
                raise CaseError(f"{where}: {error}") from error
            if wrong := sum(int(np.count_nonzero(~np.isfinite(each))) for each in both):
                raise CaseError(f"{where} holds {wrong} values that are not finite")
            return both

        fields: dict[str, np.ndarray] = {}
        on_faces: dict[str, np.ndarray] = {}
        for each in case.fields:
            snapshots = [
                [snapshot(directory, mesh, time, each) for directory, mesh in parts.items()]
                for _, time in case.stored
            ]
            for at, found in enumerate((fields, on_faces)):
                values = np.stack([np.concatenate([part[at] for part in of]) for of in snapshots])
                if after is not None:
                    values = (1 - share) * values[after - 1] + share * values[after]
                found[each.name] = values[0] if asked is None else values
        whole, places = _joined(list(parts.values()))
        of_kinds = [
            (schema.patch_kinds.index(kinds[name]), places_of_part[patch.faces])
            for mesh, places_of_part in zip(parts.values(), places, strict=True)
            for name, patch in mesh.patches.items()
            if name in kinds
        ]
        distance = direction = None
        if schema.measured_kinds:
            measured = []
            for kind in schema.measured_kinds:
                number = schema.patch_kinds.index(kind)
                chosen = np.concatenate([faces for at, faces in of_kinds if at == number])
                measured.append(distance_to_faces(whole.centres, whole, chosen))
            distance, direction = (np.stack(of, axis=1) for of in zip(*measured, strict=True))
        flat = np.array([1.0, 1.0, 1.0 if case.dimension == 3 else 0.0])
        faces = np.concatenate([np.empty(0, int), *(faces for _, faces in of_kinds)])
        boundary = None
        if schema.boundary:
            areas = whole.face_areas[faces]
            size = np.linalg.norm(areas, axis=1)
            boundary = SourceBoundary(
                points=whole.face_centres[faces] * flat,
                normals=areas * flat / np.maximum(size, 1e-300)[:, None],
                areas=size,
                patch=np.concatenate([np.full(len(of), number) for number, of in of_kinds]),
                fields=on_faces,
            )
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
            boundary=boundary,
            mesh=foam_mesh.cell_mesh(whole, faces),
            gates=case.gates,
            provenance={**case.provenance, "parts": len(parts)},
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
    whole = MeshGeometry(
        centres=joined("centres"),
        volumes=joined("volumes"),
        face_centres=joined("face_centres")[order],
        face_areas=joined("face_areas")[order],
        owner=joined("owner", "centres")[order],
        neighbour=joined("neighbour", "centres"),
        patches={},
        points=joined("points"),
        face_offsets=offsets,
        face_points=joined("face_points", "points")[corners],
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


def has_file(path: Path) -> bool:
    """Return whether OpenFOAM would find this file, packed or not."""
    return path.is_file() or path.with_name(f"{path.name}.gz").is_file()


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


def describe_field(path: Path, called: str, role: Role, dimension: int) -> Field:
    """Describe a field from the head of one of its files; CaseError where that is none.

    The vector's component across a plane case is left out.
    """
    reader, unit = FoamReader(path), ""
    kind = re.sub("^vol(.)(.*)Field$", lambda of: of[1].lower() + of[2], reader.header["class"])
    number = COMPONENTS.get(kind)
    if number is None:
        raise CaseError(f"{path} is no field of cells (no class vol…Field in its header)")
    for key in reader.names():
        entry = reader.skip_entry()
        if key == "dimensions":
            unit = unit_of(entry.strip(b"[] \t\n;").split())
            break
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
    factors: tuple[list[str], list[str]] = ([], [])
    for base, power in zip(_BASE, powers, strict=False):
        if power:
            factors[power < 0].append(base if abs(power) == 1 else f"{base}{abs(power):g}")
    above, below = factors
    return "/".join([" ".join(above) or "1", *below])


# Kinds of patches: by name, by type, and by the condition of U

_NO_BOUNDARY = ("empty", "wedge", "processor", "cyclic", "nonConformal")
_WALLS = ("wall", "mappedWall")
_OF_NAME = {"inlet": "inlet", "inflow": "inlet", "outlet": "outlet", "outflow": "outlet"}
#: Kinds by the beginning of the velocity's boundary condition.
_OF_VELOCITY = {
    "farfield": ("freestream",),
    "wall": ("noSlip",),
    "symmetry": ("slip",),
    "outlet": (
        *("inletOutlet", "pressureInletOutlet", "zeroGradient", "advective", "waveTransmissive"),
    ),
    "inlet": (
        *("fixedValue", "flowRateInlet", "surfaceNormalFixedValue", "uniformFixedValue"),
        *("turbulent", "codedFixedValue", "exprFixedValue", "timeVaryingMapped"),
    ),
}


def patch_kind(patch: str, type_: str, condition: str, kinds: Mapping[str, str]) -> str | None:
    """Return a patch's kind; None for one that is no boundary, `open` where nothing is known.

    `condition` is that of U there, if it is known; `kinds` has kinds by patterns of names.
    """
    for pattern, kind in kinds.items():
        if fnmatch.fnmatchcase(patch, pattern):
            return None if kind == "none" else kind
    if type_.startswith(_NO_BOUNDARY):
        return None
    if type_ in _WALLS or type_.startswith("symmetry"):
        return "wall" if type_ in _WALLS else "symmetry"
    by_name = (kind for word, kind in _OF_NAME.items() if word in patch.lower())
    by_velocity = (kind for kind, words in _OF_VELOCITY.items() if condition.startswith(words))
    return next(itertools.chain(by_name, by_velocity), "open")


def velocity_conditions(path: Path, patches: Mapping[str, PatchRange]) -> dict[str, str]:
    """Return the condition of each patch in a file of U; empty where there is no such file.

    A fixed velocity of zero is `noSlip`, which older cases have no word for.
    """
    if not has_file(path):
        return {}
    velocity = read_field(path, patches)
    found = dict(velocity.patches)
    for name, value in velocity.boundary.items():
        if found[name] == "fixedValue" and value.ndim == 1 and not value.any():
            found[name] = "noSlip"
    return found


# The solver: its dictionaries and its log

_EXEC = re.compile(r"^Exec\s*:\s*(?:\S*/)?([\w.-]+)", re.MULTILINE)
_VERSION = re.compile(r"^(?:Version|Build)\s*:\s*(\S+)", re.MULTILINE)


def read_control(directory: Path, region: str = "") -> tuple[str, float | None, bool | None]:
    """Return application, end time and whether the case is steady, from its dictionaries.

    Empty and None where they lack it; CaseError where they are damaged. A region has schemes
    of its own in system/<region>.
    """
    control, own = directory / "system/controlDict", directory / "system" / region / "fvSchemes"
    schemes = own if has_file(own) else directory / "system/fvSchemes"
    application, stop, last = (
        (read_entry(control, [name]) if has_file(control) else None) or ""
        for name in ("application", "stopAt", "endTime")
    )
    try:
        end = float(last) if stop in ("", "endTime") else None
    except ValueError:
        end = None
    scheme = read_entry(schemes, ["ddtSchemes", "default"]) if has_file(schemes) else None
    # localEuler steps each cell by a time of its own: its times are iterations.
    steady = None if scheme is None else scheme.startswith(("steadyState", "localEuler"))
    return application, end, steady


def find_log(directory: Path, application: str) -> tuple[Path, str, SolverLog] | None:
    """Return the newest log of this application (of any, if it is not known), and its version."""
    found: list[tuple[float, Path, str]] = []
    for path in {*directory.glob("log*"), *directory.glob("*.log")}:
        if not path.is_file():
            continue
        with path.open(errors="replace") as file:
            head = file.read(HEAD_BYTES)
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


# Single entries of dictionaries, such as a viscosity. Of entries with the same name the last one
# counts, and dictionaries with the same name are one. `#include` is followed, beside its own file;
# `$name` in a value is looked up from the inside out, when it is read. What is computed, included
# from elsewhere, or decides which entries count (`#if…`, `#remove`, `$name;` in place of entries)
# is not followed: entries beside the latter are in doubt. Names in quotes, which are patterns, are
# found as they are written.

_INCLUDE = re.compile(r'#(include|sinclude|includeIfPresent)\s+"([^"$<]+)"')
_MACRO = re.compile(r"\$([:!^]?)(?:\{([\w.:]+)\}|([\w.:]+))")
_COMMENT = re.compile(rb'("(?:\\.|[^"\\])*+(?:"|\Z))|//[^\n]*+|/\*(?>.*?(?:\*/|\Z))', re.DOTALL)
_DECIDES = ("#if", "#else", "#endif", "#remove", "#inputMode", "#overwrite", "#merge", "#protect")
#: Files that a dictionary may include, characters of a value, and characters by macros in all.
MOST_FILES, LONGEST, MOST_EXPANDED = 100, 100_000, 20_000_000
#: A field's values are no parameters; so much of them is kept, to be shown.
_SHOWN = 200

_PLACE = re.compile(r"(?P<file>[^:]+):(?P<entries>[^\[\]]+)(?:\[(?P<index>\d+)\])?")
_DIMENSIONS = re.compile(r"\[[^\[\]]*+\]")
_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_NUMBER = re.compile(r"[-+]?(?:\d++\.?\d*+|\.\d++)(?:[eE][-+]?\d++)?")
_COUNTED = re.compile(r"(?:uniform\s+)?\d+\s*[({]")
"""A list that begins with its number of values"""


@dataclass(frozen=True)
class DictionaryPlace:
    """The place of a number: `FILE:ENTRY/ENTRY…`, with `[INDEX]` behind it in a list of numbers.

    Such as `constant/transportProperties:nu` or `0/U:boundaryField/inlet/value[0]`.
    """

    file: str
    entries: tuple[str, ...]
    index: int | None

    @classmethod
    def parse(cls, text: str) -> DictionaryPlace:
        """Parse FILE:ENTRY/ENTRY[INDEX]; InputError shows the form."""
        found = _PLACE.fullmatch(text.strip())
        file = Path(found["file"]) if found else Path("/")
        if found is None or file.is_absolute() or ".." in file.parts:
            raise InputError(
                f"'{text}' is no place in a case's dictionaries; expected FILE:ENTRY/ENTRY, such as"
                " constant/transportProperties:nu or 0/U:boundaryField/inlet/value[0]"
            )
        entries = tuple(each for each in found["entries"].split("/") if each)
        return cls(str(file), entries, None if found["index"] is None else int(found["index"]))


def read_entry(path: Path, entries: Sequence[str]) -> str | None:
    """Return the text of an entry without its semicolon, comments left out and macros replaced.

    None where the file has no such entry, or one that may not count; CaseError where the file, or
    one that it includes, cannot be read.
    """
    text, _, doubt = _look_up(path, entries)
    return None if doubt else text


def read_number(directory: Path, place: DictionaryPlace) -> float:
    """Return the number at a place of the case; CaseError names the place where there is none."""
    path, name = directory / place.file, "/".join(place.entries)
    text, unread, doubt = _look_up(path, place.entries)
    if doubt:
        raise CaseError(
            f"{path} has {doubt}, which is not read: {name} may have another value; give the"
            " parameter in a table"
        )
    if text is None:
        why = f", unless in {unread}, which is not read; give the parameter in a table"
        raise CaseError(f"{path} has no entry {name}{why if unread else ''}")
    where = f"{path}: {name} is '{' '.join(text.split())[:60]}'"
    if len(text) > LONGEST or "#" in text or "nonuniform" in text or _COUNTED.match(text):
        raise CaseError(
            f"{where}, which is no number: a list of a field's values, or computed by OpenFOAM;"
            " give the parameter in a table"
        )
    # Dimensions are no values, and names may hold digits: `nu [0 2 -1 0 0 0 0] 1e-5`, `k0 3`.
    found = _NUMBER.findall(_WORD.sub("", _DIMENSIONS.sub("", text)))
    index = 0 if place.index is None and len(found) == 1 else place.index
    if index is None or index >= len(found):
        raise CaseError(f"{where}, which holds {len(found)} numbers; choose one with [0], [1], …")
    return float(found[index])


def _look_up(path: Path, entries: Sequence[str]) -> tuple[str | None, str, str]:
    """Read a file; return an entry's text, and of the directives on the way to it two.

    The last that was not followed, and the first by which the entry may not count; or nothing.
    """
    found: str | _Dictionary | None = _DictionaryFile(path).whole
    passed: list[str] = []
    for name in entries:
        passed += found.unread if isinstance(found, _Dictionary) else []
        found = found.entries.get(name) if isinstance(found, _Dictionary) else None
    doubt = next((each for each in passed if each.startswith((*_DECIDES, "$"))), "")
    text = found if isinstance(found, str) else None
    if text is not None and not doubt and (macro := re.search(r"\$\S*", text)):
        raise CaseError(f"{path}: {'/'.join(entries)} refers to {macro[0]}, which is not there")
    return text, passed[-1] if passed else "", doubt


@dataclass
class _Dictionary:
    around: _Dictionary | None = None
    entries: dict[str, str | _Dictionary] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    """Directives and macros that were not followed"""

    def merge(self, other: _Dictionary) -> None:
        """Add the entries of another dictionary, whose values count."""
        for name, value in other.entries.items():
            before = self.entries.get(name)
            if isinstance(before, _Dictionary) and isinstance(value, _Dictionary):
                before.merge(value)
            else:
                self.entries[name] = value
        self.unread += other.unread

    def value_of(self, macro: re.Match[str]) -> str | None:
        """Return what `$name` or `$name.name` stands for here; `$:name` is in the whole file."""
        scope: _Dictionary | None = self
        while scope is not None:
            found: str | _Dictionary | None = scope if not (macro[1] and scope.around) else None
            for name in (macro[2] or macro[3]).split("."):
                found = found.entries.get(name) if isinstance(found, _Dictionary) else None
            if isinstance(found, str):
                return found
            scope = scope.around
        return None


class _DictionaryFile:
    """A file with those that it includes."""

    def __init__(self, path: Path) -> None:
        self.path, self.num_files, self.num_expanded = path, 0, 0
        self.whole = _Dictionary()
        self._read(FoamReader(path), b"", self.whole)

    def _read(self, reader: FoamReader, closing: bytes, into: _Dictionary) -> None:
        """Read a dictionary's entries up to `closing`."""

        def follow(text: str) -> None:
            if included := _INCLUDE.match(text):
                file = reader.path.parent / included[2]
                if file.is_file():
                    self.num_files += 1
                    if self.num_files > MOST_FILES:
                        raise CaseError(f"{self.path} includes itself, or over {MOST_FILES} files")
                    self._read(FoamReader(file), b"", into)
                    return
                if included[1] != "include":
                    return
            into.unread.append(" ".join(text.split())[:_SHOWN])

        for name in reader.names(closing, follow):
            if reader.peek() != b"{":
                into.entries[name] = self._text(reader.skip_entry(), into)
                continue
            reader.expect(b"{")
            # Merged once it is whole: what it refers to is outside of it, or above in it.
            inside = _Dictionary(into)
            self._read(reader, b"}", inside)
            into.merge(_Dictionary(entries={name: inside}))

    def _text(self, value: bytes, scope: _Dictionary) -> str:
        if b"List<" in value[:_SHOWN]:
            return value[:_SHOWN].decode(errors="replace").strip()
        text = _COMMENT.sub(lambda found: found[1] or b" ", value).decode(errors="replace")

        def text_of(macro: re.Match[str]) -> str:
            found = scope.value_of(macro)
            self.num_expanded += len(found or "")
            if self.num_expanded > MOST_EXPANDED:
                raise CaseError(f"{self.path} brings in too much by macros")
            return macro[0] if found is None else found

        # At once: what is named again later has its new value from there on.
        text = text.strip().rstrip(";").strip()
        expanded = _MACRO.sub(text_of, text)
        if len(expanded) > max(LONGEST, len(text)):
            raise CaseError(f"{self.path} has a value of more than {LONGEST} characters")
        return expanded
