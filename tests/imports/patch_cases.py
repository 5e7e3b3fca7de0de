"""Solved cases whose patches have conditions of every kind, and two readers to judge an import by.

`PatchCase` is a skewed block with the conditions that a test asks for. `plain_values` reads a case
with foamlib and evaluates conditions face by face, as OpenFOAM's sources have it; `foam_to_vtk`
asks OpenFOAM itself.
"""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from foamlib import FoamFieldFile, FoamFile

from simgen.foam.run import find_openfoam
from simgen.imports.folder import FolderOptions, plan_folder
from simgen.imports.importing import SourceCase
from simgen.imports.openfoam import FoamFolder, FoamOptions
from tests.imports.foam_cases import Face, FoamMesh, Form, ordered, write_mesh

SIDES = ("left", "right", "bottom", "top", "front", "back")
WIDTH = {"scalar": 1, "vector": 3, "symmTensor": 6, "tensor": 9}
DIMENSIONS = {"scalar": "0 0 0 1 0 0 0", "vector": "0 1 -1 0 0 0 0"}
CONSTRAINTS = ("empty", "symmetry", "symmetryPlane", "wedge", "cyclic", "processor")


def block(
    patch_of: Mapping[str, str],
    types: Mapping[str, str],
    *,
    shape: Sequence[int] = (3, 2, 2),
    jitter: float = 0.0,
    shear: np.ndarray | None = None,
    groups: Mapping[str, tuple[str, ...]] | None = None,
    seed: int = 0,
) -> FoamMesh:
    """A block of hexahedra; `patch_of` names the patch of each of SIDES, `types` their types.

    Points move by `jitter` along the sides that they lie on, and then by the matrix `shear`.
    """
    nx, ny, nz = shape
    ids = np.arange((nx + 1) * (ny + 1) * (nz + 1)).reshape(nx + 1, ny + 1, nz + 1)
    index = np.stack(np.meshgrid(*map(np.arange, ids.shape), indexing="ij"), axis=-1)
    points = index.reshape(-1, 3).astype(float)
    ends = (points == 0) | (points == np.array(shape))
    points += np.where(ends, 0, np.random.default_rng(seed).uniform(-jitter, jitter, points.shape))
    if shape[2] == 1:  # a plane case: both layers of points are alike
        layers = points.reshape(*ids.shape, 3)
        layers[:, :, 1, :2] = layers[:, :, 0, :2]
    if shear is not None:
        points = points @ shear.T
    cell = np.arange(nx * ny * nz).reshape(nx, ny, nz)
    faces: list[Face] = []
    for i, j, k in np.ndindex(nx, ny, nz):
        c = ids[i : i + 2, j : j + 2, k : k + 2]
        around = {
            "left": ((-1, 0, 0), [c[0, 0, 0], c[0, 0, 1], c[0, 1, 1], c[0, 1, 0]]),
            "right": ((1, 0, 0), [c[1, 0, 0], c[1, 1, 0], c[1, 1, 1], c[1, 0, 1]]),
            "bottom": ((0, -1, 0), [c[0, 0, 0], c[1, 0, 0], c[1, 0, 1], c[0, 0, 1]]),
            "top": ((0, 1, 0), [c[0, 1, 0], c[0, 1, 1], c[1, 1, 1], c[1, 1, 0]]),
            "front": ((0, 0, -1), [c[0, 0, 0], c[0, 1, 0], c[1, 1, 0], c[1, 0, 0]]),
            "back": ((0, 0, 1), [c[0, 0, 1], c[1, 0, 1], c[1, 1, 1], c[0, 1, 1]]),
        }
        for side, (step, corners) in around.items():
            there = np.array([i, j, k]) + step
            labels = tuple(map(int, corners))
            if ((there < 0) | (there >= shape)).any():
                faces.append((labels, int(cell[i, j, k]), patch_of[side]))
            elif sum(step) > 0:
                faces.append((labels, int(cell[i, j, k]), int(cell[tuple(there)])))
    return replace(ordered(points, faces, types), groups=groups or {})


@dataclass(frozen=True)
class Values:
    """Numbers as a function of the place: `constant` (c,) and, on a list, `slope` (c, 3) too."""

    constant: np.ndarray
    slope: np.ndarray | None = None
    compact: bool = False
    """Written as N{value}"""

    def at(self, places: np.ndarray) -> np.ndarray:
        if self.slope is None:
            return np.tile(self.constant, (len(places), 1))
        return self.constant + places @ self.slope.T

    def write(self, places: np.ndarray, form: Form) -> bytes:
        """`uniform v` or `nonuniform List<type> N(...)`, in the numbers of this form."""
        kind = {width: name for name, width in WIDTH.items()}[len(self.constant)]
        one = b" ".join(repr(float(each)).encode() for each in form.rounded(self.constant))
        one = one if len(self.constant) == 1 else b"(" + one + b")"
        if self.slope is None and not self.compact:
            return b"uniform " + one
        head = b"nonuniform List<" + kind.encode() + b"> "
        if self.compact:
            return head + b"%d{%s}" % (len(places), one)
        values = form.rounded(self.at(places))
        return head + form.values(values[:, 0] if kind == "scalar" else values)


@dataclass(frozen=True)
class Entry:
    """An entry of a boundaryField: a key as it is written, and what its dictionary holds."""

    key: str
    condition: str
    values: Mapping[str, Values] = field(default_factory=dict)
    text: str = ""
    """More of the dictionary, as it is written"""


@dataclass(frozen=True)
class FieldText:
    """One field at one time."""

    kind: str
    internal: Values
    entries: Sequence[Entry | str]
    """Strings are written between entries as they are"""
    dimensions: str = ""

    def write(self, path: Path, mesh: FoamMesh, form: Form) -> None:
        dimensions = self.dimensions or DIMENSIONS.get(self.kind, "0 2 -2 0 0 0 0")
        body = f"dimensions [{dimensions}];\ninternalField ".encode()
        body += self.internal.write(cell_places(mesh), form) + b";\nboundaryField\n{\n"
        for entry in self.entries:
            if isinstance(entry, str):
                body += entry.encode() + b"\n"
                continue
            places = face_places(mesh, self._patch(entry, mesh))
            body += f"    {entry.key}\n    {{\n        type {entry.condition};\n".encode()
            for name, values in entry.values.items():
                body += f"        {name} ".encode() + values.write(places, form) + b";\n"
            body += f"        {entry.text}\n    }}\n".encode()
        form.write(path, f"vol{self.kind[0].upper()}{self.kind[1:]}Field", body + b"}\n")

    @staticmethod
    def _patch(entry: Entry, mesh: FoamMesh) -> str:
        """The patch whose faces its lists are of: only entries of one patch have lists."""
        return entry.key if entry.key in mesh.patches else next(iter(mesh.patches))


def cell_places(mesh: FoamMesh) -> np.ndarray:
    """The mean of each cell's corners."""
    corners: list[set[int]] = [set() for _ in range(mesh.num_cells)]
    for each, owner, behind in mesh.faces:
        corners[owner] |= set(each)
        if isinstance(behind, int):
            corners[behind] |= set(each)
    return np.array([mesh.points[sorted(each)].mean(axis=0) for each in corners])


def face_places(mesh: FoamMesh, patch: str) -> np.ndarray:
    """The mean of each face's corners, of a patch."""
    places = [mesh.points[list(face[0])].mean(axis=0) for face in mesh.faces if face[2] == patch]
    return np.array(places).reshape(-1, 3)


@dataclass(frozen=True)
class PatchCase:
    """A solved case: its mesh, and its fields by time and name."""

    mesh: FoamMesh
    fields: Mapping[str, Mapping[str, FieldText]]
    steady: bool = False

    def write(self, directory: Path, form: Form | None = None, parts: int = 1) -> Path:
        form = form or Form()
        end = max(map(float, self.fields))
        texts = {
            "controlDict": f"application icoFoam;\nstopAt endTime;\nendTime {end:g};\n"
            "startFrom startTime;\nstartTime 0;\ndeltaT 1;\nwriteInterval 1;\n",
            "fvSchemes": f"ddtSchemes {{ default {'steadyState' if self.steady else 'Euler'}; }}\n"
            "gradSchemes {}\ndivSchemes {}\nlaplacianSchemes {}\n",
            "fvSolution": "solvers {}\n",
        }
        for name, text in texts.items():
            Form().write(directory / "system" / name, "dictionary", text.encode())
        folders = {directory: self.mesh}
        if parts > 1:
            cells = np.array_split(np.arange(self.mesh.num_cells), 2)
            folders = {
                directory / f"processor{number}": self.mesh.part(of.tolist(), number)
                for number, of in enumerate(cells)
            }
        for folder, mesh in folders.items():
            write_mesh(folder, mesh, form)
            for time, fields in self.fields.items():
                for name, text in fields.items():
                    text.write(folder / time / name, mesh, form)
        return directory


class UnknownValueError(Exception):
    """A patch has no entry, or a condition whose value its entry does not say."""


@dataclass(frozen=True)
class PlainMesh:
    """A mesh as foamlib reads it: cells' centres, and faces' cells, centres and normals."""

    centres: np.ndarray
    owner: np.ndarray
    face_centres: np.ndarray
    normals: np.ndarray
    patches: Mapping[str, Any]

    @classmethod
    def read(cls, case: Path) -> PlainMesh:
        folder = case / "constant/polyMesh"
        points = np.asarray(FoamFile(folder / "points")[None])
        faces = [list(map(int, face)) for face in FoamFile(folder / "faces")[None]]
        owner = np.asarray(FoamFile(folder / "owner")[None], dtype=int)
        neighbour = np.asarray(FoamFile(folder / "neighbour")[None], dtype=int)
        middles, normals, areas = [], [], []
        for face in faces:
            middle, area = _plain_face(points[face])
            middles.append(middle)
            areas.append(area)
            normals.append(area / np.linalg.norm(area))
        around: list[list[int]] = [[] for _ in range(int(owner.max()) + 1)]
        for number, cell in [*enumerate(owner), *enumerate(neighbour)]:
            around[cell].append(number)
        centres = [_plain_cell(of, middles, areas) for of in around]
        entries = dict(FoamFile(folder / "boundary")[None])
        return cls(np.array(centres), owner, np.array(middles), np.array(normals), entries)

    def faces(self, patch: str) -> range:
        start, size = int(self.patches[patch]["startFace"]), int(self.patches[patch]["nFaces"])
        return range(start, start + size)

    def groups(self, patch: str) -> set[str]:
        entry = self.patches[patch]
        type_ = str(entry["type"])
        own = {type_} if type_ in CONSTRAINTS or type_ == "wall" else set()
        return own | {str(each) for each in entry.get("inGroups", ())}


def _plain_face(corners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A face's centre and area vector, by the triangles around the mean of its corners."""
    middle = corners.mean(axis=0)
    total, moment, weight = np.zeros(3), np.zeros(3), 0.0
    for here, there in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        area = 0.5 * np.cross(there - here, middle - here)
        size = float(np.linalg.norm(area))
        total, weight = total + area, weight + size
        moment = moment + size * (here + there + middle) / 3
    return moment / weight, total


def _plain_cell(faces: Sequence[int], middles: Any, areas: Any) -> np.ndarray:
    """A cell's centre, by the pyramids over the mean of its faces' centres."""
    apex = np.mean([middles[face] for face in faces], axis=0)
    volumes, centres = [], []
    for face in faces:
        volumes.append(abs(float(areas[face] @ (middles[face] - apex))) / 3)
        centres.append(0.75 * middles[face] + 0.25 * apex)
    return np.average(centres, axis=0, weights=volumes)


def plain_values(
    case: Path, time: str, name: str, mesh: PlainMesh
) -> tuple[np.ndarray, dict[str, np.ndarray | UnknownValueError]]:
    """Read a field with foamlib: in the cells (C, c), and on each patch (B, c) or why not."""
    content = FoamFieldFile(case / time / name)
    kind = re.match(r"vol(\w+)Field", str(content["FoamFile", "class"]))
    assert kind
    width = WIDTH[kind[1][0].lower() + kind[1][1:]]
    cells = _rows(content["internalField"], len(mesh.centres), width)
    entries: dict[str, Any] = {}
    for key, entry in dict(content.get("boundaryField", {}) or {}).items():
        if key == "#includeEtc":
            entries |= {each: {"type": each} for each in CONSTRAINTS}
        else:
            entries[key] = entry
    found: dict[str, np.ndarray | UnknownValueError] = {}
    for patch in mesh.patches:
        if len(mesh.faces(patch)) == 0:
            continue
        try:
            entry = _entry_of(patch, entries, mesh) if entries else {"type": "zeroGradient"}
            found[patch] = np.array(
                [
                    _plain_value(entry, face, number, cells, mesh, len(mesh.faces(patch)))
                    for number, face in enumerate(mesh.faces(patch))
                ]
            )
        except UnknownValueError as error:
            found[patch] = error
    return cells, found


def _rows(values: Any, count: int, width: int) -> np.ndarray:
    array = np.asarray(values, dtype=float)
    return (
        array.reshape(count, width)
        if array.size == count * width and (array.ndim == 2 or (array.ndim == 1 and width == 1))
        else np.tile(array.reshape(1, width), (count, 1))
    )


def _entry_of(patch: str, entries: Mapping[str, Any], mesh: PlainMesh) -> Any:
    """OpenFOAM's order: the patch's own entry, the last of its groups, the last pattern."""
    merged: dict[str, Any] = {}
    patterns = set()
    for key, entry in entries.items():
        name = key.strip('"')
        if name not in merged and key.startswith('"'):
            patterns.add(name)
        merged[name] = {**merged.get(name, {}), **entry}
    if patch in merged and patch not in patterns:
        return merged[patch]
    for name in reversed(list(merged)):
        if name not in patterns and name in mesh.groups(patch) and name not in mesh.patches:
            return merged[name]
    if str(mesh.patches[patch]["type"]) == "empty":
        return {"type": "empty"}
    if patch in merged:
        return merged[patch]
    for name in reversed(list(merged)):
        if name in patterns and re.fullmatch(name, patch):
            return merged[name]
    raise UnknownValueError(f"no entry for {patch}")


def _plain_value(
    entry: Any, face: int, number: int, cells: np.ndarray, mesh: PlainMesh, size: int
) -> np.ndarray:
    """One face's value, as the sources of OpenFOAM v1912 have it."""
    cell, n = cells[mesh.owner[face]], mesh.normals[face]
    condition = str(entry["type"])

    def given(name: str, width: int = len(cell)) -> np.ndarray:
        if name not in entry:
            raise UnknownValueError(f"{condition} without {name}")
        return _rows(entry[name], size, width)[number]

    if condition in ("zeroGradient", "extrapolatedCalculated", "empty"):
        return cell
    if condition == "noSlip":
        return np.zeros(3)
    if condition in ("slip", "symmetry", "symmetryPlane"):
        return (cell + _turned(np.eye(3) - 2 * np.outer(n, n), cell)) / 2
    if condition == "fixedGradient":
        arm = mesh.face_centres[face] - mesh.centres[mesh.owner[face]]
        return cell + given("gradient") * abs(float(arm @ n))
    if condition == "partialSlip":
        fraction = given("valueFraction", 1)
        reference = given("refValue") if "refValue" in entry else 0 * cell
        along = _turned(np.eye(3) - np.outer(n, n), cell)
        return fraction * reference + (1 - fraction) * along
    if condition == "fixedNormalSlip":
        return float(given("fixedValue") @ n) * n + cell - float(cell @ n) * n
    if condition == "surfaceNormalFixedValue" and "ramp" not in entry:
        return given("refValue", 1) * n
    if "value" not in entry and condition in ("calculated", "kqRWallFunction"):
        return cell
    return given("value")


def _turned(matrix: np.ndarray, value: np.ndarray) -> np.ndarray:
    if len(value) == 1:
        return value
    if len(value) == 3:
        return matrix @ value
    if len(value) == 9:
        return (matrix @ value.reshape(3, 3) @ matrix.T).ravel()
    xx, xy, xz, yy, yz, zz = value
    whole = matrix @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ matrix.T
    return whole[np.triu_indices(3)]


def openfoam(case: Path, *command: str) -> None:
    """Run an application of OpenFOAM in a case; AssertionError shows how it ended."""
    environment = find_openfoam(command[:1]).environment
    done = subprocess.run(
        command,
        cwd=case,
        env={"PATH": "/usr/bin:/bin", "PWD": str(case), "HOME": str(case), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise AssertionError(f"{command[0]} in {case}: {done.stdout[-600:]}{done.stderr[-1500:]}")


def foam_to_vtk(case: Path, time: str) -> dict[str, dict[str, np.ndarray]]:
    """Return what OpenFOAM has on each patch, patch -> field -> (B, c) in single precision."""
    out = case / "VTK"
    shutil.rmtree(out, ignore_errors=True)
    openfoam(case, "foamToVTK", "-ascii", "-no-internal", "-no-point-data", "-time", time)
    # The name of a file may lack what the patch's has.
    return {
        re.search(r"patch='([^']*)'", path.read_text())[1]: dict(_cell_data(path))
        for path in out.glob("*/boundary/*.vtp")
    }


def _cell_data(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    for array in ElementTree.parse(path).iterfind(".//CellData/DataArray"):
        width = int(array.get("NumberOfComponents", "1"))
        rows = np.array((array.text or "").split(), float).reshape(-1, width)
        # VTK's symmetric tensors are xx yy zz xy yz xz.
        yield array.attrib["Name"], rows[:, [0, 3, 5, 1, 4, 2]] if width == 6 else rows


def imported_values(
    folder: Path, names: Mapping[str, str], **options: Any
) -> tuple[SourceCase, dict[str, np.ndarray]]:
    """Import the one case in `folder`; return it, and the rows of its boundary by patch.

    `names` are those of the fields in the dataset, by OpenFOAM's. CaseError and InputError where
    the case cannot be imported.
    """
    patches = sorted({name for mesh in _boundaries(folder) for name in mesh})
    kinds = {name: f"kind{number}" for number, name in enumerate(patches)}
    asked = FolderOptions(folder=folder, url=str(folder / "store"), name="fuzz", distance_kinds=())
    # A name may hold what fnmatch takes for a pattern.
    overrides = {re.sub(r"([\[*?])", r"[\1]", name): kind for name, kind in kinds.items()}
    wanted = FoamOptions(fields=names, kinds=overrides, allow_unfinished=True, **options)
    reader = FoamFolder(wanted)
    plan = plan_folder(asked, reader)
    case = reader.read(plan.cases[0], plan.schema)
    of_kind = {kind: number for number, kind in enumerate(plan.schema.patch_kinds)}
    assert case.boundary is not None
    rows = {
        name: np.flatnonzero(case.boundary.patch == of_kind[kind])
        for name, kind in kinds.items()
        if kind in of_kind
    }
    return case, rows


def _boundaries(folder: Path) -> Iterator[list[str]]:
    for path in folder.rglob("polyMesh/boundary*"):
        plain = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = plain.decode(errors="replace")
        found = re.findall(r"([^\s;{}()]+) \{ type (\w+);", text)
        yield [name for name, type_ in found if type_ not in ("empty", "processor")]
