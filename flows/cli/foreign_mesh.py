"""Predict on a mesh from another source: the files of `courant predict RUN case.vtu`.

Transient: the initial state is read from the file's arrays that have the names of the model's
fields, at the cells if they are cell arrays, else at the points. The prediction is written on the
same mesh, at the same locations. Steady: the prediction is at the cells; geometry and boundary
conditions come from a surface mesh with the kind of each face and the prescribed fields.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import meshio
import numpy as np

import courant
from courant.data.normalisation import Channel
from flows.cli.prediction_files import by_field, check_output, write_series, write_state
from simgen.cell_mesh import Shape
from simgen.errors import InputError
from simgen.imports.vtk_reader import MeshReader
from simgen.solving.convert import Polygons, distance_to_faces

PATCH = "patch"
"""The cell array with each face's kind, a number in the family's order"""
EXPORTED = {PATCH, "normal", "area"}
"""The point arrays of an exported case's boundary"""
SUFFIXES = (".vtu", ".pvd")
NO_BAND = (
    "no band of error holds on a mesh of your own: bands are calibrated on the meshes of the"
    " dataset, which predictions of a --design have"
)


def predict_file(
    run: str,
    file: Path,
    boundary: Path | None,
    parameters: Mapping[str, float] | None,
    steps: int | None,
    out: Path,
) -> str:
    """Predict on the mesh in a file, write `out`, and return lines for the screen.

    A transient model rolls out from the file's arrays and writes its last step (.vtu) or all of
    them (.pvd). A steady model reads geometry and boundary conditions from the surface mesh in the
    file `boundary`. Warns of extrapolation as `Surrogate.predict` does.
    """
    for mesh in (file, boundary):
        if mesh is None:
            continue
        if not mesh.is_file():
            raise InputError(f"{mesh} does not exist; name a mesh file, or the id of a stored case")
        if out.exists() and out.samefile(mesh):
            raise InputError(f"{out} is the mesh to predict on; name another file to write")
        folder = out.with_suffix("")
        if out.suffix == ".pvd" and folder.is_dir() and mesh.resolve().parent == folder.resolve():
            raise InputError(
                f"{mesh} lies where the steps of {out} are written; name another file to write"
            )
    check_output(out, SUFFIXES)
    surrogate = courant.load(run)
    check_output(out, SUFFIXES, surrogate.step_s is not None)
    wanted = surrogate.dataset["parameters"]
    if wanted and not parameters:
        names = ",".join(f"{each['name']}={each['low']:g}" for each in wanted)
        raise InputError(f"name the geometry of the mesh, such as --parameters {names}")
    normaliser = surrogate.normaliser
    channels, dimension = normaliser.channels, normaliser.dimension
    is_steady = surrogate.problem.kind == "steady"
    if not is_steady and boundary is not None:
        raise InputError(f"{surrogate.url} is a transient model: leave out --boundary")
    if not is_steady and surrogate.problem.input_steps > 1:
        raise InputError(
            f"{surrogate.url} starts from {surrogate.problem.input_steps} states, and a mesh file"
            " holds one: use courant.load(...).predict(points, initial=...) in Python"
        )
    if is_steady and steps is not None:
        raise InputError(f"{surrogate.url} is a steady model: leave out --steps")
    if is_steady and boundary is not None and not normaliser.has_boundary:
        raise InputError(f"{surrogate.url}: its data have no boundary; leave out --boundary")
    if is_steady and boundary is None and normaliser.has_boundary:
        raise InputError(
            "a steady model starts from boundary conditions: give --boundary surface.vtu, faces"
            f" with the cell array patch ({_numbered(normaliser.patch_kinds)}) and the prescribed"
            " fields"
        )
    with MeshReader() as reader:
        mesh = reader.read_mesh(file)
        surface = None if boundary is None else reader.read_mesh(boundary)
    known = read_state(file, mesh, normaliser.given if is_steady else normaliser.read_channels)
    where = f"{len(known.places)} {known.shape.on}"
    if not is_steady:
        state, inputs = np.split(known.state, [len(channels)], axis=-1)
        rollout = surrogate.predict(
            known.places,
            initial=state,
            parameters=parameters,
            given=_as_fields(inputs, normaliser.given),
            steps=steps,
        )
        step_s = surrogate.step_s or 0.0
        times = [step_s * (number + 1) for number in range(len(rollout))]
        fields = [by_field(values, channels, dimension) for values in rollout]
        after = f"{times[-1]:g} s after the state in {file.name}, on {where}"
        if out.suffix == ".pvd":
            write_series(known.shape, list(zip(times, fields, strict=True)), out)
            return f"{out}: {len(fields)} steps up to {after}\n{NO_BAND}"
        write_state(known.shape, fields[-1], out)
        return f"{out}: {after}\n{NO_BAND}"
    conditions = distance = None
    if boundary is not None:
        faces = read_boundary(boundary, surface, normaliser.patch_kinds)
        conditions = {**faces.arrays, "points": faces.faces.centres, "patch": faces.patch}
        where += f", from {len(faces.patch)} boundary faces"
        lengths, ways = faces.distance(known.places, normaliser.patch_kinds)
        if columns := [normaliser.patch_kinds.index(kind) for kind in normaliser.stored_kinds]:
            distance = (lengths[:, columns], ways[:, columns])
    predicted = surrogate.predict(
        known.places,
        parameters=parameters,
        boundary=conditions,
        distance=distance,
        given=_as_fields(known.state, normaliser.given),
    )
    write_state(known.shape, by_field(predicted, channels, dimension), out)
    return f"{out}: {where}\n{NO_BAND}"


@dataclass(frozen=True)
class ForeignState:
    """A state on a mesh's cells or points."""

    shape: Shape
    places: np.ndarray
    """(N, 3) m, the locations of the state: cell centres or points"""
    state: np.ndarray
    """(N, C), the model's channels"""


def read_state(file: Path, mesh: meshio.Mesh, channels: Sequence[Channel]) -> ForeignState:
    """Find the channels in a mesh's arrays: on its cells, also if there are none, or its points.

    InputError names the fields that are neither there nor by their components.
    """
    on_cells = {name: np.concatenate(blocks) for name, blocks in mesh.cell_data.items()}
    lacking: list[str] = []
    for on, arrays in (("cells", on_cells), ("points", mesh.point_data)):
        lacking = [
            each.field for each in channels if each.field not in arrays and each.name not in arrays
        ]
        if lacking or (on == "cells" and not mesh.cells):
            continue
        places, columns = np.asarray(mesh.points), []
        if on == "cells":
            places = np.concatenate([places[block.data].mean(axis=1) for block in mesh.cells])
        for each in channels:
            values = arrays.get(each.name)
            if values is None:
                whole = arrays[each.field].reshape(len(places), -1)
                if whole.shape[1] <= each.column:
                    raise InputError(
                        f"{file}: {each.field} has {whole.shape[1]} components, {each.name} is"
                        " missing"
                    )
                values = whole[:, each.column]
            columns.append(values.reshape(-1))
        state = np.stack(columns, axis=-1) if columns else np.zeros((len(places), 0))
        return ForeignState(Shape(mesh, on), places, state)  # type: ignore[arg-type]
    if not lacking:
        raise InputError(f"{file} holds no cells")
    there = ", ".join([*mesh.point_data, *on_cells]) or "none"
    raise InputError(
        f"{file} needs the arrays {', '.join(dict.fromkeys(lacking))}, on its cells or its points;"
        f" it has {there}"
    )


def _as_fields(values: np.ndarray, channels: Sequence[Channel]) -> dict[str, np.ndarray] | None:
    """Turn (N, G) values of given channels into fields (N, components) by name; None if G = 0."""
    fields: dict[str, np.ndarray] = {}
    for number, channel in enumerate(channels):
        width = 1 + max(each.column for each in channels if each.field == channel.field)
        field = fields.setdefault(channel.field, np.zeros((len(values), width)))
        field[:, channel.column] = values[:, number]
    return fields or None


@dataclass(frozen=True)
class ForeignBoundary:
    """B faces, in the file's order."""

    faces: Polygons
    patch: np.ndarray
    """(B,) numbers of patch kinds"""
    arrays: dict[str, np.ndarray]
    """(B, ...) by name, as the file has them"""

    def distance(self, places: np.ndarray, kinds: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return distance (N, K) m and direction (N, K, 3) from places (N, 3) to the faces."""
        missing = [kind for number, kind in enumerate(kinds) if not (self.patch == number).any()]
        if missing:
            raise InputError(
                f"the boundary has no face of kind {', '.join(missing)};"
                f" {PATCH} numbers {_numbered(kinds)}"
            )
        fields = [
            distance_to_faces(places, self.faces, np.flatnonzero(self.patch == k))
            for k in range(len(kinds))
        ]
        lengths, ways = zip(*fields, strict=True)
        return np.stack(lengths, axis=1), np.stack(ways, axis=1)


def read_boundary(file: Path, mesh: meshio.Mesh, kinds: Sequence[str]) -> ForeignBoundary:
    """Read the boundary from a mesh of faces; InputError where it is none.

    The boundary that `courant dataset export-vtu` writes may have the centres of the faces in
    place of their corners: each becomes a square of its area.
    """
    points = np.asarray(mesh.points, dtype=np.float64)
    is_centres = {block.type for block in mesh.cells} == {"vertex"}
    if is_centres and set(mesh.point_data) >= EXPORTED:
        warnings.warn(
            f"{file} has the centres, normals and areas of the faces, not their corners: distances"
            " are to squares of these areas",
            stacklevel=2,
        )
        arrays = {name: np.asarray(values) for name, values in mesh.point_data.items()}
        # One edge is perpendicular to the normal and to the axis that is farthest from it.
        axis = np.eye(3)[np.abs(arrays["normal"]).argmin(axis=1)]
        first = np.cross(arrays["normal"], axis)
        first /= np.linalg.norm(first, axis=1, keepdims=True)
        half = 0.5 * np.sqrt(arrays["area"])[:, None]
        first, second = half * first, half * np.cross(arrays["normal"], first)
        ways = ((1, 1), (-1, 1), (-1, -1), (1, -1))
        corners = np.stack([points + a * first + b * second for a, b in ways], axis=1)
        corners = corners.reshape(-1, 3)
        faces = Polygons(
            points, corners, np.arange(0, len(corners) + 1, 4), np.arange(len(corners))
        )
    else:
        wrong = sorted({block.type for block in mesh.cells if block.dim != 2})
        if wrong or not mesh.cells:
            raise InputError(
                f"{file} holds cells of type {', '.join(wrong) or 'none'}; a boundary is a mesh of"
                " faces"
            )
        arrays = {name: np.concatenate(blocks) for name, blocks in mesh.cell_data.items()}
        if PATCH not in arrays:
            raise InputError(
                f"{file} needs the cell array {PATCH}, with the kind of each face:"
                f" {_numbered(kinds)}"
            )
        blocks = [block.data for block in mesh.cells]
        sizes = np.concatenate([np.full(len(block), block.shape[1]) for block in blocks])
        faces = Polygons(
            np.concatenate([points[block].mean(axis=1) for block in blocks]),
            points,
            np.concatenate([[0], np.cumsum(sizes)]),
            np.concatenate([block.ravel() for block in blocks]),
        )
    patch = arrays.pop(PATCH)
    if not np.isin(patch, np.arange(len(kinds))).all():
        raise InputError(f"{file}: {PATCH} holds other numbers than {_numbered(kinds)}")
    return ForeignBoundary(faces, patch.astype(np.int64), arrays)


def _numbered(kinds: Sequence[str]) -> str:
    return ", ".join(f"{number} {kind}" for number, kind in enumerate(kinds))
