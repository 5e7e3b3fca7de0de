"""Write solved OpenFOAM cases as others may have left them, without a solver.

`write_case` makes a box of NX x NY x 1 cells of 1 m: an inlet on the left, an outlet on the right,
walls above and below, empty patches across. Fields are simple functions of the place, so that a
test knows what has to come out. `PatchCase` is a block with the conditions that a test asks for;
`foam_to_vtk` reads a case with OpenFOAM itself.
"""

from __future__ import annotations

import gzip
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from simgen.errors import SolverError
from simgen.foam.run import find_openfoam, run_application
from simgen.imports import Imported
from simgen.imports.folder import FolderOptions, FolderPlan, import_plan, plan_folder
from simgen.imports.importing import SourceCase
from simgen.imports.openfoam import FoamFolder

NX, NY = 4, 3
PATCHES = {"inlet": "patch", "outlet": "patch", "walls": "wall", "frontAndBack": "empty"}
Face = tuple[tuple[int, ...], int, int | str]
"""Corners, owner, and the cell behind it or the patch that it lies on"""


@dataclass(frozen=True)
class FoamMesh:
    """Points, and faces in OpenFOAM's order: internal ones first, then patch by patch."""

    points: np.ndarray
    faces: tuple[Face, ...]
    patches: Mapping[str, str]
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """inGroups of patches"""

    @property
    def num_cells(self) -> int:
        return 1 + max(owner for _, owner, _ in self.faces)

    def part(self, cells: Sequence[int], number: int) -> FoamMesh:
        """One of two parts: faces between them lie on a processor patch."""
        local = {cell: at for at, cell in enumerate(cells)}
        between = f"procBoundary{number}to{1 - number}"
        faces: list[Face] = []
        for corners, owner, behind in self.faces:
            if isinstance(behind, str):
                if owner in local:
                    faces.append((corners, local[owner], behind))
            elif owner in local and behind in local:
                faces.append((corners, local[owner], local[behind]))
            elif owner in local:
                faces.append((corners, local[owner], between))
            elif behind in local:
                faces.append((corners[::-1], local[behind], between))
        part = ordered(self.points, faces, {**self.patches, between: "processor"})
        return replace(part, groups=self.groups)


def ordered(points: np.ndarray, faces: Sequence[Face], patches: Mapping[str, str]) -> FoamMesh:
    inside = [face for face in faces if not isinstance(face[2], str)]
    outside = [face for patch in patches for face in faces if face[2] == patch]
    return FoamMesh(points, (*inside, *outside), patches)


def box(merged: bool = False) -> FoamMesh:
    """The box; with `merged` its last two cells are one cell of ten faces."""
    across = {"front": "frontAndBack", "back": "frontAndBack"}
    patch_of = {"left": "inlet", "right": "outlet", "bottom": "walls", "top": "walls", **across}
    return block(patch_of, PATCHES, shape=(NX, NY, 1), merged=merged)


@dataclass(frozen=True)
class Form:
    """How files are written."""

    binary: bool = False
    packed: bool = False
    order: str = "<"
    label: int = 32
    scalar: int = 64

    def rounded(self, values: np.ndarray) -> np.ndarray:
        """The numbers that this form can hold."""
        return values.astype(f"f{self.scalar // 8}").astype("f8")

    def write(self, path: Path, kind: str, body: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        form = "binary" if self.binary else "ascii"
        arch = f"{'MSB' if self.order == '>' else 'LSB'};label={self.label};scalar={self.scalar}"
        head = (
            f"FoamFile\n{{\n    version 2.0;\n    format {form};\n    class {kind};\n"
            f'    arch "{arch}";\n    object {path.name};\n}}\n'
        )
        content = head.encode() + body
        if self.packed:
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(content))
        else:
            path.write_bytes(content)

    def values(self, values: np.ndarray) -> bytes:
        """`N(…)` of scalars (N,), vectors (N, 3) or labels."""
        if self.binary:
            kind, bits = ("i", self.label) if values.dtype.kind == "i" else ("f", self.scalar)
            stored = values.astype(f"{self.order}{kind}{bits // 8}")
            return b"%d\n(" % len(values) + stored.tobytes() + b")\n"
        rows = [
            f"({' '.join(repr(float(each)) for each in row)})" if values.ndim > 1 else f"{row}"
            for row in values
        ]
        return f"{len(values)}\n(\n{chr(10).join(rows)}\n)\n".encode()


def write_mesh(directory: Path, mesh: FoamMesh, form: Form) -> None:
    folder = directory / "constant/polyMesh"
    corners = [face[0] for face in mesh.faces]
    inside = [face for face in mesh.faces if not isinstance(face[2], str)]
    form.write(folder / "points", "vectorField", form.values(mesh.points))
    if form.binary:
        offsets = np.cumsum([0, *(len(each) for each in corners)])
        body = form.values(offsets) + form.values(
            np.array([each for of in corners for each in of], dtype=int)
        )
        form.write(folder / "faces", "faceCompactList", body)
    else:
        rows = "\n".join(f"{len(each)}({' '.join(map(str, each))})" for each in corners)
        form.write(folder / "faces", "faceList", f"{len(corners)}\n(\n{rows}\n)\n".encode())
    form.write(folder / "owner", "labelList", form.values(np.array([f[1] for f in mesh.faces])))
    behind = np.array([face[2] for face in inside], dtype=int)
    form.write(folder / "neighbour", "labelList", form.values(behind))
    lines, start = [], len(inside)
    for patch, kind in mesh.patches.items():
        size = sum(1 for face in mesh.faces if face[2] == patch)
        groups = mesh.groups.get(patch)
        within = f"inGroups {len(groups)}({' '.join(groups)}); " if groups else ""
        lines.append(f"{patch} {{ type {kind}; {within}nFaces {size}; startFace {start}; }}")
        start += size
    text = f"{len(lines)}\n(\n" + "\n".join(lines) + "\n)\n"
    form.write(folder / "boundary", "polyBoundaryMesh", text.encode())


DIMENSIONS = {"U": "0 1 -1 0 0 0 0", "p": "0 2 -2 0 0 0 0", "T": "0 0 0 1 0 0 0"}


def field_values(name: str, time: float, speed: float) -> Values:
    """What the written case holds of a field."""
    constant, slope = {
        "U": ([time, 0, 0], [[0, speed, 0], [0.1, 0, 0], [0, 0, 0]]),
        "p": ([time], [[speed, -1, 0]]),
        "T": ([300 + time], [[1, 0, 0]]),
    }[name]
    return Values(np.array(constant, float), np.array(slope, float))


def cell_places(mesh: FoamMesh) -> np.ndarray:
    """The mean of each cell's corners."""
    corners: list[set[int]] = [set() for _ in range(mesh.num_cells)]
    for each, owner, behind in mesh.faces:
        corners[owner] |= set(each)
        if isinstance(behind, int):
            corners[behind] |= set(each)
    return np.array([mesh.points[sorted(each)].mean(axis=0) for each in corners])


def field_text(mesh: FoamMesh, name: str, time: float, speed: float) -> FieldText:
    values = field_values(name, time, speed)
    of_type = {"patch": "zeroGradient", "wall": "noSlip" if name == "U" else "zeroGradient"}
    entries = [
        Entry(patch, "fixedValue", {"value": values})
        if patch == "inlet"
        else Entry(patch, of_type.get(type_, type_))
        for patch, type_ in mesh.patches.items()
    ]
    return FieldText("vector" if name == "U" else "scalar", values, entries, DIMENSIONS[name])


def replace_in(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def write_case(
    directory: Path,
    *,
    speed: float = 1.0,
    times: Sequence[str] = ("0.5", "1"),
    fields: Sequence[str] = ("U", "p", "T"),
    form: Form | None = None,
    mesh_form: Form | None = None,
    mesh: FoamMesh | None = None,
    steady: bool = False,
    decomposed: bool = False,
    change: Callable[[Path], None] = lambda directory: None,
) -> Path:
    """Write a case that ends at 1 s; `change` spoils it afterwards."""
    mesh = mesh or box()
    texts = {
        time: {name: field_text(mesh, name, float(time), speed) for name in fields}
        for time in times
    }
    case = PatchCase(mesh, texts, steady, end=1)
    case.write(directory, form, 2 if decomposed else 1, mesh_form)
    viscosity = "visc 0.01;\nnu [0 2 -1 0 0 0 0] $visc;\n"
    Form().write(directory / "constant/transportProperties", "dictionary", viscosity.encode())
    inlet = f"inlet {{ type fixedValue; value uniform ({speed:g} 0 0); }}"
    initial = f"internalField uniform (0 0 0);\nboundaryField {{ {inlet} }}\n"
    Form().write(directory / "0/U", "volVectorField", initial.encode())
    change(directory)
    return directory


def plan_openfoam(asked: FolderOptions, reader: FoamFolder) -> FolderPlan:
    """Plan with a reader of these options that has found nothing yet."""
    return plan_folder(asked, replace(reader))


def import_openfoam(plan: FolderPlan, reader: FoamFolder, **more) -> Imported:
    return import_plan(plan, replace(reader), **more)


SIDES = ("left", "right", "bottom", "top", "front", "back")
WIDTH = {"scalar": 1, "vector": 3, "symmTensor": 6, "tensor": 9}


def block(
    patch_of: Mapping[str, str],
    types: Mapping[str, str],
    *,
    shape: Sequence[int] = (3, 2, 2),
    jitter: float = 0.0,
    shear: np.ndarray | None = None,
    groups: Mapping[str, tuple[str, ...]] | None = None,
    seed: int = 0,
    merged: bool = False,
) -> FoamMesh:
    """A block of hexahedra; `patch_of` names the patch of each of SIDES, `types` their types.

    Points move by `jitter` along the sides that they lie on, and then by the matrix `shear`. With
    `merged` the last two cells are one.
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
    if merged:
        cell[cell == cell.max()] -= 1
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
            elif sum(step) > 0 and cell[i, j, k] != cell[tuple(there)]:
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
        dimensions = self.dimensions or DIMENSIONS["U" if self.kind == "vector" else "T"]
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
    end: float | None = None

    def write(
        self,
        directory: Path,
        form: Form | None = None,
        parts: int = 1,
        mesh_form: Form | None = None,
    ) -> Path:
        form = form or Form()
        end = self.end or max(map(float, self.fields))
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
            write_mesh(folder, mesh, mesh_form or form)
            for time, fields in self.fields.items():
                for name, text in fields.items():
                    text.write(folder / time / name, mesh, form)
        return directory


def openfoam(case: Path, *command: str) -> None:
    """Run an application of OpenFOAM in a case; AssertionError shows how it ended."""
    find_openfoam(command[:1])
    try:
        run_application(command[0], case, arguments=command[1:])
    except SolverError as error:
        raise AssertionError(f"{error}\n{error.log_tail}") from error


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
    options |= {"fields": names, "allow_unfinished": True}
    known = FoamFolder(**options)
    (place,) = known.find(folder)
    patches = sorted(known.survey(place).kind_of)
    kinds = {name: f"kind{number}" for number, name in enumerate(patches)}
    asked = FolderOptions(folder=folder, url=str(folder / "store"), name="fuzz", distance_kinds=())
    # A name may hold what fnmatch takes for a pattern.
    overrides = {re.sub(r"([\[*?])", r"[\1]", name): kind for name, kind in kinds.items()}
    reader = FoamFolder(kinds=overrides, **options)
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
