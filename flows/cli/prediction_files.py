"""Predict into files, for `courant predict`: a stored case, a new design, a mesh of one's own.

An .npz has arrays, a .vtu one state, a .pvd all of a rollout. A file takes its name once it is
complete. Where it cannot be written, that is an error before anything is computed.

On a mesh from another source a transient model starts from the file's arrays that have the names of
the model's fields, at the cells if they are cell arrays, else at the points, and the prediction is
at the same locations. That of a steady model is at the cells; geometry and boundary conditions come
from a surface mesh with the kind of each face and the prescribed fields.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import meshio
import numpy as np
from matplotlib.figure import Figure

import courant
from courant.data.normalisation import Channel
from courant.prediction.bands import DesignBands
from courant.prediction.design import PredictedDesign
from courant.prediction.surrogate import Surrogate
from courant.report.fields import draw_prediction
from courant.report.page import channel_label, plain
from flows.settings import load_settings
from flows.terminal import add_row, counted, plain_table, print_line, screen
from simgen.cases import get_family
from simgen.cell_mesh import Shape, cells_of
from simgen.errors import InputError
from simgen.imports.vtk_reader import MeshReader
from simgen.publish.export import write_collection
from simgen.publish.figures import add_colorbar, draw_field, layer_of_cloud, png_bytes, spanning
from simgen.solving.convert import Polygons, distance_to_faces
from simgen.whole_file import npz_bytes, whole_file

SUFFIXES = (".npz", ".vtu", ".pvd")
LEAST_UNSOLVED = 0.1
"""Share of unsolved designs near a design from which on that is printed"""
PATCH = "patch"
"""The cell array with each face's kind, a number in the family's order"""
EXPORTED = {PATCH, "normal", "area"}
"""The point arrays of an exported case's boundary"""
MESH_SUFFIXES = (".vtu", ".pvd")
NO_BAND = (
    "no band of error holds on a mesh of your own: bands are calibrated on the meshes of the"
    " dataset, which predictions of a --design have"
)


def check_output(out: Path, suffixes: Sequence[str], is_rollout: bool | None = None) -> None:
    """Raise InputError for another suffix, and for a place where no file can be written.

    `is_rollout` is whether the model predicts several times, where that is known already.
    """
    if out.suffix not in suffixes:
        names = " or ".join(f"prediction{suffix}" for suffix in suffixes)
        raise InputError(f"{out} has no suffix of {', '.join(suffixes)}: name the file {names}")
    if out.suffix == ".pvd" and is_rollout is False:
        raise InputError(f"{out}: a steady prediction has no times; name the file {out.stem}.vtu")
    folder = next(parent for parent in out.absolute().parents if parent.exists())
    if not folder.is_dir():
        reason = f"{folder} is a file"
    elif not os.access(folder, os.W_OK | os.X_OK):
        reason = f"permission denied in {folder}"
    elif out.is_dir():
        reason = "it is a folder"
    else:
        return
    raise InputError(f"{out} cannot be written: {reason}; choose another place")


@contextlib.contextmanager
def writing(out: Path) -> Iterator[Path]:
    """Yield where to write `out`, as `whole_file`; InputError where it cannot be written."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(out) as part:
            yield part
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"{out} cannot be written: {reason}; choose another place") from error


def write_state(shape: Shape, fields: Mapping[str, np.ndarray], out: Path) -> None:
    """Write a mesh with fields as .vtu."""
    with writing(out) as part:
        shape.filled(fields).write(part, file_format="vtu")


def write_series(
    shape: Shape, states: Sequence[tuple[float, Mapping[str, np.ndarray]]], out: Path
) -> None:
    """Write each time's fields as .vtu into a folder, then the .pvd that names them.

    Files of a series that was there before are replaced once all of this one are written.
    """
    folder = out.with_name(out.stem)
    begun, names = folder / f".{out.stem}.part", {}
    shutil.rmtree(begun, ignore_errors=True)  # of a command that was killed
    try:
        for number, (time, fields) in enumerate(states):
            name = f"{out.stem}_{number:05d}.vtu"
            write_state(shape, fields, begun / name)
            names[name] = time
        with writing(out) as part:
            write_collection(part, {f"{folder.name}/{name}": names[name] for name in names})
            for name in names:
                (begun / name).replace(folder / name)
    finally:
        shutil.rmtree(begun, ignore_errors=True)
        with contextlib.suppress(OSError):  # it holds something
            folder.rmdir()


def by_field(
    values: np.ndarray, channels: Sequence[Channel], dimension: int, suffix: str = ""
) -> dict[str, np.ndarray]:
    """Split (N, C) into arrays by field, as ParaView knows them; `suffix` ends their names.

    A vector whose components are all modelled is (N, 3), in two dimensions with z = 0. Of any other
    field each modelled component is an array of its own, such as `velocity.x`: nothing takes the
    place of those that are not modelled.
    """
    fields: dict[str, np.ndarray] = {}
    for name in dict.fromkeys(channel.field for channel in channels):
        columns = {each.component: c for c, each in enumerate(channels) if each.field == name}
        axes = "xyz"[: max(dimension, len(columns))]
        if set(columns) == set(axes):
            vector = values[:, [columns[axis] for axis in axes]]
            fields[f"{name}{suffix}"] = np.pad(vector, ((0, 0), (0, 3 - len(axes))))
        elif len(columns) == 1 and not set(columns) <= set("xyz"):
            fields[f"{name}{suffix}"] = values[:, next(iter(columns.values()))]
        else:
            for component, column in columns.items():
                fields[f"{name}.{component}{suffix}"] = values[:, column]
    return fields


@dataclass(frozen=True)
class _Prediction:
    """What is written of a case or a design."""

    surrogate: Surrogate
    points: np.ndarray
    shape: Shape
    times: Sequence[float] | None
    """T times in seconds; None of a steady prediction"""
    values: np.ndarray
    """(N, C) of a steady model, (T, N, C) of a transient one"""
    band: np.ndarray | None
    """Half-widths, shaped as the values; None where there are none"""
    solved: Sequence[np.ndarray | None]
    """The solver's (N, C) at each time, or the only one; None where there is none"""

    def write(self, out: Path) -> None:
        """Write all steps as .npz or .pvd, the last one as .vtu.

        Beside the prediction are the half-widths of its band and, where there is a solution, that
        and the error.
        """
        if out.suffix == ".npz":
            with writing(out) as part:
                part.write_bytes(npz_bytes(self._arrays()))
        elif self.times is None or out.suffix == ".vtu":
            write_state(self.shape, self._fields(-1), out)
        else:
            states = [(time, self._fields(number)) for number, time in enumerate(self.times)]
            write_series(self.shape, states, out)

    def _arrays(self) -> dict[str, Any]:
        arrays = {"points": self.points}
        if self.times is not None:
            arrays["time"] = np.asarray(self.times)
        complete = [each for each in self.solved if each is not None]
        solved = None
        if len(complete) == len(self.solved):
            solved = complete[0] if self.times is None else np.stack(complete)
        for column, name in enumerate(self.surrogate.channels):
            arrays[name] = self.values[..., column]
            if solved is not None:
                arrays[f"{name}_solver"] = solved[..., column]
            if self.band is not None:
                arrays[f"{name}_band"] = self.band[..., column]
        return arrays

    def _fields(self, number: int) -> dict[str, np.ndarray]:
        """Return the fields of one state; of a steady model there is only one."""
        state = (lambda each: each) if self.times is None else (lambda each: each[number])
        predicted, truth = state(self.values), self.solved[number]
        normaliser = self.surrogate.normaliser
        how = normaliser.channels, normaliser.dimension
        fields = by_field(predicted, *how)
        if self.band is not None:
            fields |= by_field(state(self.band), *how, "_band")
        if truth is not None:
            fields |= by_field(truth, *how, "_solver")
            fields |= by_field(predicted - truth, *how, "_error")
        return fields

    def extent(self) -> str:
        """Describe the steps: `10 steps from 110 to 200 s`; empty of a steady prediction."""
        if self.times is None:
            return ""
        return f"{counted(len(self.times), 'step')} from {self.times[0]:g} to {self.times[-1]:g} s"


def write_prediction(
    run: str,
    case: str,
    start_s: float | None,
    steps: int | None,
    out: Path,
    dataset: str | None = None,
) -> str:
    """Predict a stored case into `out`; return a line that describes what was written.

    `start_s` and `steps` are for transient runs; `dataset` is where the dataset lies by now, if it
    was moved. .npz holds points (N, 3) m and one array per component, (N,) steady, (T, N) with time
    (T,) s transient. .vtu is for ParaView and holds the last step, .pvd names a .vtu for each step;
    they hold the solver's field and the difference too where the case has a solution at that time.
    Of a calibrated run each has the half-widths of the field's band.
    """
    check_output(out, SUFFIXES)
    surrogate = courant.load(run)
    check_output(out, SUFFIXES, surrogate.step_s is not None)
    stored = surrogate.open_dataset(dataset)[case]
    begin = surrogate.problem.start(stored, start_s)
    predicted = surrogate.predict_case(stored, start_s=begin, steps=steps)
    at = None if begin is None else surrogate.times(begin, steps)
    times = None if at is None else at.tolist()
    bands = surrogate.bands_of_case(stored, predicted, begin)
    points, band = stored.points, bands.field if bands else None
    wanted = {".npz": [], ".vtu": [-1], ".pvd": range(len(times or [None]))}[out.suffix]
    solved: list[np.ndarray | None] = [None] * len(times or [None])
    for number in wanted:
        solved[number] = surrogate.problem.solution(stored, times[number] if times else None)
    shape = cells_of(stored)
    found = _Prediction(surrogate, points, shape, times, predicted, band, solved)
    found.write(out)
    num_points, beside = counted(stored.num_points, "point"), ""
    when = f"{found.extent()} at " if times else ""
    if times and out.suffix == ".vtu":
        when = f"t = {times[-1]:g} s at "
    num_solved = sum(each is not None for each in solved)
    if out.suffix == ".pvd" and num_solved:
        beside = f", {num_solved} of them with the solver's field and the error"
    elif solved[-1] is not None:
        beside = ", with the solver's field and the error"
    refusal = f"\nno band of the field holds: {bands.no_field}" if bands and bands.no_field else ""
    return f"{out}: {when}{num_points}{beside}{refusal}"


def predict_to_files(
    run: str,
    parameters: Mapping[str, float],
    out: Path,
    *,
    steps: int | None = None,
    from_solver_s: float | None = None,
    verify: bool = False,
) -> None:
    """Predict a design into `out` and a picture beside it; print quantities and times."""
    check_output(out, SUFFIXES)
    surrogate = courant.load(run)
    check_output(out, SUFFIXES, surrogate.step_s is not None)
    design = surrogate.predict_design(
        parameters,
        steps=steps,
        from_solver_s=from_solver_s,
        verify=verify,
        scratch=load_settings().scratch,
    )
    cloud, times, bands = design.cloud, design.times, design.bands
    solved: Sequence[np.ndarray | None] = [None] * (1 if times is None else len(times))
    if design.solved is not None:
        solved = [design.solved] if times is None else list(design.solved)
    found = _Prediction(
        surrogate,
        cloud.points,
        cells_of(cloud),
        None if times is None else times.tolist(),
        design.values,
        None if bands is None else bands.field,
        solved,
    )
    found.write(out)
    picture = out.with_suffix(".png")
    figure = _draw(found, design)
    with whole_file(picture) as part:
        part.write_bytes(png_bytes(figure))
    extent = f"{found.extent()} on " if found.extent() else ""
    print_line(f"{out}: {extent}{counted(cloud.num_points, 'cell')}")
    shown = "the prediction" if design.solved is None else "solution, prediction and error"
    print_line(f"{picture}: {shown}")
    alone = {} if bands is None else bands.by_regression
    widths = bands.quantities if bands else {}
    between = "{:.3g} to {:.3g}".format
    columns = {
        "predicted": {name: f"{value:.4g}" for name, value in design.quantities.items()},
        f"{bands.level if bands else 0:.0%} band": {
            name: f"+- {two_digits(width)}"
            if math.isfinite(width := widths.get(name, math.inf))
            else "none holds"
            for name in (design.quantities if widths else ())
        },
        "fine mesh": {name: between(*ends) for name, ends in design.fine.items()},
        "by regression": {
            name: f"{value:.4g} +- {two_digits(width)}" for name, (value, width) in alone.items()
        },
        "that on a fine mesh": {
            name: between(*ends) for name, ends in design.fine_by_regression.items()
        },
        "solver": {
            name: f"{value:.4g}" for name, value in (design.solved_quantities or {}).items()
        },
    }
    columns = {title: cells for title, cells in columns.items() if cells}
    table = plain_table("quantity", *columns, "unit")
    for each in get_family(surrogate.dataset["family"]).quantities:
        if each.name in {*design.quantities, *alone}:
            cells = (column.get(each.name, "") for column in columns.values())
            add_row(table, plain(each.name), *cells, each.unit)
    if table.row_count:
        screen.print(table)
    for name, why in design.not_predicted.items():
        print_line(f"{plain(name)} is not predicted: {why}")
    for line in trust_lines(bands):
        print_line(line)
    seconds, parts = design.seconds, ["known geometry"]
    if not design.known_geometry:
        parts = [f"meshing {seconds.meshing:.2g} s"]
    if seconds.solving:
        parts.append(f"solver {seconds.solving:.2g} s")
    print_line(", ".join([*parts, f"prediction {seconds.prediction:.2g} s"]))


def _draw(found: _Prediction, design: PredictedDesign) -> Figure:
    """Draw the last state's components, beside the solution and the error where there is one."""
    normaliser, solved = found.surrogate.normaliser, found.solved[-1]
    channels = normaliser.channels
    triangles = layer_of_cloud(design.cloud, normaliser.dimension)
    predicted = found.values if found.times is None else found.values[-1]
    if solved is not None:
        return draw_prediction(triangles, solved, predicted, channels)
    height = float(np.clip(6.0 * triangles.aspect + 0.4, 1.5, 6.0))
    figure = Figure(figsize=(7.0, height * len(channels)), layout="constrained")
    axes = figure.subplots(len(channels), 1, squeeze=False)[:, 0]
    when = "" if found.times is None else f" at t = {found.times[-1]:g} s"
    for axis, channel, values in zip(axes, channels, predicted.T, strict=True):
        limits = spanning(values[np.unique(triangles.cell)])
        artist = draw_field(axis, triangles, values, limits=limits, cmap="viridis")
        axis.set_title(f"{channel_label(channel)}, predicted{when}", fontsize=9, loc="left")
        add_colorbar(figure, artist, axis, shrink=0.85, pad=0.01)
    return figure


def two_digits(value: float) -> str:
    """Return a positive number with two significant digits and without an exponent: 120, 0.0043."""
    return np.format_float_positional(float(f"{value:.2g}"), trim="-")


def trust_lines(bands: DesignBands | None) -> list[str]:
    """Return where no band holds, and whether the design may have no solution."""
    if bands is None:
        return []
    of = {"the field": bands.no_field, "the quantities": bands.no_quantities}
    lines = {f"no band of {what} holds: {why}" for what, why in of.items() if why}
    if bands.no_field and bands.no_field == bands.no_quantities:
        lines = {f"no band holds: {bands.no_field}"}
    if bands.unsolved >= LEAST_UNSOLVED:
        lines.add(
            f"of the designs near this one {bands.unsolved:.0%} had no accepted solution: there"
            " may be none to predict"
        )
    return sorted(lines)


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
    check_output(out, MESH_SUFFIXES)
    surrogate = courant.load(run)
    check_output(out, MESH_SUFFIXES, surrogate.step_s is not None)
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
