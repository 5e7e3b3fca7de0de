"""Import a folder of solved OpenFOAM cases that this project did not make.

Cases may be serial or decomposed, ascii, binary or packed, of any cells and patches. Their files
are read and never written. The cells of a decomposed case are those of its parts, one after the
other; the faces between parts are no boundary.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simgen.case import Field
from simgen.cell_mesh import CellMesh
from simgen.errors import CaseError, InputError
from simgen.foam.field import read_field
from simgen.foam.mesh import MeshGeometry, cell_mesh, read_geometry, read_neighbour
from simgen.imports.folder import FolderPlan, NotImported
from simgen.imports.openfoam.survey import SAME_TIME, FoamCase, FoamOptions, find_cases, survey_case
from simgen.imports.source_case import SourceBoundary, SourceCase
from simgen.solving.convert import Polygons, distance_to_faces, field_values
from simgen.solving.gates import MeshSizes, columns_of
from simgen.store.schema import Schema

__all__ = ["FoamCase", "FoamFolder", "FoamOptions", "patches_by_kind"]


class FoamFolder:
    """The reader for OpenFOAM cases, as `simgen.imports.folder` needs one."""

    has_boundary = has_volumes = True
    to_one_interval = "; --interval SECONDS interpolates to one"

    def __init__(self, options: FoamOptions) -> None:
        if not options.fields:
            raise InputError("--fields names no field; expected such as U,p")
        self.options = options
        self.directories: dict[str, Path] = {}
        self.left_out: list[NotImported] = []

    def find(self, folder: Path) -> list[str]:
        def leave_out(path: Path, why: str) -> None:
            self.left_out.append(NotImported(path.relative_to(folder).as_posix(), why))

        for directory in find_cases(folder, leave_out):
            place = directory.relative_to(folder).as_posix()
            # A folder that is a case itself is called by its own name.
            self.directories[folder.resolve().name if place == "." else place] = directory
        if not self.directories:
            raise InputError(
                f"{folder} holds no OpenFOAM case: no directory in it has a constant/polyMesh, a"
                " processor0 or a system/controlDict"
            )
        return list(self.directories)

    def survey(self, place: str) -> FoamCase:
        return survey_case(self.directories[place], place, self.options)

    def notes(self, cases: Sequence[FoamCase]) -> Iterator[str]:
        patches = sorted({patch for case in cases for patch in case.patches})
        for pattern, kind in self.options.kinds.items():
            if not any(fnmatch.fnmatchcase(patch, pattern) for patch in patches):
                yield f"--kind {pattern}={kind} is of no patch; they are {', '.join(patches)}"
        for case in cases:
            times = np.array(case.times or ())
            stored = np.array([time for time, _ in case.stored])
            away = np.abs(times[:, None] - stored).min(axis=1, initial=np.inf)
            if number := int((away > SAME_TIME * times).sum()):
                yield (
                    f"{case.place}: {number} of its {len(times)} times lie between stored ones, and"
                    " have values that are interpolated linearly"
                )

    def read(self, case: FoamCase, schema: Schema) -> SourceCase:
        """Read a case's mesh and values; CaseError names the file where something is wrong."""
        options = self.options
        kinds = case.kind_of if schema.boundary else {}
        parts = []
        for directory in case.parts:
            geometry = read_geometry(directory, options.region)
            if not (len(geometry.volumes) and (geometry.volumes > 0).all()):
                raise CaseError(f"{directory.name}: its mesh has cells without volume")
            boundaries = tuple(name for name in geometry.patches if name in kinds)
            parts.append(_MeshPart(directory, geometry, boundaries))
        times = np.array([time for time, _ in case.stored])
        asked, after, share = case.times, None, np.empty(0)
        if asked is not None and not np.array_equal(times, asked):
            after = np.searchsorted(times, asked).clip(1, len(times) - 1)
            share = (np.array(asked) - times[after - 1]) / (times[after] - times[after - 1])
            share = share.clip(0, 1)[:, None, None]
        fields: dict[str, np.ndarray] = {}
        on_faces: dict[str, np.ndarray] = {}
        for each in case.fields:
            snapshots = [
                [_snapshot(part, Path(time, options.region), each, options) for part in parts]
                for _, time in case.stored
            ]
            for at, found in enumerate((fields, on_faces)):
                values = np.stack([np.concatenate([part[at] for part in of]) for of in snapshots])
                if after is not None:
                    values = (1 - share) * values[after - 1] + share * values[after]
                found[each.name] = values[0] if asked is None else values
        distance = direction = None
        if schema.measured_kinds:
            measured = list(_distances(parts, case, schema))
            distance, direction = (np.stack([of[at] for of in measured], axis=1) for at in (0, 1))
        flat = np.array([1.0, 1.0, 1.0 if case.dimension == 3 else 0.0])
        boundary = None
        if schema.boundary:
            areas = np.concatenate([part.geometry.face_areas[part.faces] for part in parts])
            size = np.linalg.norm(areas, axis=1)
            numbers = [
                np.full(part.geometry.patches[name].size, schema.patch_kinds.index(kinds[name]))
                for part in parts
                for name in part.boundaries
            ]
            places = [part.geometry.face_centres[part.faces] for part in parts]
            boundary = SourceBoundary(
                points=np.concatenate(places) * flat,
                normals=areas * flat / np.maximum(size, 1e-300)[:, None],
                areas=size,
                patch=np.concatenate(numbers),
                fields=on_faces,
            )
        return SourceCase(
            name=case.name,
            points=np.concatenate([part.geometry.centres for part in parts]) * flat,
            fields=fields,
            time=case.times,
            parameters=case.parameters,
            split=case.split,
            volumes=np.concatenate([part.geometry.volumes for part in parts]),
            distance=distance,
            direction=direction,
            boundary=boundary,
            mesh=_joined_mesh(parts, options.region),
            gates=case.gates,
            provenance={
                "solver": case.application or "imported",
                **({"solver_version": f"OpenFOAM {case.version}"} if case.version else {}),
                "directory": case.place,
                "parts": len(case.parts),
                "patches": dict(case.kind_of),
                "figures": {name: of for name, of in case.figures.items() if np.isfinite(of)},
            },
        )


def patches_by_kind(plan: FolderPlan) -> dict[str, list[str]]:
    """Return the names of the patches of each kind, in all cases together."""
    found: dict[str, set[str]] = {kind: set() for kind in plan.schema.patch_kinds}
    for case in plan.cases:
        if isinstance(case, FoamCase):
            for patch, kind in case.kind_of.items():
                found.setdefault(kind, set()).add(patch)
    return {kind: sorted(patches) for kind, patches in found.items()}


@dataclass(frozen=True)
class _MeshPart:
    """One directory's mesh, with the faces of its boundary in the order of its patches."""

    directory: Path
    geometry: MeshGeometry
    boundaries: tuple[str, ...]
    """The patches that are boundaries"""

    @property
    def faces(self) -> np.ndarray:
        ranges = [self.geometry.patches[name] for name in self.boundaries]
        return np.concatenate(
            [np.empty(0, int), *(np.arange(of.start, of.start + of.size) for of in ranges)]
        )


def _snapshot(
    part: _MeshPart, folder: Path, stored: Field, options: FoamOptions
) -> tuple[np.ndarray, np.ndarray]:
    """Return a field in the cells (C, c) and on the boundary's faces (B, c) of one part."""
    path, patches = part.directory / folder / stored.openfoam, part.geometry.patches
    values = read_field(path, patches=patches)
    sizes = {name: patch.size for name, patch in patches.items()}
    # A field without any entry, as post-processing may make it, has its cells' values on patches.
    MeshSizes(len(part.geometry.centres), sizes).check(
        path, values, dict.fromkeys(part.boundaries if values.patches else (), "")
    )
    of_time = f"{folder.parts[0]}/{stored.openfoam}"
    columns, precision = columns_of(stored, values), np.dtype("f8")
    try:
        found = field_values(
            part.geometry, part.boundaries, values, columns, precision, options.patch_values
        )
    except CaseError as error:
        raise CaseError(f"{of_time}: {error}") from error
    if wrong := sum(int(np.count_nonzero(~np.isfinite(each))) for each in found):
        raise CaseError(f"{of_time} holds {wrong} values that are not finite")
    return found


def _distances(
    parts: Sequence[_MeshPart], case: FoamCase, schema: Schema
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield distance (C,) and direction (C, 3) to each kind, over the faces of all parts."""
    meshes = [part.geometry for part in parts]
    points, corners, firsts = (
        np.cumsum([0, *map(len, of)])
        for of in zip(
            *((mesh.points, mesh.face_points, mesh.face_centres) for mesh in meshes), strict=True
        )
    )
    offsets = [of.face_offsets[1:] + at for of, at in zip(meshes, corners, strict=False)]
    labels = [of.face_points + at for of, at in zip(meshes, points, strict=False)]
    faces = Polygons(
        np.concatenate([mesh.face_centres for mesh in meshes]),
        np.concatenate([mesh.points for mesh in meshes]),
        np.concatenate([[0], *offsets]),
        np.concatenate(labels),
    )
    places = np.concatenate([mesh.centres for mesh in meshes])
    for kind in schema.measured_kinds:
        chosen = [
            first + np.arange(of.start, of.start + of.size)
            for part, first in zip(parts, firsts, strict=False)
            for name, of in part.geometry.patches.items()
            if name in part.boundaries and case.kind_of[name] == kind
        ]
        yield distance_to_faces(places, faces, np.concatenate(chosen))


def _joined_mesh(parts: Sequence[_MeshPart], region: str) -> CellMesh | None:
    """Put the parts' cells first and their faces behind; None if a part's cells have no kind."""
    cells, faces, points = [], [], []
    shift = 0
    for part in parts:
        geometry = part.geometry
        neighbour = read_neighbour(part.directory, len(geometry.owner), region)
        mesh = cell_mesh(geometry, neighbour, part.faces)
        if mesh is None:
            return None
        starts, entries = mesh.starts, mesh.entries.copy()
        is_label = np.ones(len(entries), dtype=bool)
        is_label[starts] = is_label[starts + 1] = False
        entries[is_label] += shift
        number = len(geometry.centres)
        middle = int(starts[number]) if number < len(starts) else len(entries)
        cells.append(entries[:middle])
        faces.append(entries[middle:])
        points.append(mesh.points)
        shift += len(mesh.points)
    return CellMesh(np.concatenate(points), np.concatenate([*cells, *faces]))
