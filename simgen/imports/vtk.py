"""Import a folder of VTK's mesh files: each file or list of files a case.

Values on cells stand at the cells' middles, values on points at the points. Faces among volumes, or
edges among faces, are no cells.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from simgen.case import Field
from simgen.cell_shapes import VTK_SYMMETRIC
from simgen.errors import CaseError, InputError
from simgen.foam.field import COMPONENT_NAMES
from simgen.imports.folder_plan import FolderPlan, import_plan, plan_folder
from simgen.imports.importing import Imported
from simgen.imports.source_case import SourceCase
from simgen.imports.surveyed import Asked, Surveyed, fingerprint
from simgen.imports.vtk_lists import Snapshots, find_cases, read_snapshots
from simgen.imports.vtk_reader import MeshReader, Snapshot

#: How far, in lengths of the case, points of a plane case may lie off the plane z = const, and how
#: much of the largest component its vectors may have across.
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
class _Details:
    """What the reader of a case needs."""

    snapshots: Snapshots
    arrays: Mapping[str, str]
    """The field's name in the dataset to the array's"""
    mesh: bytes
    """Digest of its places"""


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
    found = find_cases(asked.folder)
    if not found.cases:
        raise InputError(f"{asked.folder} holds no file that ends in .vtu, .vtk, .vtm or .pvd")

    def survey(place: str) -> Surveyed:
        path = found.cases[place]
        try:
            return _survey(reader, path, place, asked, options)
        except (CaseError, InputError) as error:
            if not found.beside.get(path):
                raise
            raise CaseError(
                f"{error}; {found.beside[path]} files beside it are no cases as long as it cannot"
                " be used: correct or remove it"
            ) from error

    with MeshReader() as reader:
        plan = plan_folder(
            asked, list(found.cases), survey, boundary=False, volumes=False, on_progress=on_progress
        )
    notes = [*plan.notes, *_alike(plan.cases)]
    if found.surfaces:
        notes.append(
            f"surfaces alone are no cases: {found.surfaces[0].relative_to(asked.folder)} and what"
            f" else has polygons and no cells is left out, {len(found.surfaces)} files"
        )
    return replace(plan, notes=tuple(notes))


def _alike(cases: Sequence[Surveyed]) -> Iterator[str]:
    """Name steady cases that may be snapshots of one run."""
    alike = defaultdict(list)
    for case in cases:
        if case.times is None:
            alike[case.details.mesh, re.sub(r"\d[\d.]*", "", case.place)].append(case.place)
    for places in alike.values():
        if len(places) > 1:
            yield (
                f"{places[0]}, {places[1]}{', …' if len(places) > 2 else ''} ({len(places)} cases)"
                " have one mesh and names that differ in a number: if they are snapshots of one"
                " run, list them in a .pvd or .series file, or training and test share the run"
            )


def import_vtk(
    plan: FolderPlan,
    *,
    on_progress: OnProgress = lambda done, total: None,
    on_refused: Callable[[str, str], None] = lambda case, why: None,
) -> Imported:
    """Import what was planned, and publish it as a version."""
    with MeshReader() as reader:
        return import_plan(
            plan, lambda case: _read(reader, case), on_progress=on_progress, on_refused=on_refused
        )


def _survey(
    reader: MeshReader, path: Path, place: str, asked: Asked, options: VtkOptions
) -> Surveyed:
    snapshots = read_snapshots(path)
    times = [time for time, _ in snapshots if time is not None]
    first = reader.read(snapshots[0][1], list(options.fields))
    dimension = 2 if first.extent[2] <= FLAT * first.extent.max() else 3
    row = asked.row_of(place)
    return Surveyed(
        place=place,
        files=fingerprint(
            [file for _, files in snapshots for file in files],
            (sorted(options.fields.items()), times),
        ),
        fields=tuple(_field(first, array, options, dimension) for array in options.fields),
        dimension=dimension,
        times=tuple(times) if len(times) > 1 else None,
        parameters=row.parameters,
        split=row.split,
        details=_Details(
            snapshots,
            {name: array for array, name in options.fields.items()},
            hashlib.blake2b(first.places.tobytes(), digest_size=16).digest(),
        ),
    )


def _field(mesh: Snapshot, array: str, options: VtkOptions, dimension: int) -> Field:
    name = options.fields[array]
    number = mesh.values[array].shape[-1]
    components: Sequence[str] = COMPONENT_NAMES.get(number, [f"c{at}" for at in range(number)])
    if number == 1:
        components = (name,)
    elif number == 3 and not _leaves(mesh.values[array], dimension):
        components = components[:dimension]
    role: Literal["given", "solved"] = "given" if array in options.given else "solved"
    return Field(name, options.units.get(name, ""), tuple(components), role=role)


def _leaves(values: np.ndarray, dimension: int) -> bool:
    """Tell whether vectors (N, 3) have components beyond so many dimensions."""
    largest = np.abs(values).max(axis=0, initial=0.0)
    return bool(largest[dimension:].max(initial=0.0) > FLAT * largest.max())


def _read(reader: MeshReader, case: Surveyed) -> SourceCase:
    details: _Details = case.details
    first: np.ndarray | None = None
    values: dict[str, list[np.ndarray]] = {each.name: [] for each in case.fields}
    for _, files in details.snapshots:
        try:
            mesh = reader.read(files, list(details.arrays.values()))
        except CaseError as error:
            raise CaseError(f"{files[0]}: {error}") from error
        places = mesh.places[:, : case.dimension]
        if first is not None and (places.shape != first.shape or (places != first).any()):
            raise CaseError(
                f"its mesh changes: {files[0]} has other places than {details.snapshots[0][1][0]}"
            )
        first = places
        for each in case.fields:
            found = _checked(mesh, details.arrays[each.name], files[0])
            if _leaves(found, len(each.components)):
                raise CaseError(f"{each.name} in {files[0]} has a part across the plane")
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


def _checked(mesh: Snapshot, array: str, file: Path) -> np.ndarray:
    """Return an array as (N, C), a symmetric tensor's components in the order of their names."""
    values = mesh.values[array]
    if wrong := int(np.count_nonzero(~np.isfinite(values))):
        raise CaseError(f"{array} in {file} holds {wrong} values that are not finite")
    return values[:, VTK_SYMMETRIC] if values.shape[1] == len(VTK_SYMMETRIC) else values
