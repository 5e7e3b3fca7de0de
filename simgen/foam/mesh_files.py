"""Read the files of a polyMesh, and list a case's time directories."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np

from simgen.errors import CaseError
from simgen.foam.reader import FoamReader

_TIME = re.compile(r"\d+\.?\d*([eE][-+]?\d+)?")


def read_list(path: Path, components: int, kind: str = "scalar") -> np.ndarray:
    """Read a top-level list.

    These are points (kind scalar, 3 components), and owner and neighbour (kind label, 1 component).
    """
    reader = FoamReader(path)
    return reader.payload(
        reader.count(), components, reader.label if kind == "label" else reader.scalar
    )


def read_faces(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read polyMesh/faces as (offsets (F + 1,), point labels), whichever form the file has."""
    reader = FoamReader(path)
    count = reader.count()
    if reader.binary:
        offsets = reader.payload(count, 1, reader.label)[:, 0]
        labels = reader.payload(reader.count(), 1, reader.label)[:, 0]
        return offsets.astype(np.int64), labels.astype(np.int64)
    reader.expect(b"(")
    body = reader.data[reader.position : reader.data.rfind(b")")]
    faces = [
        np.array(group.split(), dtype=np.int64) for group in re.findall(rb"\d+\s*\(([^)]*)\)", body)
    ]
    if len(faces) != count or not faces:
        raise CaseError(f"{path} is cut short: it has {len(faces)} of {count} faces")
    sizes = np.array([len(face) for face in faces])
    return np.concatenate([[0], np.cumsum(sizes)]), np.concatenate(faces)


def read_boundary(path: Path) -> dict[str, tuple[str, int, int]]:
    """Read polyMesh/boundary as patch -> (type, first face, number of faces)."""
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
            patches[name] = (entries["type"].strip(), first, size)
        except (KeyError, ValueError) as error:
            raise CaseError(f"{path}: the patch {name} lacks type, startFace or nFaces") from error
    return patches


def time_directories(directory: Path) -> list[tuple[float, Path]]:
    """List the case's time directories except 0, in order of time."""
    found: list[tuple[float, Path]] = []
    with os.scandir(
        directory
    ) as entries:  # which knows the directories among them without asking for each
        for entry in entries:
            # Python takes 2020_01 and inf for numbers as well.
            if _TIME.fullmatch(entry.name) and (time := float(entry.name)) > 0 and entry.is_dir():
                found.append((time, directory / entry.name))
    return sorted(found)


def moved_meshes(directory: Path, region: str = "") -> list[str]:
    """List the meshes of single times, as cases whose mesh moves or changes have them."""
    times = [path for _, path in time_directories(directory)]
    return [
        str(Path(time.name, region, "polyMesh"))
        for time in (directory / "0", *times)
        if (time / region / "polyMesh").is_dir()
    ]
