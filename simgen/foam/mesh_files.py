"""Read the files of a polyMesh, and list a case's time directories."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simgen.errors import CaseError
from simgen.foam.reader import FoamReader, numbers

#: Types of patches, each of which is a group of all patches of its type as well.
CONSTRAINTS = (
    "cyclic",
    "cyclicAMI",
    "cyclicACMI",
    "cyclicSlip",
    "empty",
    "nonuniformTransformCyclic",
    "processor",
    "processorCyclic",
    "symmetryPlane",
    "symmetry",
    "wedge",
    "overset",
)
_WALLS = ("wall", "mappedWall")
_TIME = re.compile(r"-?\d+\.?\d*([eE][-+]?\d+)?")
_MESH_FILES = ("points", "faces", "owner", "neighbour", "boundary")


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
        offsets, labels = _text_faces(reader, count)
        _check_labels(reader, labels, num_points)
    if not len(offsets) or offsets[0] or offsets[-1] != len(labels) or (np.diff(offsets) < 0).any():
        raise reader.error(
            f"is damaged: its {len(offsets) - 1} faces are not those of {len(labels)} corners"
        )
    return offsets, labels


def _text_faces(reader: FoamReader, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Read `(4(0 1 2 3) 3(3 2 4) …)` as offsets and point labels."""
    reader.expect(b"(")
    body = reader.data[reader.position : reader.data.rfind(b")")]
    try:
        # Each face's number of corners, followed by the corners.
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
    return offsets, np.delete(flat, offsets[:-1] + np.arange(count))


def read_labels(path: Path, num_faces: int) -> np.ndarray:
    """Read polyMesh/owner or neighbour as the cells (F,) of at most `num_faces` faces.

    A closed mesh has fewer cells than faces. CaseError for a label of no cell.
    """
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
    """Read polyMesh/boundary."""
    reader = FoamReader(path, is_text=True)  # whatever its header says of the rest of the mesh
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
    """Return the time that a directory's name stands for; None where it is no time.

    Python takes 2020_01 and inf for numbers as well.
    """
    return float(name) if _TIME.fullmatch(name) and float(name) < float("inf") else None


def all_time_directories(directory: Path) -> list[tuple[float, Path]]:
    """List the case's time directories, those of 0 and before too, in order of time."""
    found: list[tuple[float, Path]] = []
    with os.scandir(
        directory
    ) as entries:  # which knows the directories among them without asking for each
        for entry in entries:
            time = time_of(entry.name)
            if time is not None and entry.is_dir():
                found.append((time, directory / entry.name))
    return sorted(found)


def moved_meshes(directory: Path, region: str = "") -> list[str]:
    """List the meshes of single times, as cases whose mesh moves or changes have them.

    Sets of cells and refinement levels lie in such a polyMesh too, and are no mesh.
    """
    return [
        str(Path(time.name, region, "polyMesh"))
        for _, time in all_time_directories(directory)
        if any(
            (time / region / "polyMesh" / f"{name}{end}").is_file()
            for name in _MESH_FILES
            for end in ("", ".gz")
        )
    ]
