"""Read a surveyed case: the parts that it is stored in, put together to one cloud.

A decomposed case's cells stand part by part; the faces between parts are no boundary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simgen.cell_mesh import CellMesh
from simgen.errors import CaseError
from simgen.foam.cells import cell_mesh
from simgen.foam.field import read_field
from simgen.foam.geometry import MeshGeometry, read_geometry, read_neighbour
from simgen.imports.openfoam.solver_log import figures_of, gates_of
from simgen.imports.openfoam.survey import FoamCase, FoamOptions
from simgen.imports.source_case import SourceBoundary, SourceCase
from simgen.imports.surveyed import Surveyed
from simgen.solving.convert import Faces, distance_to_faces, field_values
from simgen.solving.gates import MeshSizes, columns_of
from simgen.store.schema import Schema


@dataclass(frozen=True)
class _Part:
    """One directory's mesh, with the faces of its boundary in the order of its patches."""

    directory: Path
    region: str
    geometry: MeshGeometry
    patches: tuple[str, ...]
    """Those that are boundaries"""

    @property
    def faces(self) -> np.ndarray:
        ranges = [self.geometry.patches[name] for name in self.patches]
        parts = [np.arange(each.start, each.start + each.size) for each in ranges]
        return np.concatenate(parts) if parts else np.empty(0, dtype=int)

    def mesh(self) -> CellMesh | None:
        neighbour = read_neighbour(self.directory, len(self.geometry.owner), self.region)
        return cell_mesh(self.geometry, neighbour, self.faces)


def read_case(case: Surveyed, schema: Schema, options: FoamOptions) -> SourceCase:
    """Read the case's mesh and values; CaseError names the file where something is wrong."""
    details: FoamCase = case.details
    kinds = details.kinds if schema.boundary else {}
    parts = [_read_part(directory, kinds, options.region) for directory in details.parts]
    fields, on_faces = _read_fields(case, schema, parts, options)
    distance, direction = _distances(parts, details, schema)
    figures = figures_of(details.log)
    flat = np.array([1.0, 1.0, 1.0 if case.dimension == 3 else 0.0])
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
        boundary=_boundary(parts, details, schema, on_faces, flat),
        mesh=_join([part.mesh() for part in parts], parts),
        gates=gates_of(details.finished, figures, options.limits, details.times[-1][0]),
        provenance=_provenance(case, figures),
    )


def _read_part(directory: Path, kinds: Mapping[str, str], region: str) -> _Part:
    geometry = read_geometry(directory, region)
    if not (len(geometry.volumes) and (geometry.volumes > 0).all()):
        raise CaseError(f"{directory.name}: its mesh has cells without volume")
    patches = tuple(name for name in geometry.patches if name in kinds)
    return _Part(directory, region, geometry, patches)


def _read_fields(
    case: Surveyed, schema: Schema, parts: Sequence[_Part], options: FoamOptions
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return fields by name in the cells and on the boundary's faces, with times in front."""
    details: FoamCase = case.details
    cells: dict[str, list[np.ndarray]] = {each.name: [] for each in case.fields}
    faces: dict[str, list[np.ndarray]] = {each.name: [] for each in case.fields}
    for _, time in details.times:
        for stored in case.fields:
            values = [_snapshot(part, time, stored, options) for part in parts]
            cells[stored.name].append(np.concatenate([inside for inside, _ in values]))
            faces[stored.name].append(np.concatenate([outside for _, outside in values]))
    if case.times is None:
        return _first(cells), _first(faces)
    times = np.array([time for time, _ in details.times])
    return {name: _at_times(np.stack(of), times, case.times) for name, of in cells.items()}, {
        name: _at_times(np.stack(of), times, case.times) for name, of in faces.items()
    }


def _at_times(values: np.ndarray, stored: np.ndarray, asked: Sequence[float]) -> np.ndarray:
    """Interpolate values (T, N, c) at `stored` (T,) linearly to the times asked for, (S, N, c)."""
    if np.array_equal(stored, asked):
        return values
    after = np.searchsorted(stored, asked).clip(1, len(stored) - 1)
    share = (np.array(asked) - stored[after - 1]) / (stored[after] - stored[after - 1])
    share = share.clip(0, 1)[:, None, None]
    return (1 - share) * values[after - 1] + share * values[after]


def _first(values: dict[str, list[np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: of[0] for name, of in values.items()}


def _snapshot(
    part: _Part, time: str, stored: Any, options: FoamOptions
) -> tuple[np.ndarray, np.ndarray]:
    path = Path(part.directory, time, options.region, stored.openfoam)
    values = read_field(path, patches=part.geometry.patches)
    sizes = MeshSizes(
        len(part.geometry.centres),
        {name: patch.size for name, patch in part.geometry.patches.items()},
    )
    # A field without any entry, as post-processing may make it, has its cells' values on patches.
    sizes.check(path, values, dict.fromkeys(part.patches if values.patches else (), ""))
    columns = columns_of(stored, values)
    precision = np.dtype("f8")
    try:
        found = field_values(
            part.geometry, part.patches, values, columns, precision, options.patch_values
        )
    except CaseError as error:
        raise CaseError(f"{time}/{stored.openfoam}: {error}") from error
    if wrong := sum(int(np.count_nonzero(~np.isfinite(each))) for each in found):
        raise CaseError(f"{time}/{stored.openfoam} holds {wrong} values that are not finite")
    return found


def _distances(
    parts: Sequence[_Part], details: FoamCase, schema: Schema
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Measure to the faces of all parts: the nearest may lie in another part."""
    if not schema.measured_kinds:
        return None, None
    meshes = [part.geometry for part in parts]
    points = np.cumsum([0, *(len(mesh.points) for mesh in meshes)])
    corners = np.cumsum([0, *(len(mesh.face_points) for mesh in meshes)])
    firsts = np.cumsum([0, *(len(mesh.face_centres) for mesh in meshes)])
    faces = Faces(
        np.concatenate([mesh.face_centres for mesh in meshes]),
        np.concatenate([mesh.points for mesh in meshes]),
        np.concatenate(
            [[0], *(mesh.face_offsets[1:] + at for mesh, at in zip(meshes, corners, strict=False))]
        ),
        np.concatenate([mesh.face_points + at for mesh, at in zip(meshes, points, strict=False)]),
    )
    places = np.concatenate([mesh.centres for mesh in meshes])
    found = []
    for kind in schema.measured_kinds:
        chosen = [
            np.arange(each.start, each.start + each.size) + first
            for part, first in zip(parts, firsts, strict=False)
            for each in (
                part.geometry.patches[name] for name in part.patches if details.kinds[name] == kind
            )
        ]
        found.append(distance_to_faces(places, faces, np.concatenate(chosen)))
    return np.stack([of for of, _ in found], axis=1), np.stack([of for _, of in found], axis=1)


def _boundary(
    parts: Sequence[_Part],
    details: FoamCase,
    schema: Schema,
    on_faces: dict[str, np.ndarray],
    flat: np.ndarray,
) -> SourceBoundary | None:
    if not schema.boundary:
        return None
    areas = np.concatenate([part.geometry.face_areas[part.faces] for part in parts])
    size = np.linalg.norm(areas, axis=1)
    kinds = [
        np.full(part.geometry.patches[name].size, schema.patch_kinds.index(details.kinds[name]))
        for part in parts
        for name in part.patches
    ]
    return SourceBoundary(
        points=np.concatenate([part.geometry.face_centres[part.faces] for part in parts]) * flat,
        normals=areas * flat / np.maximum(size, 1e-300)[:, None],
        areas=size,
        patch=np.concatenate(kinds),
        fields=on_faces,
    )


def _join(meshes: Sequence[CellMesh | None], parts: Sequence[_Part]) -> CellMesh | None:
    """Put the parts' cells first and their faces behind; None if a part's cells have no kind."""
    cells, faces, points = [], [], []
    shift = 0
    for mesh, part in zip(meshes, parts, strict=True):
        if mesh is None:
            return None
        starts = mesh.starts
        entries = mesh.entries.copy()
        is_label = np.ones(len(entries), dtype=bool)
        is_label[starts] = is_label[starts + 1] = False
        entries[is_label] += shift
        num_cells = len(part.geometry.centres)
        middle = int(starts[num_cells]) if num_cells < len(starts) else len(entries)
        cells.append(entries[:middle])
        faces.append(entries[middle:])
        points.append(mesh.points)
        shift += len(mesh.points)
    return CellMesh(np.concatenate(points), np.concatenate([*cells, *faces]))


def _provenance(case: Surveyed, figures: dict[str, float]) -> dict[str, Any]:
    details: FoamCase = case.details
    version = f"OpenFOAM {details.log.version}" if details.log and details.log.version else ""
    return {
        "solver": details.control.application or "imported",
        **({"solver_version": version} if version else {}),
        "directory": case.place,
        "parts": len(details.parts),
        "patches": dict(details.kinds),
        "figures": {name: value for name, value in figures.items() if np.isfinite(value)},
    }
