"""Whether a solved case is whole: every asked time, every value of every field, on one mesh.

The gates hold a case directory against its settings when it has been solved. The conversion holds
the files that it reads against the mesh. The store holds what it is given against the settings once
more, whoever made it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simgen.case import CaseFamily, Gate, SolvedCase
from simgen.errors import CaseError
from simgen.foam.field import FoamField, read_boundary, read_field, time_directories

MESH_FILES = ("boundary", "faces", "neighbour", "owner", "points")
DIGEST_BYTES = 16
#: Enough for the header of a field file.
HEAD_BYTES = 2048
_BINARY_LIST = re.compile(rb"format\s+binary.*?internalField\s+nonuniform\s+(List<\w+>\s*\d+)\s*\(", re.DOTALL)


@dataclass(frozen=True)
class AskedTimes:
    """The times (s) that a transient solve has to store, each met within `tolerance`."""

    times: np.ndarray
    tolerance: float

    @classmethod
    def of(cls, family: CaseFamily, settings: Mapping[str, float]) -> AskedTimes:
        """Multiples of the snapshot interval up to the end; a solver stores at the nearest step."""
        interval, step = settings[family.snapshot_interval], settings[family.time_step]
        # An end of 60 s over an interval of 0.1 s is 599.99... in floating point.
        number = int(settings[family.horizon] / interval + 1e-6)
        return cls(interval * np.arange(1, number + 1), 0.5 * step * (1 + 1e-6))

    def missing(self, stored: Sequence[float] | np.ndarray) -> np.ndarray:
        """The asked times that no stored one meets."""
        found = np.sort(np.asarray(stored, dtype=float))
        if not len(found):
            return self.times
        after = np.searchsorted(found, self.times).clip(1, max(1, len(found) - 1))
        nearest = np.minimum(
            *(np.abs(found[side.clip(max=len(found) - 1)] - self.times) for side in (after - 1, after))
        )
        return self.times[nearest > self.tolerance]

    def problem(self, stored: Sequence[float] | np.ndarray) -> str:
        """What is wrong with the stored times, as the end of a sentence; empty where nothing is."""
        missing = self.missing(stored)
        if len(stored) == len(self.times) and not len(missing):
            return ""
        asked = f"{len(self.times)} times up to {self.times[-1]:g} s" if len(self.times) else "none"
        lacking = f"; the first that is missing is t = {missing[0]:g} s" if len(missing) else ""
        return f"holds {len(stored)} stored times, its settings ask for {asked}{lacking}"


@dataclass(frozen=True)
class MeshSizes:
    """How many values a field has: one for each cell, and on each patch one for each face."""

    num_cells: int
    num_faces: Mapping[str, int]

    @classmethod
    def of(cls, directory: Path, num_cells: int) -> MeshSizes:
        """Of a case directory whose number of cells is known."""
        patches = read_boundary(directory / "constant/polyMesh/boundary")
        return cls(num_cells, {name: size for name, (_, _, size) in patches.items()})

    def check(self, path: Path, field: FoamField, patches: Mapping[str, str]) -> None:
        """CaseError where the field that `path` holds lacks values, or the entry of a patch."""
        if field.internal.ndim > 1 and len(field.internal) != self.num_cells:
            raise CaseError(f"{path} has values for {len(field.internal)} cells, the mesh has {self.num_cells}")
        for patch in patches:
            if patch not in field.patches:
                raise CaseError(f"{path} has no entry for the patch {patch}")
            values = field.boundary.get(patch)
            if values is not None and values.ndim > 1 and len(values) != self.num_faces[patch]:
                raise CaseError(
                    f"{path} has {len(values)} values on the patch {patch}, which has {self.num_faces[patch]} faces"
                )


def check_fields(family: CaseFamily, directory: Path, num_cells: int) -> None:
    """CaseError that names the file of a stored field that is absent, cut short or of another size."""
    sizes = MeshSizes.of(directory, num_cells)
    for field in family.fields:
        whole: set[tuple[bytes, int]] = set()
        for _, time in stored_times(family, directory):
            path = time / field.openfoam
            layout = _layout(path)
            # One of many snapshots is read; the others are as long from their first value on.
            if layout is None or layout not in whole:
                sizes.check(path, read_field(path), family.patches)
            if layout is not None:
                whole.add(layout)


def _layout(path: Path) -> tuple[bytes, int] | None:
    """The head of a binary field's list of values, and how many bytes follow; else None."""
    try:
        with path.open("rb") as file:
            start = file.read(HEAD_BYTES)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise CaseError(f"{path} cannot be read: {error.strerror}") from error
    head = _BINARY_LIST.search(start)
    return (head[1], size - head.end()) if head else None


def stored_times(family: CaseFamily, directory: Path) -> list[tuple[float, Path]]:
    """The times that become part of the dataset: all of a transient case, the last of a steady one."""
    times = time_directories(directory)
    return times if family.transient else times[-1:]


def mesh_digests(directory: Path) -> dict[str, str]:
    """A digest of each file of the case's mesh; CaseError where one cannot be read."""
    mesh = directory / "constant/polyMesh"
    try:
        return {
            name: hashlib.blake2b((mesh / name).read_bytes(), digest_size=DIGEST_BYTES).hexdigest()
            for name in MESH_FILES
        }
    except OSError as error:
        raise CaseError(f"{error.filename} cannot be read: {error.strerror}") from error


def changed_mesh_files(directory: Path, meshed: Mapping[str, str]) -> list[str]:
    """The files of the mesh that differ from their digests `meshed`, and meshes of stored times."""
    found = mesh_digests(directory)
    changed = [f"constant/polyMesh/{name}" for name in MESH_FILES if found[name] != meshed[name]]
    moved = [f"{path.name}/polyMesh" for _, path in time_directories(directory) if (path / "polyMesh").exists()]
    return changed + moved


def completeness_figures(
    family: CaseFamily, case: SolvedCase, meshed: Mapping[str, str], solver_time: float
) -> dict[str, float]:
    """How far what a case stores departs from what was asked.

    `meshed` holds the digests of its mesh from before the solver ran.
    """
    times = [time for time, _ in stored_times(family, case.directory)]
    if family.transient:
        asked = AskedTimes.of(family, case.point.settings)
        missing = len(asked.missing(times))
    else:
        missing = int(times != [solver_time])
    return {
        "first_stored_time": times[0] if times else float("nan"),
        "asked_times_missing": float(missing),
        "mesh_files_changed": float(len(changed_mesh_files(case.directory, meshed))),
    }


def completeness_gates(family: CaseFamily, settings: Mapping[str, float], figures: Mapping[str, float]) -> list[Gate]:
    """The gates over `completeness_figures`."""
    changed = Gate.at_most("mesh files changed while it was solved", figures["mesh_files_changed"], 0)
    if not family.transient:
        return [
            Gate.at_most("last iterations not stored", figures["asked_times_missing"], 0),
            changed,
        ]
    asked = AskedTimes.of(family, settings)
    number, first = figures["num_snapshots"], figures["first_stored_time"]
    interval = settings[family.snapshot_interval]
    return [
        Gate("number of stored times", number, f"= {len(asked.times)}", number == len(asked.times)),
        Gate(
            "first stored time",
            first,
            f"{interval:g} +- {asked.tolerance:g}",
            abs(first - interval) <= asked.tolerance,
            "s",
        ),
        Gate.at_most("asked times not stored", figures["asked_times_missing"], 0),
        changed,
    ]
