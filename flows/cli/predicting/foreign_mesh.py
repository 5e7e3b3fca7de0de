"""Predict on a mesh from another source: the files of `courant predict RUN case.vtu`.

Transient: the initial state is read from the file's arrays that have the names of the model's
fields, at the cells if they are cell arrays, else at the points. The prediction is written on the
same mesh, at the same locations. Steady: the prediction is at the cells; geometry and boundary
conditions come from a surface mesh.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import meshio
import numpy as np

import courant
from courant.data.normalisation import Channel
from courant.prediction.surrogate import Surrogate
from flows.cli.predicting.files import by_field, check_output, write_series, write_state
from flows.cli.predicting.foreign_boundary import read_boundary
from simgen.cell_shapes import Place, Shape
from simgen.errors import InputError
from simgen.imports.mesh_file import cell_centres, read_mesh

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
