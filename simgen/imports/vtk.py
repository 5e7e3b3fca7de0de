"""Import a folder of VTK's mesh files (.vtu, .vtk): each file a case, or each .pvd one in time.

A .pvtu is the mesh that its pieces make up. Values on cells stand at the cells' middles, values on
points at the points. Faces among volumes, or edges among faces, are no cells. meshio reads the
files; polyhedra are beyond it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import meshio
import numpy as np

from simgen.case import Field
from simgen.cell_shapes import VTK_SYMMETRIC
from simgen.errors import CaseError, InputError
from simgen.foam.field import COMPONENT_NAMES
from simgen.imports.folder_plan import FolderPlan, import_plan, plan_folder
from simgen.imports.importing import Imported
from simgen.imports.mesh_file import cell_centres, largest_cells, read_mesh, read_series
from simgen.imports.mesh_pieces import read_pieces, read_whole
from simgen.imports.source_case import SourceCase
from simgen.imports.surveyed import Asked, Surveyed, fingerprint

SUFFIXES = (".vtu", ".vtk")
SERIES, PARTITIONED = ".pvd", ".pvtu"
#: How far, in lengths of the case, points may lie off the plane z = const of a plane case.
FLAT = 1e-6

OnProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class VtkOptions:
    """What is asked of the import of VTK's files."""

    fields: Mapping[str, str]
    """Array's name to the field's in the dataset"""
    given: frozenset[str] = frozenset()
    """Those that are known before a case is solved"""
    units: Mapping[str, str] = field(default_factory=dict)
    """By the field's name in the dataset"""


@dataclass(frozen=True)
class _Snapshots:
    """What the reader of a case needs."""

    files: tuple[tuple[float, Path], ...]
    on: Literal["cells", "points"]
    arrays: Mapping[str, str]
    """The field's name in the dataset to the array's"""


def plan_vtk(
    asked: Asked, options: VtkOptions, on_progress: OnProgress = lambda done, total: None
) -> FolderPlan:
    """Survey the files of a folder; InputError where there is none to import."""
    if not asked.folder.is_dir():
        raise InputError(f"{asked.folder} is no folder")
    if unknown := sorted(options.units.keys() - set(options.fields.values())):
        known = ", ".join(options.fields.values())
        raise InputError(
            f"a unit is given for {unknown[0]}, which is not imported; choose of {known}"
        )
    cases = find_files(asked.folder)
    if not cases:
        raise InputError(f"{asked.folder} holds no file that ends in .vtu, .vtk or .pvd")
    return plan_folder(
        asked,
        list(cases),
        lambda place: _survey(cases[place], place, asked, options),
        boundary=False,
        volumes=False,
        on_progress=on_progress,
    )


def import_vtk(
    plan: FolderPlan,
    *,
    on_progress: OnProgress = lambda done, total: None,
    on_refused: Callable[[str, str], None] = lambda case, why: None,
) -> Imported:
    """Import what was planned, and publish it as a version."""
    return import_plan(plan, _read, on_progress=on_progress, on_refused=on_refused)


def find_files(folder: Path) -> dict[str, Path]:
    """Return the cases at and below a folder, by their places without suffix.

    Files that a .pvd lists are snapshots of its case, and the pieces that a .pvtu puts together are
    parts of its mesh.
    """
    series = sorted(folder.rglob(f"*{SERIES}"))
    listed: set[Path] = set()
    for file in (*series, *sorted(folder.rglob(f"*{PARTITIONED}"))):
        # What cannot be read is told when the case is surveyed.
        with contextlib.suppress(InputError):
            parts = read_pieces(file) if file.suffix == PARTITIONED else _files_of(file)
            listed |= {path.resolve() for path in parts}
    single = [
        path
        for path in sorted(folder.rglob("*"))
        if path.suffix in (*SUFFIXES, PARTITIONED)
        and path.is_file()
        and path.resolve() not in listed
    ]
    places = [path.relative_to(folder).with_suffix("").as_posix() for path in (*series, *single)]
    # Two files that differ in their suffix alone are two cases.
    return {
        place if places.count(place) == 1 else f"{place}-{path.suffix[1:]}": path
        for place, path in zip(places, (*series, *single), strict=True)
    }


def _files_of(series: Path) -> list[Path]:
    return [path for _, path in read_series(series)]


def _survey(path: Path, place: str, asked: Asked, options: VtkOptions) -> Surveyed:
    is_series = path.suffix == SERIES
    files = read_series(path) if is_series else ((0.0, path),)
    parts = [part for _, file in files for part in _parts(file)]
    mesh = _mesh(files[0][1])
    on = _where(mesh, options)
    dimension = 2 if _is_flat(mesh.points) else 3
    row = asked.row_of(place)
    settings = sorted(options.fields.items())
    return Surveyed(
        place=place,
        files=fingerprint(parts, (settings, [time for time, _ in files])),
        fields=tuple(_field(mesh, on, array, options, dimension) for array in options.fields),
        dimension=dimension,
        times=tuple(time for time, _ in files) if is_series else None,
        parameters=row.parameters,
        split=row.split,
        details=_Snapshots(files, on, {name: array for array, name in options.fields.items()}),
    )


def _parts(file: Path) -> list[Path]:
    """Return a file, and the pieces that it lists; CaseError where one is not there."""
    lists_pieces = file.suffix == PARTITIONED and file.is_file()
    parts = [file, *(read_pieces(file) if lists_pieces else ())]
    for part in parts:
        if not part.is_file():
            raise CaseError(f"it is unfinished: {part.name}, which it lists, is not there")
    return parts


def _mesh(file: Path) -> meshio.Mesh:
    """Read a file's mesh, of pieces or in one, without its smaller cells."""
    return largest_cells(read_whole(file) if file.suffix == PARTITIONED else read_mesh(file))


def _where(mesh: meshio.Mesh, options: VtkOptions) -> Literal["cells", "points"]:
    """Say where all asked arrays are; CaseError names one that is nowhere."""
    if all(name in mesh.cell_data for name in options.fields):
        return "cells"
    if all(name in mesh.point_data for name in options.fields):
        return "points"
    there = [*mesh.point_data, *mesh.cell_data]
    missing = [name for name in options.fields if name not in there]
    if missing:
        raise CaseError(f"it has no array {missing[0]}; it has {', '.join(there) or 'none'}")
    on_cells = next(name for name in options.fields if name not in mesh.point_data)
    raise CaseError(f"{on_cells} is on its cells, other fields on its points; bring all to one")


def _is_flat(points: np.ndarray) -> bool:
    extent = np.ptp(points, axis=0)
    return points.shape[1] == 2 or bool(extent[2] <= FLAT * extent.max())


def _field(mesh: meshio.Mesh, on: str, array: str, options: VtkOptions, dimension: int) -> Field:
    name = options.fields[array]
    number = _values(mesh, on, array).shape[-1]
    components: Sequence[str] = COMPONENT_NAMES.get(number, [f"c{at}" for at in range(number)])
    if number == 1:
        components = (name,)
    elif number == 3:
        components = components[:dimension]
    role: Literal["given", "solved"] = "given" if array in options.given else "solved"
    return Field(name, options.units.get(name, ""), tuple(components), role=role)


def _values(mesh: meshio.Mesh, on: str, array: str) -> np.ndarray:
    """Return an array as (N, C), a symmetric tensor's components in the order of their names."""
    found = np.concatenate(mesh.cell_data[array]) if on == "cells" else mesh.point_data[array]
    values = np.asarray(found).reshape(len(found), -1)
    return values[:, VTK_SYMMETRIC] if values.shape[1] == len(VTK_SYMMETRIC) else values


def _read(case: Surveyed) -> SourceCase:
    details: _Snapshots = case.details
    first: np.ndarray | None = None
    values: dict[str, list[np.ndarray]] = {each.name: [] for each in case.fields}
    for _, file in details.files:
        mesh = _mesh(file)
        places = _places(mesh, details.on, case.dimension)
        if first is not None and (places.shape != first.shape or (places != first).any()):
            raise CaseError(
                f"its mesh changes: {file.name} has other points than {details.files[0][1].name}"
            )
        first = places
        for each in case.fields:
            array = details.arrays[each.name]
            found = _checked(mesh, details.on, array, file)
            values[each.name].append(found[:, : len(each.components)])
    arrays = {name: np.stack(of) if case.times else of[0] for name, of in values.items()}
    assert first is not None
    return SourceCase(
        name=case.name,
        points=first,
        fields=arrays,
        time=case.times,
        parameters=case.parameters,
        split=case.split,
        provenance={"solver": "imported", "directory": case.place},
    )


def _places(mesh: meshio.Mesh, on: str, dimension: int) -> np.ndarray:
    places = cell_centres(mesh) if on == "cells" else np.asarray(mesh.points)
    return places[:, :dimension]


def _checked(mesh: meshio.Mesh, on: str, array: str, file: Path) -> np.ndarray:
    """Return an array as (N, C); CaseError where it is absent or not finite."""
    if array not in (mesh.cell_data if on == "cells" else mesh.point_data):
        raise CaseError(f"{file.name} has no array {array} on its {on}")
    values = _values(mesh, on, array)
    if wrong := int(np.count_nonzero(~np.isfinite(values))):
        raise CaseError(f"{array} in {file.name} holds {wrong} values that are not finite")
    return values
