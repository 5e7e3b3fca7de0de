"""Read a polyMesh: its patches, the geometry of cells and faces, and cells by their corners.

Geometry is by OpenFOAM's own formulas (primitiveMesh of openfoam.com's v1912, to rounding): face
centre and area from the fan of triangles around the mean of its points, each weighed by its own
area; cell centre and volume from the pyramids of its faces over the mean of its face centres. VTK's
own centres and volumes of polyhedra are off by up to 19 %.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simgen.cell_mesh import HEXAHEDRON, POLYGON, PYRAMID, QUAD, TETRA, TRIANGLE, WEDGE, CellMesh
from simgen.errors import CaseError
from simgen.foam.reader import FoamReader, numbers
from simgen.point_cloud import BoundaryCloud

#: Types of patches, each of which is a group of all patches of its type as well.
CONSTRAINTS = (
    *("cyclic", "cyclicAMI", "cyclicACMI", "cyclicSlip", "nonuniformTransformCyclic"),
    *("empty", "processor", "processorCyclic", "symmetryPlane", "symmetry", "wedge", "overset"),
)
_WALLS = ("wall", "mappedWall")
_TIME = re.compile(r"-?\d+\.?\d*([eE][-+]?\d+)?")
MESH_FILES = ("points", "faces", "owner", "neighbour", "boundary")


def read_points(path: Path) -> np.ndarray:
    """Read polyMesh/points, (P, 3)."""
    reader = FoamReader(path)
    count = reader.count()
    if reader.peek() == b"{":  # of whatever length
        raise reader.error("has all points in one place")
    return reader.payload(count, 3, reader.scalar)


def read_faces(path: Path, num_points: int) -> tuple[np.ndarray, np.ndarray]:
    """Read polyMesh/faces as (offsets (F + 1,), point labels), whichever form the file has."""
    reader = FoamReader(path)
    count = reader.count()
    if reader.binary:
        offsets = _labels(reader, count, len(reader.data))
        labels = _labels(reader, reader.count(), num_points)
    else:
        # Read `(4(0 1 2 3) 3(3 2 4) …)`: each face's number of corners, followed by the corners.
        reader.expect(b"(")
        body = reader.data[reader.position : reader.data.rfind(b")")]
        try:
            flat = numbers(body).astype(np.int64)
        except ValueError as error:
            raise reader.error("holds something else than faces") from error
        sizes, at = [], 0
        while at < len(flat):
            sizes.append(int(flat[at]))
            at += 1 + max(sizes[-1], 0)
        if not len(sizes) == count == body.count(b"(") or at != len(flat):
            raise reader.error(f"is cut short or damaged: it has {len(sizes)} of {count} faces")
        offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        labels = np.delete(flat, offsets[:-1] + np.arange(count))
        _check_labels(reader, labels, num_points)
    if not len(offsets) or offsets[0] or offsets[-1] != len(labels) or (np.diff(offsets) < 0).any():
        raise reader.error(
            f"is damaged: its {len(offsets) - 1} faces are not those of {len(labels)} corners"
        )
    return offsets, labels


def read_labels(path: Path, num_faces: int) -> np.ndarray:
    """Read polyMesh/owner or neighbour as cells (F,): a closed mesh has fewer than faces."""
    reader = FoamReader(path)
    count = reader.count()
    if count > num_faces:
        raise reader.error(f"has {count} labels for the {num_faces} faces of the mesh")
    return _labels(reader, count, num_faces)


def _labels(reader: FoamReader, count: int, most: int) -> np.ndarray:
    labels = reader.payload(count, 1, reader.label)[:, 0].astype(np.int64)
    _check_labels(reader, labels, most)
    return labels


def _check_labels(reader: FoamReader, labels: np.ndarray, most: int) -> None:
    if len(wrong := labels[(labels < 0) | (labels >= most)]):
        raise reader.error(f"has the label {wrong[0]}, which the mesh has not")


@dataclass(frozen=True)
class PatchRange:
    """A patch's type, its contiguous range of faces, and the groups that it is in."""

    type: str
    start: int
    size: int
    groups: tuple[str, ...] = ()

    @property
    def faces(self) -> slice:
        return slice(self.start, self.start + self.size)


def read_boundary(path: Path) -> dict[str, PatchRange]:
    reader = FoamReader(path, is_text=True)  # whatever format its header names
    if reader.peek() != b"(":
        reader.count()  # which PyFoam leaves out
    reader.expect(b"(")
    patches = {}
    for name in reader.names(b")"):
        reader.expect(b"{")
        entries = {key: reader.skip_entry().rstrip(b";").decode() for key in reader.names(b"}")}
        try:
            first, size = int(entries["startFace"]), int(entries["nFaces"])
            type_ = entries["type"].strip()
        except (KeyError, ValueError) as error:
            raise CaseError(f"{path}: the patch {name} lacks type, startFace or nFaces") from error
        groups = entries.get("inGroups", "").partition("(")[2].partition(")")[0].split()
        if type_ in CONSTRAINTS:
            groups.append(type_)
        if type_ in _WALLS:
            groups.append("wall")
        patches[name] = PatchRange(type_, first, size, tuple(dict.fromkeys(groups)))
    return patches


def time_directories(directory: Path) -> list[tuple[float, Path]]:
    """List the case's time directories after 0, in order of time."""
    return [(time, path) for time, path in all_time_directories(directory) if time > 0]


def time_of(name: str) -> float | None:
    """Return the time that a directory's name is; None for others, such as 2020_01 and inf."""
    return float(name) if _TIME.fullmatch(name) and float(name) < float("inf") else None


def all_time_directories(directory: Path) -> list[tuple[float, Path]]:
    """List the case's time directories, those of 0 and before too, in order of time."""
    found: list[tuple[float, Path]] = []
    # scandir knows the directories among them without a look at each.
    with os.scandir(directory) as entries:
        for entry in entries:
            time = time_of(entry.name)
            if time is not None and entry.is_dir():
                found.append((time, directory / entry.name))
    return sorted(found)


def moved_meshes(directory: Path, region: str = "") -> list[str]:
    """List the meshes of single times, but none of cell sets and refinement levels alone."""
    files = {f"{name}{end}" for name in MESH_FILES for end in ("", ".gz")}
    return [
        str(Path(time.name, region, "polyMesh"))
        for _, time in all_time_directories(directory)
        if any(path.name in files for path in (time / region / "polyMesh").glob("*"))
    ]


def check_mesh_stays(directory: Path, region: str = "") -> None:
    """Raise CaseError where the mesh moves or changes in time."""
    if moved := moved_meshes(directory, region):
        raise CaseError(
            f"{directory} has {moved[0]} beside constant/polyMesh: cases whose mesh moves or"
            " changes in time are not read"
        )


#: Faces in one block: few enough that their arrays stay in the processor's cache.
BLOCK = 2000


@dataclass(frozen=True, kw_only=True)
class Polygons:
    """Faces by corners: labels face_points, from face_offsets (F + 1,) on, into points (P, 3)."""

    points: np.ndarray
    face_offsets: np.ndarray
    face_points: np.ndarray


@dataclass(frozen=True, kw_only=True)
class MeshGeometry(Polygons):
    """The geometry of a mesh with C cells and F faces, in SI units.

    centres (C, 3), volumes (C,), face_centres (F, 3), face_areas (F, 3) vectors out of the owner
    cell, owner (F,), neighbour (F internal,), the cell behind each internal face.
    """

    centres: np.ndarray
    volumes: np.ndarray
    face_centres: np.ndarray
    face_areas: np.ndarray
    owner: np.ndarray
    neighbour: np.ndarray
    patches: dict[str, PatchRange]


def read_geometry(directory: Path, region: str = "") -> MeshGeometry:
    """Read the geometry of constant/polyMesh, or of a region; CaseError where the mesh moves."""
    check_mesh_stays(directory, region)
    mesh = directory / "constant" / region / "polyMesh"
    points = read_points(mesh / "points")
    offsets, labels = read_faces(mesh / "faces", len(points))
    owner = read_labels(mesh / "owner", len(offsets) - 1)
    if len(owner) != len(offsets) - 1:
        raise CaseError(f"{mesh / 'owner'} has {len(owner)} labels for {len(offsets) - 1} faces")
    neighbour = read_labels(mesh / "neighbour", len(owner))
    patches = read_boundary(mesh / "boundary")
    for name, patch in patches.items():
        end = patch.start + patch.size
        if patch.size and not len(neighbour) <= patch.start <= end <= len(owner):
            raise CaseError(
                f"{mesh / 'boundary'}: the patch {name} has {patch.size} faces from"
                f" {patch.start} on, which the mesh has not"
            )
    face_centres, face_areas = _face_geometry(points, offsets, labels)
    centres, volumes = _cell_geometry(face_centres, face_areas, owner, neighbour)
    return MeshGeometry(
        centres=np.ascontiguousarray(centres.T),
        volumes=volumes,
        face_centres=np.ascontiguousarray(face_centres.T),
        face_areas=np.ascontiguousarray(face_areas.T),
        owner=owner,
        neighbour=neighbour,
        patches=patches,
        points=points,
        face_offsets=offsets,
        face_points=labels,
    )


def _face_geometry(
    points: np.ndarray, offsets: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return centres and area vectors (3, F), in blocks of faces with equally many corners."""
    sizes = np.diff(offsets)
    centres, areas = np.empty((3, len(sizes))), np.empty((3, len(sizes)))
    components = np.ascontiguousarray(points.T)
    for size in np.flatnonzero(np.bincount(sizes)):
        of_size = np.flatnonzero(sizes == size)
        for begin in range(0, len(of_size), BLOCK):
            block = of_size[begin : begin + BLOCK]
            labels_of_block = labels[offsets[block] + np.arange(size)[:, None]]
            corners = components.take(labels_of_block, axis=1)  # (3, k, n) of n faces
            middle = corners.mean(axis=1)
            spoke = corners - middle[:, None]
            following = np.roll(spoke, -1, axis=1)
            (x, y, z), (next_x, next_y, next_z) = spoke, following
            triangle = np.stack(
                [y * next_z - z * next_y, z * next_x - x * next_z, x * next_y - y * next_x]
            )  # twice its area
            weight = np.sqrt(np.einsum("cin,cin->in", triangle, triangle))
            shift = ((spoke + following) * weight).sum(axis=1)
            centres[:, block] = middle + shift / np.maximum(3 * weight.sum(axis=0), 1e-300)
            areas[:, block] = 0.5 * triangle.sum(axis=1)
    return centres, areas


def _cell_geometry(
    face_centres: np.ndarray, face_areas: np.ndarray, owner: np.ndarray, neighbour: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return centres (3, C) and volumes (C,) from the faces' centres and area vectors (3, F)."""
    # The last cell may own no face.
    num_cells = int(max(owner.max(initial=-1), neighbour.max(initial=-1))) + 1
    internal = slice(len(neighbour))

    def total(of_owner: np.ndarray, of_neighbour: np.ndarray) -> np.ndarray:
        return np.bincount(owner, of_owner, num_cells) + np.bincount(
            neighbour, of_neighbour, num_cells
        )

    count = np.bincount(owner, minlength=num_cells) + np.bincount(neighbour, minlength=num_cells)
    estimate = np.stack([total(x, x[internal]) / count for x in face_centres])
    # Vectors from the estimate to the faces' centres, and volumes of the pyramids over the faces.
    arm = face_centres - estimate.take(owner, axis=1)
    back = face_centres[:, internal] - estimate.take(neighbour, axis=1)
    pyramid = np.einsum("cf,cf->f", face_areas, arm) / 3
    behind = np.einsum("cf,cf->f", face_areas[:, internal], back) / -3
    volume = total(pyramid, behind)
    # A pyramid's centre lies three quarters of the way to its base.
    shift = np.stack([total(pyramid * x, behind * y) for x, y in zip(arm, back, strict=True)])
    return estimate + 0.75 * shift / volume, volume


def boundary_of(
    mesh: MeshGeometry, groups: Sequence[tuple[int, slice | np.ndarray]]
) -> tuple[np.ndarray, BoundaryCloud]:
    """Return the labels (B,) of all groups' faces, in order, and their cloud in f8, without fields.

    A group is the number that its faces have in `patch`, and the faces.
    """
    labels = np.arange(len(mesh.owner))
    rows = np.concatenate([labels[:0], *(labels[faces] for _, faces in groups)])
    numbers = [np.full(len(labels[faces]), number) for number, faces in groups]
    areas = mesh.face_areas[rows]
    size = np.linalg.norm(areas, axis=1)
    normals = areas / np.maximum(size, 1e-300)[:, None]
    patch = np.concatenate([labels[:0], *numbers])
    return rows, BoundaryCloud(mesh.face_centres[rows], normals, size, patch)


Face = list[int]
_OF_SIZES = {
    (3, 3, 3, 3): TETRA,
    (3, 3, 3, 3, 4): PYRAMID,
    (3, 3, 4, 4, 4): WEDGE,
    (4, 4, 4, 4, 4, 4): HEXAHEDRON,
}
_OF_FACE = {3: TRIANGLE, 4: QUAD}


def cell_mesh(geometry: MeshGeometry, boundary: np.ndarray) -> CellMesh | None:
    """Return the mesh with the faces `boundary`; None if a cell is a polyhedron of another kind."""
    corners = np.split(geometry.face_points, geometry.face_offsets[1:-1])
    faces: list[Face] = [each.tolist() for each in corners]
    entries: list[int] = []
    # Every face is turned so that its normal points out of the cell.
    faces_of: list[list[Face]] = [[] for _ in range(len(geometry.centres))]
    for face, owner in zip(faces, geometry.owner.tolist(), strict=True):
        faces_of[owner].append(face)
    for number, behind in enumerate(geometry.neighbour.tolist()):  # of the internal faces
        faces_of[behind].append(faces[number][::-1])
    for around in faces_of:
        cell = vtk_cell(around)
        if cell is None:
            return None
        kind, labels = cell
        entries += [kind, len(labels), *labels]
    for number in boundary.tolist():
        face = faces[number]
        entries += [_OF_FACE.get(len(face), POLYGON), len(face), *face]
    return CellMesh(geometry.points, np.array(entries, dtype="i4"))


def vtk_cell(faces: Sequence[Face]) -> tuple[int, list[int]] | None:
    """Return the VTK type and corners of a cell with these outward faces; None if it has none."""
    kind = _OF_SIZES.get(tuple(sorted(len(face) for face in faces)))
    if kind is None:
        return None
    if kind in (TETRA, PYRAMID):
        base = max(faces, key=len)[::-1]
        rest = {corner for face in faces for corner in face} - set(base)
        return (kind, [*base, *rest]) if len(rest) == 1 else None
    # The normal of a wedge's base points out of it in VTK, that of a hexahedron's into it.
    base = min(faces, key=len) if kind == WEDGE else faces[0][::-1]
    above: dict[int, int] = {}
    for face in faces:
        for here, there in zip(face, face[1:] + face[:1], strict=True):
            if here in base and there not in base:
                above[here] = there
    top = [above[corner] for corner in base if corner in above]
    return (kind, [*base, *top]) if len({*base, *top}) == 2 * len(base) else None
