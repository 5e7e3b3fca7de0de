"""SolvedCase -> PointCloud: the only place that knows OpenFOAM's names and turns them into the dataset's."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from simgen.case import CaseFamily, Field, SolvedCase
from simgen.cases import get_family
from simgen.completeness import AskedTimes, MeshSizes, changed_mesh_files, stored_times
from simgen.errors import CaseError
from simgen.foam.field import FoamField, read_field
from simgen.foam.geometry import MeshGeometry, read_geometry
from simgen.point_cloud import BoundaryCloud, PointCloud
from simgen.result_file import read_result
from simgen.wall_distance import distance_field


def convert(case: SolvedCase) -> PointCloud:
    """Read a solved case: geometry, distances, every field at every stored time.

    Raises CaseError where files are damaged, where stored times or values are not all there, or where
    the mesh or a steady case's last time is not the one that the case was judged by.
    """
    family = get_family(case.point.family)
    times = _times(family, case)
    geometry = read_geometry(case.directory)
    by_kind = {
        kind: [geometry.patches[patch] for patch, of in family.patches.items() if of == kind]
        for kind in family.patch_kinds
    }
    distances = [distance_field(geometry, patches) for patches in by_kind.values()]
    boundary_faces = np.concatenate(
        [
            np.arange(geometry.patches[patch].start, geometry.patches[patch].start + geometry.patches[patch].size)
            for patch in family.patches
        ]
    )
    interior, boundary = _read_fields(family, geometry, [path for _, path in times])
    areas = geometry.face_areas[boundary_faces]
    magnitude = np.linalg.norm(areas, axis=1)
    points, boundary_points = geometry.centres, geometry.face_centres[boundary_faces]
    if family.dimension == 2:
        points, boundary_points = points * (1, 1, 0), boundary_points * (1, 1, 0)
    return PointCloud(
        points=points.astype("f4"),
        volumes=geometry.volumes.astype("f4"),
        distance=np.stack([distance for distance, _ in distances], axis=1).astype("f4"),
        direction=np.stack([direction for _, direction in distances], axis=1).astype("f4"),
        patch_kinds=family.patch_kinds,
        time=np.array([time for time, _ in times]) if family.transient else None,
        fields=interior,
        boundary=BoundaryCloud(
            points=boundary_points.astype("f4"),
            normals=(areas / magnitude[:, None]).astype("f4"),
            areas=magnitude.astype("f4"),
            patch=np.concatenate(
                [
                    np.full(geometry.patches[patch].size, family.patch_kinds.index(kind), "u1")
                    for patch, kind in family.patches.items()
                ]
            ),
            fields=boundary,
        ),
    )


def _times(family: CaseFamily, case: SolvedCase) -> list[tuple[float, Path]]:
    """The stored times to read, once they and the mesh are found to be those asked for."""
    directory = case.directory
    times = stored_times(family, directory)
    if not times:
        raise CaseError(f"{directory} holds no solved time")
    if family.transient:
        problem = AskedTimes.of(family, case.point.settings).problem([time for time, _ in times])
        if problem:
            raise CaseError(f"{directory} {problem}")
    judged = read_result(case.point, directory)
    provenance = judged.provenance if judged else {}
    last = provenance.get("figures", {}).get("last_time", times[-1][0])
    if times[-1][0] != last:
        raise CaseError(f"{directory} ends with time {times[-1][0]:g}, it was judged by its time {last:g}")
    changed = changed_mesh_files(directory, provenance["mesh_files"]) if "mesh_files" in provenance else []
    if changed:
        raise CaseError(f"{directory} was solved on another mesh: {', '.join(changed)} changed since")
    return times


def _read_fields(
    family: CaseFamily, geometry: MeshGeometry, times: list[Path]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Fields by their stored names: cells (T, C, c) and boundary faces (T, B, c); without T for a steady family."""
    interior: dict[str, np.ndarray] = {}
    boundary: dict[str, np.ndarray] = {}
    sizes = MeshSizes(len(geometry.centres), {name: patch.size for name, patch in geometry.patches.items()})
    for stored in family.fields:
        snapshots = []
        for time in times:
            values = read_field(time / stored.openfoam)
            sizes.check(time / stored.openfoam, values, family.patches)
            snapshots.append(_snapshot(family, geometry, stored, values))
        interior[stored.name] = np.stack([cells for cells, _ in snapshots])
        boundary[stored.name] = np.stack([faces for _, faces in snapshots])
        if not family.transient:
            interior[stored.name], boundary[stored.name] = interior[stored.name][0], boundary[stored.name][0]
    return interior, boundary


def _snapshot(
    family: CaseFamily, geometry: MeshGeometry, stored: Field, values: FoamField
) -> tuple[np.ndarray, np.ndarray]:
    num_components = len(stored.components)
    cells = np.broadcast_to(values.internal, (len(geometry.centres), values.internal.shape[-1])).astype("f4")
    faces = []
    for name in family.patches:
        patch = geometry.patches[name]
        # A patch that writes no value (zeroGradient) takes that of the cell behind it.
        value = values.boundary.get(name, cells[geometry.owner[patch.faces]])
        faces.append(np.broadcast_to(value, (patch.size, value.shape[-1])))
    return cells[:, :num_components], np.concatenate(faces)[:, :num_components].astype("f4")
