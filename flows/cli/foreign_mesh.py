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
from courant.data.geometry import DistanceField
from courant.data.normalisation import Channel
from courant.prediction.surrogate import Surrogate
from flows.cli.prediction_files import by_field, check_output, write_series, write_state
from simgen.cell_shapes import Place, Shape
from simgen.errors import InputError
from simgen.imports.mesh_file import cell_centres, read_mesh
from simgen.solving.convert import Faces, distance_to_faces

PATCH = "patch"
"""The cell array with each face's kind, a number in the family's order"""
EXPORTED = {PATCH, "normal", "area"}
"""The point arrays of an exported case's boundary"""


@dataclass(frozen=True)
class ForeignBoundary:
    """B faces, in the file's order."""

    faces: Faces
    patch: np.ndarray
    """(B,) numbers of patch kinds"""
    arrays: dict[str, np.ndarray]
    """(B, ...) by name, as the file has them"""

    def conditions(self) -> dict[str, np.ndarray]:
        """Return the conditions as a steady model's `predict` takes them."""
        return {**self.arrays, "points": self.faces.centres, "patch": self.patch}

    def distance(self, places: np.ndarray, kinds: Sequence[str]) -> DistanceField:
        """Return distance (N, K) m and direction (N, K, 3) from places (N, 3) to the faces.

        They have the form that datasets have.
        """
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
        return np.stack([distance for distance, _ in fields], axis=1), np.stack(
            [way for _, way in fields], axis=1
        )


def read_boundary(file: Path, mesh: meshio.Mesh, kinds: Sequence[str]) -> ForeignBoundary:
    """Read the boundary from a mesh of faces; InputError where it is none.

    The boundary of an exported case may have the centres of the faces in place of their corners.
    """
    if {block.type for block in mesh.cells} == {"vertex"} and set(mesh.point_data) >= EXPORTED:
        return _read_centres(file, mesh, kinds)
    wrong = sorted({block.type for block in mesh.cells if block.dim != 2})
    if wrong or not mesh.cells:
        raise InputError(
            f"{file} holds cells of type {', '.join(wrong) or 'none'};"
            " a boundary is a mesh of faces"
        )
    arrays = {name: np.concatenate(blocks) for name, blocks in mesh.cell_data.items()}
    if PATCH not in arrays:
        raise InputError(
            f"{file} needs the cell array {PATCH}, with the kind of each face: {_numbered(kinds)}"
        )
    patch = _checked(file, arrays.pop(PATCH), kinds)
    points = np.asarray(mesh.points, dtype=np.float64)
    sizes = np.concatenate([np.full(len(block.data), block.data.shape[1]) for block in mesh.cells])
    centres = np.concatenate([points[block.data].mean(axis=1) for block in mesh.cells])
    labels = np.concatenate([block.data.ravel() for block in mesh.cells])
    faces = Faces(centres, points, np.concatenate([[0], np.cumsum(sizes)]), labels)
    return ForeignBoundary(faces, patch, arrays)


def _read_centres(file: Path, mesh: meshio.Mesh, kinds: Sequence[str]) -> ForeignBoundary:
    """Read the boundary that `courant dataset export-vtu` writes; each face becomes a square."""
    warnings.warn(
        f"{file} has the centres, normals and areas of the faces, not their corners: distances are"
        " to squares of these areas",
        stacklevel=3,
    )
    arrays = {name: np.asarray(values) for name, values in mesh.point_data.items()}
    patch = _checked(file, arrays.pop(PATCH), kinds)
    centres = np.asarray(mesh.points, dtype=np.float64)
    # One edge is perpendicular to the normal and to the axis that is farthest from it.
    axis = np.eye(3)[np.abs(arrays["normal"]).argmin(axis=1)]
    first = np.cross(arrays["normal"], axis)
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    half = 0.5 * np.sqrt(arrays["area"])[:, None]
    first, second = half * first, half * np.cross(arrays["normal"], first)
    corners = np.stack(
        [centres + a * first + b * second for a, b in ((1, 1), (-1, 1), (-1, -1), (1, -1))], axis=1
    ).reshape(-1, 3)
    faces = Faces(centres, corners, np.arange(0, len(corners) + 1, 4), np.arange(len(corners)))
    return ForeignBoundary(faces, patch, arrays)


def _checked(file: Path, patch: np.ndarray, kinds: Sequence[str]) -> np.ndarray:
    if not np.isin(patch, np.arange(len(kinds))).all():
        raise InputError(f"{file}: {PATCH} holds other numbers than {_numbered(kinds)}")
    return patch.astype(np.int64)


def _numbered(kinds: Sequence[str]) -> str:
    return ", ".join(f"{number} {kind}" for number, kind in enumerate(kinds))


SUFFIXES = (".vtu", ".pvd")


@dataclass(frozen=True)
class ForeignState:
    """A mesh, and a state on its cells or its points."""

    mesh: meshio.Mesh
    on: Place
    places: np.ndarray
    """(N, 3) m, the locations of the state: cell centres or points"""
    state: np.ndarray
    """(N, C), the model's channels"""

    @property
    def shape(self) -> Shape:
        return Shape(self.mesh, self.on)


@dataclass(frozen=True)
class _Request:
    """The command's arguments, with the run loaded."""

    surrogate: Surrogate
    file: Path
    boundary: Path | None
    parameters: Mapping[str, float] | None
    steps: int | None
    out: Path


def _holds(folder: Path, file: Path) -> bool:
    return folder.is_dir() and file.resolve().parent == folder.resolve()


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
    """Predict on the mesh in a file, write `out`, and return lines that say so.

    A transient model rolls out from the file's arrays and writes its last step (.vtu) or all of
    them (.pvd). A steady model takes geometry and boundary conditions from the surface mesh in the
    file `boundary`. Warns of extrapolation as `Surrogate.predict` does.
    """
    for mesh in (file, boundary):
        if mesh is not None and not mesh.is_file():
            raise InputError(f"{mesh} does not exist; name a mesh file, or the id of a stored case")
        if mesh is not None and out.exists() and out.samefile(mesh):
            raise InputError(f"{out} is the mesh to predict on; name another file to write")
        if mesh is not None and out.suffix == ".pvd" and _holds(out.with_suffix(""), mesh):
            raise InputError(
                f"{mesh} lies where the steps of {out} are written; name another file to write"
            )
    check_output(out, SUFFIXES)
    surrogate = courant.load(run)
    check_output(out, SUFFIXES, surrogate.step_s is not None)
    names = ",".join(
        f"{parameter['name']}={parameter['low']:g}" for parameter in surrogate.dataset["parameters"]
    )
    if names and not parameters:
        raise InputError(f"say which geometry the mesh is of, such as --parameters {names}")
    predict = _PREDICT[surrogate.problem.kind]
    told = predict(_Request(surrogate, file, boundary, parameters or None, steps, out))
    return f"{out}: {told}\n{NO_BAND}"


def _roll_out(asked: _Request) -> str:
    surrogate = asked.surrogate
    if asked.boundary is not None:
        raise InputError(f"{surrogate.url} is a transient model: leave out --boundary")
    if surrogate.problem.input_steps > 1:
        raise InputError(
            f"{surrogate.url} starts from {surrogate.problem.input_steps} states, and a mesh file"
            " holds one: use courant.load(...).predict(points, initial=...) in Python"
        )
    channels, given = surrogate.normaliser.channels, surrogate.normaliser.given
    known = read_state(asked.file, surrogate.normaliser.read_channels)
    state, inputs = np.split(known.state, [len(channels)], axis=-1)
    predicted = surrogate.predict(
        known.places,
        initial=state,
        parameters=asked.parameters,
        given=_as_fields(inputs, given),
        steps=asked.steps,
    )
    dimension, step_s = surrogate.normaliser.dimension, surrogate.step_s or 0.0
    fields = [by_field(state, channels, dimension) for state in predicted]
    ahead = step_s * len(predicted)
    if asked.out.suffix == ".pvd":
        times = [step_s * step for step in range(1, len(fields) + 1)]
        write_series(known.shape, list(zip(times, fields, strict=True)), asked.out)
        return (
            f"{len(fields)} steps up to {ahead:g} s after the state in {asked.file.name}, on"
            f" {len(known.places)} {known.on}"
        )
    write_state(known.shape, fields[-1], asked.out)
    return f"{ahead:g} s after the state in {asked.file.name}, on {len(known.places)} {known.on}"


def _predict_steady(asked: _Request) -> str:
    surrogate, boundary = asked.surrogate, asked.boundary
    if asked.steps is not None:
        raise InputError(f"{surrogate.url} is a steady model: leave out --steps")
    normaliser = surrogate.normaliser
    known = read_known(asked.file, normaliser.given)
    given = _as_fields(known.state, normaliser.given)
    if not normaliser.has_boundary:
        if boundary is not None:
            raise InputError(f"{surrogate.url}: its data have no boundary; leave out --boundary")
        predicted = surrogate.predict(known.places, parameters=asked.parameters, given=given)
        _write_steady(known, predicted, asked)
        return f"{len(known.places)} {known.on}"
    kinds = normaliser.patch_kinds
    if boundary is None:
        raise InputError(
            "a steady model starts from boundary conditions: give --boundary surface.vtu, faces"
            " with the cell array patch"
            f" ({', '.join(f'{number} {kind}' for number, kind in enumerate(kinds))}) and the"
            " prescribed fields"
        )
    surface = read_boundary(boundary, read_mesh(boundary), kinds)
    stored = normaliser.stored_kinds
    columns = [kinds.index(kind) for kind in stored]
    distance, direction = surface.distance(known.places, kinds)
    predicted = surrogate.predict(
        known.places,
        parameters=asked.parameters,
        boundary=surface.conditions(),
        distance=(distance[:, columns], direction[:, columns]) if stored else None,
        given=given,
    )
    _write_steady(known, predicted, asked)
    return f"{len(known.places)} {known.on}, from {len(surface.patch)} boundary faces"


def _write_steady(known: ForeignState, predicted: np.ndarray, asked: _Request) -> None:
    normaliser = asked.surrogate.normaliser
    fields = by_field(predicted, normaliser.channels, normaliser.dimension)
    write_state(known.shape, fields, asked.out)


_PREDICT = {"transient": _roll_out, "steady": _predict_steady}


def read_known(file: Path, given: Sequence[Channel]) -> ForeignState:
    """Read where to predict a steady case, with its given fields.

    These are the locations of the given fields, or the cells where there are none.
    """
    if given:
        return read_state(file, given)
    mesh = read_mesh(file)
    places = cell_centres(mesh)
    return ForeignState(mesh, "cells", places, np.zeros((len(places), 0)))


def _as_fields(values: np.ndarray, channels: Sequence[Channel]) -> dict[str, np.ndarray] | None:
    """Turn (N, G) values of given channels into fields (N, components) by name; None if G = 0."""
    fields: dict[str, np.ndarray] = {}
    for number, channel in enumerate(channels):
        width = 1 + max(each.column for each in channels if each.field == channel.field)
        field = fields.setdefault(channel.field, np.zeros((len(values), width)))
        field[:, channel.column] = values[:, number]
    return fields or None


def read_state(file: Path, channels: Sequence[Channel]) -> ForeignState:
    """Read the state in a mesh file; raise InputError if it is unreadable or lacks a field."""
    mesh = read_mesh(file)
    arrays = {name: np.concatenate(blocks) for name, blocks in mesh.cell_data.items()}
    if not _missing(arrays, channels):
        return ForeignState(mesh, "cells", cell_centres(mesh), _state(arrays, channels, file))
    lacking = _missing(mesh.point_data, channels)
    if not lacking:
        return ForeignState(
            mesh, "points", np.asarray(mesh.points), _state(mesh.point_data, channels, file)
        )
    there = ", ".join([*mesh.point_data, *arrays]) or "none"
    raise InputError(
        f"{file} needs the arrays {', '.join(lacking)}, on its cells or its points; it has {there}"
    )


def _missing(arrays: Mapping[str, np.ndarray], channels: Sequence[Channel]) -> list[str]:
    """Name the fields of which neither the field nor the component is among the arrays."""
    return list(
        dict.fromkeys(
            channel.field
            for channel in channels
            if channel.field not in arrays and channel.name not in arrays
        )
    )


def _state(arrays: Mapping[str, np.ndarray], channels: Sequence[Channel], file: Path) -> np.ndarray:
    columns = []
    for channel in channels:
        if channel.name in arrays:
            columns.append(np.asarray(arrays[channel.name]).reshape(-1))
            continue
        values = np.asarray(arrays[channel.field]).reshape(len(arrays[channel.field]), -1)
        if values.shape[1] <= channel.column:
            raise InputError(
                f"{file}: {channel.field} has {values.shape[1]} components,"
                f" {channel.name} is missing"
            )
        columns.append(values[:, channel.column])
    return np.stack(columns, axis=-1)
