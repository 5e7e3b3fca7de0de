"""A prediction on somebody else's mesh: what `courant predict RUN case.vtu` reads and writes.

Transient: the file's arrays that are named like the model's fields are the initial state, at its cells if they are cell arrays, at its
points otherwise; the prediction is written on the same mesh, in the same place. Steady: at the cells, with geometry and boundary
conditions from a surface mesh.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import meshio
import numpy as np

import courant
from courant.data.normalisation import Channel
from courant.prediction.surrogate import Surrogate
from flows.foreign_boundary import read_boundary
from flows.prediction import by_field
from simgen.errors import InputError


@dataclass(frozen=True)
class ForeignState:
    """A mesh, and a state on its cells or its points."""

    mesh: meshio.Mesh
    on: Literal["cells", "points"]
    places: np.ndarray
    """(N, 3) m, where the state is: cell centres or points"""
    state: np.ndarray
    """(N, C), the model's channels"""


def predict_file(
    run: str, file: Path, boundary: Path | None, parameters: Mapping[str, float] | None, steps: int | None, out: Path
) -> str:
    """Predict on the mesh in a file into `out` (.vtu); lines that say what was written and what was extrapolated.

    A transient model rolls out from the file's arrays and writes its last step, a steady one takes the geometry and the
    conditions from the surface mesh in the file `boundary`.
    """
    if out.suffix != ".vtu":
        raise InputError(f"{out}: a prediction on a mesh is written as .vtu; name the file prediction.vtu")
    surrogate = courant.load(run)
    names = ", ".join(f"{parameter['name']}={parameter['low']:g}" for parameter in surrogate.dataset["parameters"])
    if not parameters:
        raise InputError(f"say which geometry the mesh is of, such as --parameters {names}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        predict = _PREDICT[surrogate.problem.kind]
        line = predict(surrogate, file, boundary, parameters, steps, out)
    told = "".join(f"\nwarning: {warning.message}" for warning in caught if warning.category is UserWarning)
    return f"{out}: {line}{told}"


def _roll_out(
    surrogate: Surrogate,
    file: Path,
    boundary: Path | None,
    parameters: Mapping[str, float],
    steps: int | None,
    out: Path,
) -> str:
    if boundary is not None:
        raise InputError(f"{surrogate.url} is a transient model: leave out --boundary")
    channels = surrogate.normaliser.channels
    given = read_state(file, channels)
    predicted = surrogate.predict(given.places, initial=given.state, parameters=parameters, steps=steps)
    write_fields(given.mesh, given.on, by_field(predicted[-1], channels), out)
    ahead = (surrogate.step_s or 0.0) * len(predicted)
    return f"{ahead:g} s after the state in {file.name}, on {len(given.places)} {given.on}"


def _predict_steady(
    surrogate: Surrogate,
    file: Path,
    boundary: Path | None,
    parameters: Mapping[str, float],
    steps: int | None,
    out: Path,
) -> str:
    if steps is not None:
        raise InputError(f"{surrogate.url} is a steady model: leave out --steps")
    kinds = surrogate.normaliser.patch_kinds
    if boundary is None:
        raise InputError(
            f"a steady model starts from boundary conditions: give --boundary surface.vtu, faces with the cell array patch "
            f"({', '.join(f'{number} {kind}' for number, kind in enumerate(kinds))}) and the prescribed fields"
        )
    mesh, surface = read_mesh(file), read_boundary(boundary, read_mesh(boundary), kinds)
    places = cell_centres(mesh)
    predicted = surrogate.predict(
        places, parameters=parameters, boundary=surface.conditions(), distance=surface.distance(places, kinds)
    )
    write_fields(mesh, "cells", by_field(predicted, surrogate.normaliser.channels), out)
    return f"{len(places)} cells, from {len(surface.patch)} boundary faces"


_PREDICT = {"transient": _roll_out, "steady": _predict_steady}


def read_mesh(file: Path) -> meshio.Mesh:
    """InputError where meshio cannot read it."""
    if not file.is_file():
        raise InputError(f"{file} does not exist")
    try:
        return meshio.read(file)
    # meshio raises what its parsers raise, and ends the process on a suffix that it does not know.
    except (Exception, SystemExit) as error:
        raise InputError(f"{file} cannot be read as a mesh: {error or type(error).__name__}") from error


def cell_centres(mesh: meshio.Mesh) -> np.ndarray:
    """(N, 3) m: the means of the cells' corners."""
    return np.concatenate([mesh.points[block.data].mean(axis=1) for block in mesh.cells])


def read_state(file: Path, channels: Sequence[Channel]) -> ForeignState:
    """The state in a file that meshio reads; InputError where it cannot, or lacks a field."""
    mesh = read_mesh(file)
    fields = tuple(dict.fromkeys(channel.field for channel in channels))
    arrays = {name: np.concatenate(blocks) for name, blocks in mesh.cell_data.items()}
    if all(name in arrays for name in fields):
        return ForeignState(mesh, "cells", cell_centres(mesh), _state(arrays, channels, file))
    if all(name in mesh.point_data for name in fields):
        return ForeignState(mesh, "points", np.asarray(mesh.points), _state(mesh.point_data, channels, file))
    there = ", ".join([*mesh.point_data, *arrays]) or "none"
    raise InputError(f"{file} needs the arrays {', '.join(fields)}, on its cells or its points; it has {there}")


def write_fields(
    mesh: meshio.Mesh, on: Literal["cells", "points"], fields: Mapping[str, np.ndarray], out: Path
) -> None:
    """The mesh with the fields on its cells or points, as a .vtu file that is whole or not there."""
    written = meshio.Mesh(mesh.points, mesh.cells)
    if on == "points":
        written.point_data = dict(fields)
    else:
        ends = np.cumsum([len(block.data) for block in mesh.cells])[:-1]
        written.cell_data = {name: np.split(values, ends) for name, values in fields.items()}
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.name}")
    written.write(temporary, file_format="vtu")
    temporary.replace(out)


def _state(arrays: Mapping[str, np.ndarray], channels: Sequence[Channel], file: Path) -> np.ndarray:
    columns = []
    for channel in channels:
        values = np.asarray(arrays[channel.field]).reshape(len(arrays[channel.field]), -1)
        if values.shape[1] <= channel.column:
            raise InputError(f"{file}: {channel.field} has {values.shape[1]} components, {channel.name} is missing")
        columns.append(values[:, channel.column])
    return np.stack(columns, axis=-1)
