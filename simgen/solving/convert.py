"""Convert a SolvedCase to a PointCloud; only this module maps OpenFOAM's names to the dataset's.

Distances to each kind of boundary are exact for the meshed faces, each a fan of triangles: libigl's
tree of bounding boxes finds the nearest point of all of them. Distances to the faces' centres are
up to 150 % off beside large faces, and the nearest face is not always one of the dozen whose
centres are nearest.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace

import igl
import numpy as np

from simgen.case import CaseFamily, SolvedCase
from simgen.cases import get_family
from simgen.errors import CaseError
from simgen.foam.field import read_values
from simgen.foam.mesh import MeshGeometry, Polygons, boundary_of, cell_mesh, read_geometry
from simgen.moments import Moments, stored_type_of_points
from simgen.point_cloud import BoundaryCloud, PointCloud
from simgen.solving.gates import AskedTimes, stored_times

logger = logging.getLogger(__name__)


def convert(case: SolvedCase) -> PointCloud:
    """Read a solved case: geometry, distances, every field at every stored time.

    Raises CaseError where files are damaged, or where stored times or values are missing.
    """
    family = get_family(case.point.family)
    times = stored_times(family, case.directory)
    if not times:
        raise CaseError(f"{case.directory} holds no solved time")
    stored = [time for time, _ in times]
    if family.transient and len(AskedTimes.of(family, case.point.settings).missing(stored)):
        raise CaseError(f"{case.directory} has lost times that it had stored")
    geometry = read_geometry(case.directory)
    interior: dict[str, np.ndarray] = {}
    boundary: dict[str, np.ndarray] = {}
    for field in family.fields:
        precision = np.dtype("f4")
        while True:
            snapshots, moments = [], Moments.empty(len(field.components))
            for _, time in times:
                path = time / field.openfoam
                both = read_values(path, geometry, family.patches, field.components)
                moments.add(both[0])
                snapshots.append([values.astype(precision) for values in both])
            if moments.stored_type == precision:
                break
            logger.info("%s is stored in double precision: single loses its variation", field.name)
            precision = moments.stored_type
        cells, faces = (np.stack(of) for of in zip(*snapshots, strict=True))
        interior[field.name] = cells if family.transient else cells[0]
        boundary[field.name] = faces if family.transient else faces[0]
    cloud = geometry_cloud(family, geometry)
    assert cloud.boundary is not None
    return replace(
        cloud,
        time=np.array(stored) if family.transient else None,
        fields=interior,
        boundary=replace(cloud.boundary, fields=boundary),
    )


def geometry_cloud(family: CaseFamily, geometry: MeshGeometry) -> PointCloud:
    """Return the cloud of a meshed case directory, without fields and times."""
    kinds = family.patch_kinds
    patches = family.patches.items()
    groups = [(kinds.index(kind), geometry.patches[name].faces) for name, kind in patches]
    rows, faces = boundary_of(geometry, groups)
    of_kinds = [rows[faces.patch == number] for number in range(len(kinds))]
    distance, direction = distance_to_kinds(geometry.centres, geometry, of_kinds)
    points, boundary_points = geometry.centres, faces.points
    if family.dimension == 2:
        points, boundary_points = points * (1, 1, 0), boundary_points * (1, 1, 0)
    precision = stored_type_of_points(points, family.dimension)
    mesh = cell_mesh(geometry, rows)
    return PointCloud(
        points=points.astype(precision),
        volumes=geometry.volumes.astype("f4"),
        distance=distance.astype("f4"),
        direction=direction.astype("f4"),
        patch_kinds=kinds,
        time=None,
        fields={},
        boundary=BoundaryCloud(
            points=boundary_points.astype(precision),
            normals=faces.normals.astype("f4"),
            areas=faces.areas.astype("f4"),
            patch=faces.patch.astype("u1"),
        ),
        mesh=None if mesh is None else replace(mesh, points=mesh.points.astype(precision)),
    )


def distance_to_kinds(
    places: np.ndarray, faces: Polygons, of_kinds: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return distance (C, K) m and direction (C, K, 3) from places (C, 3) to the faces of K kinds.

    `of_kinds` has the labels of each kind's faces.
    """
    found = [distance_to_faces(places, faces, chosen) for chosen in of_kinds]
    distance, direction = (np.stack(of, axis=1) for of in zip(*found, strict=True))
    return distance, direction


def distance_to_faces(
    places: np.ndarray, faces: Polygons, chosen: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return distance (C,) m and direction (C, 3) from the places (C, 3) to the chosen faces."""
    # Each face is a fan of triangles around its first corner.
    offsets, labels = faces.face_offsets, faces.face_points
    count = offsets[chosen + 1] - offsets[chosen] - 2
    first = np.concatenate([[0], np.cumsum(count)[:-1]])
    owner = np.repeat(np.arange(len(chosen)), count)
    step = np.arange(len(owner)) - first[owner]
    base = offsets[chosen][owner]
    fan = np.stack([labels[base], labels[base + step + 1], labels[base + step + 2]], axis=1)
    corners = faces.points[fan].reshape(-1, 3)
    triangles = np.arange(len(corners)).reshape(-1, 3)
    _, _, nearest = igl.point_mesh_squared_distance(
        np.ascontiguousarray(places, dtype=np.float64), corners, triangles
    )
    distance = np.linalg.norm(nearest - places, axis=1)
    return distance, (nearest - places) / np.maximum(distance, 1e-12)[:, None]
