"""Write solved OpenFOAM cases as others may have left them, without a solver.

A box of NX x NY x 1 cells of 1 m: an inlet on the left, an outlet on the right, walls above and
below, empty patches across. Fields are simple functions of the place, so that a test knows what
has to come out. `WHOLE` has cubes alone; `cut` merges two of them to a polyhedron.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from simgen.imports import Imported
from simgen.imports.folder import FolderOptions, FolderPlan, import_plan, plan_folder
from simgen.imports.openfoam import FoamFolder, FoamOptions

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
    ids = np.arange((NX + 1) * (NY + 1) * 2).reshape(2, NY + 1, NX + 1)
    grid = np.meshgrid(np.arange(2.0), np.arange(NY + 1.0), np.arange(NX + 1.0), indexing="ij")
    points = np.stack([grid[2].ravel(), grid[1].ravel(), grid[0].ravel()], axis=1)
    cell = np.arange(NX * NY).reshape(NY, NX)
    if merged:
        cell[-1, -1] = cell[-1, -2]
    faces: list[Face] = []
    for j in range(NY):
        for i in range(NX):
            low, high = ids[0, j : j + 2, i : i + 2], ids[1, j : j + 2, i : i + 2]
            mine = int(cell[j, i])
            right = tuple(map(int, (low[0, 1], low[1, 1], high[1, 1], high[0, 1])))
            left = tuple(map(int, (low[0, 0], high[0, 0], high[1, 0], low[1, 0])))
            top = tuple(map(int, (low[1, 0], high[1, 0], high[1, 1], low[1, 1])))
            bottom = tuple(map(int, (low[0, 0], low[0, 1], high[0, 1], high[0, 0])))
            front = tuple(map(int, (low[0, 0], low[1, 0], low[1, 1], low[0, 1])))
            back = tuple(map(int, (high[0, 0], high[0, 1], high[1, 1], high[1, 0])))
            if i + 1 == NX:
                faces.append((right, mine, "outlet"))
            elif (behind := int(cell[j, i + 1])) != mine:
                faces.append((right, mine, behind))
            faces.append((top, mine, int(cell[j + 1, i]) if j + 1 < NY else "walls"))
            if i == 0:
                faces.append((left, mine, "inlet"))
            if j == 0:
                faces.append((bottom, mine, "walls"))
            faces += [(front, mine, "frontAndBack"), (back, mine, "frontAndBack")]
    return ordered(points, faces, PATCHES)


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


def field_value(name: str, places: np.ndarray, time: float, speed: float) -> np.ndarray:
    """What the written case holds of a field at these places."""
    x, y = places[:, 0], places[:, 1]
    if name == "U":
        return np.stack([speed * y + time, 0.1 * x, 0 * x], axis=1)
    return speed * x - y + time if name == "p" else 300 + x + time


def centres(mesh: FoamMesh) -> np.ndarray:
    """The mean of each cell's corners; the middle of a cell of cubes."""
    found = []
    for cell in range(mesh.num_cells):
        around = {
            corner
            for each, owner, behind in mesh.faces
            if cell in (owner, behind)
            for corner in each
        }
        found.append(mesh.points[sorted(around)].mean(axis=0))
    return np.array(found)


def write_field(
    directory: Path, mesh: FoamMesh, name: str, time: str, speed: float, form: Form
) -> None:
    values = field_value(name, centres(mesh), float(time), speed)
    kind = "vector" if values.ndim > 1 else "scalar"
    body = f"dimensions [{DIMENSIONS[name]}];\ninternalField nonuniform List<{kind}> ".encode()
    body += form.values(values) + b";\nboundaryField\n{\n"
    for patch, type_ in mesh.patches.items():
        corners = [face[0] for face in mesh.faces if face[2] == patch]
        of_type = {"patch": "zeroGradient", "wall": "noSlip" if name == "U" else "zeroGradient"}
        condition = "fixedValue" if patch == "inlet" else of_type.get(type_, type_)
        body += f"    {patch}\n    {{\n        type {condition};\n".encode()
        if condition == "fixedValue":
            places = np.array([mesh.points[list(each)].mean(axis=0) for each in corners])
            at = field_value(name, places.reshape(-1, 3), float(time), speed)
            body += f"        value nonuniform List<{kind}> ".encode() + form.values(at) + b";\n"
        body += b"    }\n"
    form.write(directory / time / name, f"vol{kind.capitalize()}Field", body + b"}\n")


def write_dictionaries(directory: Path, end: float, speed: float, steady: bool) -> None:
    scheme = "steadyState" if steady else "Euler"
    texts = {
        "system/controlDict": f"application icoFoam;\nstopAt endTime;\nendTime {end:g};\n",
        "system/fvSchemes": f"ddtSchemes\n{{\n    default {scheme};\n}}\n",
        "constant/transportProperties": "visc 0.01;\nnu [0 2 -1 0 0 0 0] $visc;\n",
        "0/U": f"internalField uniform (0 0 0);\nboundaryField\n{{\n    inlet\n    {{\n"
        f"        type fixedValue;\n        value uniform ({speed:g} 0 0);\n    }}\n}}\n",
    }
    for name, text in texts.items():
        Form().write(directory / name, "dictionary", text.encode())


def write_case(
    directory: Path,
    *,
    speed: float = 1.0,
    times: Sequence[str] = ("0.5", "1"),
    fields: Sequence[str] = ("U", "p", "T"),
    end: float = 1.0,
    form: Form | None = None,
    mesh_form: Form | None = None,
    mesh: FoamMesh | None = None,
    steady: bool = False,
    decomposed: bool = False,
    change: Callable[[Path], None] = lambda directory: None,
) -> Path:
    """Write a whole case; `change` spoils it afterwards."""
    form, mesh = form or Form(), mesh or box()
    write_dictionaries(directory, end, speed, steady)
    write_mesh(directory, mesh, mesh_form or form)
    parts = {directory: mesh}
    if decomposed:
        cells = np.arange(mesh.num_cells)
        parts = {
            directory / f"processor{number}": mesh.part(of.tolist(), number)
            for number, of in enumerate(np.array_split(cells, 2))
        }
    for folder, part in parts.items():
        if decomposed:
            write_mesh(folder, part, mesh_form or form)
        for time in times:
            for name in fields:
                write_field(folder, part, name, time, speed, form)
    change(directory)
    return directory


def plan_openfoam(asked: FolderOptions, options: FoamOptions) -> FolderPlan:
    return plan_folder(asked, FoamFolder(options))


def import_openfoam(plan: FolderPlan, options: FoamOptions, **more) -> Imported:
    return import_plan(plan, FoamFolder(options), **more)
