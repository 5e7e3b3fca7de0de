"""A prediction on somebody else's mesh: what `courant predict RUN case.vtu` reads and writes.

The file's arrays that are named like the model's fields are the initial state: at its cells if they are cell arrays, at its points
otherwise. The prediction is written on the same mesh, in the same place.
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
from courant.steady_surrogate import SteadySurrogate
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


def predict_file(run: str, file: Path, parameters: Mapping[str, float] | None, steps: int | None, out: Path) -> str:
    """Roll a transient run out from the state in a mesh file into `out` (.vtu, the last step); a line that says what was written."""
    if out.suffix != ".vtu":
        raise InputError(f"{out}: a prediction on a mesh is written as .vtu; name the file prediction.vtu")
    surrogate = courant.load(run)
    if isinstance(surrogate, SteadySurrogate):
        raise InputError(
            f"{run} is a steady model: it starts from boundary conditions and wall distances, which {file} does not hold; "
            "name a case of its dataset, or call predict in Python"
        )
    names = ", ".join(f"{parameter['name']}={parameter['low']:g}" for parameter in surrogate.dataset["parameters"])
    if not parameters:
        raise InputError(f"say which geometry the mesh is of, such as --parameters {names}")
    given = read_state(file, surrogate.normaliser.channels)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        predicted = surrogate.predict(given.places, initial=given.state, parameters=parameters, steps=steps)
    write_state(given, by_field(predicted[-1], surrogate.normaliser.channels), out)
    told = "".join(f"\nwarning: {warning.message}" for warning in caught if warning.category is UserWarning)
    ahead = surrogate.times(0.0, steps)[-1]
    return f"{out}: {ahead:g} s after the state in {file.name}, on {len(given.places)} {given.on}{told}"


def read_state(file: Path, channels: Sequence[Channel]) -> ForeignState:
    """The state in a file that meshio reads; InputError where it cannot, or lacks a field."""
    if not file.is_file():
        raise InputError(f"{file} does not exist")
    try:
        mesh = meshio.read(file)
    # meshio raises what its parsers raise, and ends the process on a suffix that it does not know.
    except (Exception, SystemExit) as error:
        raise InputError(f"{file} cannot be read as a mesh: {error or type(error).__name__}") from error
    fields = tuple(dict.fromkeys(channel.field for channel in channels))
    arrays = {name: np.concatenate(blocks) for name, blocks in mesh.cell_data.items()}
    if all(name in arrays for name in fields):
        centres = np.concatenate([mesh.points[block.data].mean(axis=1) for block in mesh.cells])
        return ForeignState(mesh, "cells", centres, _state(arrays, channels, file))
    if all(name in mesh.point_data for name in fields):
        return ForeignState(mesh, "points", np.asarray(mesh.points), _state(mesh.point_data, channels, file))
    there = ", ".join([*mesh.point_data, *arrays]) or "none"
    raise InputError(f"{file} needs the arrays {', '.join(fields)}, on its cells or its points; it has {there}")


def write_state(given: ForeignState, fields: Mapping[str, np.ndarray], out: Path) -> None:
    """The mesh with the fields where the state was."""
    mesh = meshio.Mesh(given.mesh.points, given.mesh.cells)
    if given.on == "points":
        mesh.point_data = dict(fields)
    else:
        ends = np.cumsum([len(block.data) for block in mesh.cells])[:-1]
        mesh.cell_data = {name: np.split(values, ends) for name, values in fields.items()}
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.name}")
    mesh.write(temporary, file_format="vtu")
    temporary.replace(out)


def _state(arrays: Mapping[str, np.ndarray], channels: Sequence[Channel], file: Path) -> np.ndarray:
    columns = []
    for channel in channels:
        values = np.asarray(arrays[channel.field]).reshape(len(arrays[channel.field]), -1)
        if values.shape[1] <= channel.column:
            raise InputError(f"{file}: {channel.field} has {values.shape[1]} components, {channel.name} is missing")
        columns.append(values[:, channel.column])
    return np.stack(columns, axis=-1)
