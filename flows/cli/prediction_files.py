"""Predict into files, for `courant predict`: a stored case, or a design that nobody has solved.

An .npz has arrays, a .vtu one state, a .pvd all of a rollout. A file takes its name once it is
complete. Where it cannot be written, that is an error before anything is computed.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.markup import escape
from rich.table import Table

import courant
from courant.data.normalisation import Channel
from courant.prediction.bands import DesignBands, bands_of_case
from courant.prediction.design import PredictedDesign
from courant.prediction.surrogate import Surrogate
from courant.report.fields import draw_prediction
from courant.report.page import channel_label, plain
from flows.settings import load_settings
from flows.terminal import counted, print_line, screen
from simgen.cell_shapes import Shape, cells_of
from simgen.errors import InputError
from simgen.publish.export import write_collection
from simgen.publish.field_plots import add_colorbar, draw_field, layer_of_cloud, png_bytes, spanning
from simgen.store.read import StoredCase
from simgen.whole_file import npz_bytes, whole_file


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


def write_arrays(out: Path, arrays: Mapping[str, Any]) -> None:
    """Write a .npz file."""
    with writing(out) as part:
        part.write_bytes(npz_bytes(arrays))


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
    field each modelled component is an array of its own, such as `velocity.x`: nothing stands in
    for those that are not modelled.
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


def beside_solution(
    predicted: np.ndarray,
    truth: np.ndarray | None,
    channels: Sequence[Channel],
    dimension: int,
    band: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Return the predicted fields, where there are any with half-widths of their bands.

    Where there is a solution, that and the error as well.
    """
    fields = by_field(predicted, channels, dimension)
    if band is not None:
        fields |= by_field(band, channels, dimension, "_band")
    if truth is not None:
        fields |= by_field(truth, channels, dimension, "_solver")
        fields |= by_field(predicted - truth, channels, dimension, "_error")
    return fields


SUFFIXES = (".npz", ".vtu", ".pvd")


def write_prediction(
    run: str,
    case: str,
    start_s: float | None,
    steps: int | None,
    out: Path,
    dataset: str | None = None,
) -> str:
    """Predict a stored case into `out`; return a line that says what was written.

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
    times = None if begin is None else surrogate.times(begin, steps)
    bands = bands_of_case(surrogate, stored, predicted, begin)
    found = _Predicted(surrogate, stored, times, predicted, bands.field if bands else None)
    if out.suffix == ".npz":
        line = _write_npz(out, found)
    elif times is None or out.suffix == ".vtu":
        line = _write_last(out, found)
    else:
        line = _write_series(out, found)
    refusal = bands.refusal if bands else ""
    return f"{line}\nno band of the field holds: {refusal}" if refusal else line


@dataclass(frozen=True)
class _Predicted:
    """A prediction of a stored case."""

    surrogate: Surrogate
    case: StoredCase
    times: np.ndarray | None
    values: np.ndarray
    band: np.ndarray | None
    """Half-widths, shaped as the values; None where the run has none"""


def _write_npz(out: Path, found: _Predicted) -> str:
    arrays: dict[str, Any] = {}
    for column, name in enumerate(found.surrogate.channels):
        arrays[name] = found.values[..., column]
        if found.band is not None:
            arrays[f"{name}_band"] = found.band[..., column]
    steps = ""
    if found.times is not None:
        arrays["time"] = found.times
        steps = f"{counted(len(found.times), 'step')} {_span(found.times)} at "
    write_arrays(out, {"points": found.case.points, **arrays})
    return f"{out}: {steps}{counted(found.case.num_points, 'point')}"


def _write_last(out: Path, found: _Predicted) -> str:
    """Write the last predicted state, beside the solver's where the case has one at that time."""
    at_s = None if found.times is None else float(found.times[-1])
    truth = found.surrogate.problem.solution(found.case, at_s)
    write_state(cells_of(found.case), _stored_fields(found, -1, truth), out)
    beside = "" if truth is None else ", with the solver's field and the error"
    when = "" if at_s is None else f"t = {at_s:g} s at "
    return f"{out}: {when}{counted(found.case.num_points, 'point')}{beside}"


def _write_series(out: Path, found: _Predicted) -> str:
    """Write every predicted state, beside the solver's at the times that the case has."""
    assert found.times is not None
    times = found.times.tolist()
    truths = [found.surrogate.problem.solution(found.case, time) for time in times]
    states = [
        (time, _stored_fields(found, number, truth))
        for number, (time, truth) in enumerate(zip(times, truths, strict=True))
    ]
    write_series(cells_of(found.case), states, out)
    solved = sum(truth is not None for truth in truths)
    beside = f", {solved} of them with the solver's field and the error" if solved else ""
    steps = f"{counted(len(times), 'step')} {_span(found.times)}"
    return f"{out}: {steps} at {counted(found.case.num_points, 'point')}{beside}"


def _stored_fields(
    found: _Predicted, number: int, truth: np.ndarray | None
) -> dict[str, np.ndarray]:
    """Return the fields of one state; of a steady model there is only one."""
    normaliser, whole = found.surrogate.normaliser, found.times is None
    values = found.values if whole else found.values[number]
    band = found.band if whole or found.band is None else found.band[number]
    return beside_solution(values, truth, normaliser.channels, normaliser.dimension, band)


def _span(times: np.ndarray) -> str:
    return f"from {times[0]:g} to {times[-1]:g} s"


#: Share of unsolved designs near a design from which on that is said.
TOLD_UNSOLVED = 0.1
#: Share of designs near a design in a state, and not in it, from which on that is said.
LEAST_STATE = 0.05


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
    found = surrogate.predict_design(
        parameters,
        steps=steps,
        from_solver_s=from_solver_s,
        verify=verify,
        scratch=load_settings().scratch,
    )
    _write(out, surrogate, found)
    picture = out.with_suffix(".png")
    figure = draw(surrogate, found)
    with whole_file(picture) as part:
        part.write_bytes(png_bytes(figure))
    print_line(f"{out}: {_extent(found)}")
    print_line(f"{picture}: {_shown(found)}")
    _print_quantities(surrogate, found)
    print_line(times_line(found))


def _write(out: Path, surrogate: Surrogate, found: PredictedDesign) -> None:
    if out.suffix == ".npz":
        write_arrays(out, _arrays(surrogate, found))
        return
    shape = cells_of(found.cloud)
    if found.times is None or out.suffix == ".vtu":
        write_state(shape, _design_fields(surrogate, found, -1), out)
        return
    states = [
        (time, _design_fields(surrogate, found, number)) for number, time in enumerate(found.times)
    ]
    write_series(shape, states, out)


def _arrays(surrogate: Surrogate, found: PredictedDesign) -> dict[str, np.ndarray]:
    arrays = {"points": found.cloud.points}
    if found.times is not None:
        arrays["time"] = found.times
    for column, name in enumerate(surrogate.channels):
        arrays[name] = found.values[..., column]
        if found.solved is not None:
            arrays[f"{name}_solver"] = found.solved[..., column]
        if found.bands is not None and found.bands.field is not None:
            arrays[f"{name}_band"] = found.bands.field[..., column]
    return arrays


def _last(found: PredictedDesign, values: np.ndarray) -> np.ndarray:
    """Return (N, C), the steady field or the last state."""
    return values if found.times is None else values[-1]


def _last_solved(found: PredictedDesign) -> np.ndarray | None:
    return None if found.solved is None else _last(found, found.solved)


def _design_fields(
    surrogate: Surrogate, found: PredictedDesign, number: int
) -> dict[str, np.ndarray]:
    """Return the fields of one state; of a steady model there is only one."""
    band = None if found.bands is None else found.bands.field

    def state(values: np.ndarray | None) -> np.ndarray | None:
        return values if values is None or found.times is None else values[number]

    predicted, normaliser = state(found.values), surrogate.normaliser
    assert predicted is not None
    return beside_solution(
        predicted, state(found.solved), normaliser.channels, normaliser.dimension, state(band)
    )


def draw(surrogate: Surrogate, found: PredictedDesign) -> Figure:
    """Draw the prediction's components, beside the solution and the error where there is one."""
    channels = surrogate.normaliser.channels
    triangles = layer_of_cloud(found.cloud, surrogate.normaliser.dimension)
    predicted, solved = _last(found, found.values), _last_solved(found)
    if solved is not None:
        return draw_prediction(triangles, solved, predicted, channels)
    height = float(np.clip(6.0 * triangles.aspect + 0.4, 1.5, 6.0))
    figure = Figure(figsize=(7.0, height * len(channels)), layout="constrained")
    axes = figure.subplots(len(channels), 1, squeeze=False)[:, 0]
    drawn = np.unique(triangles.cell)
    for axis, channel, values in zip(axes, channels, predicted.T, strict=True):
        limits = spanning(values[drawn])
        artist = draw_field(axis, triangles, values, limits=limits, cmap="viridis")
        axis.set_title(_title(channel, found), fontsize=9, loc="left")
        add_colorbar(figure, artist, axis, shrink=0.85, pad=0.01)
    return figure


def _title(channel: Channel, found: PredictedDesign) -> str:
    when = "" if found.times is None else f" at t = {found.times[-1]:g} s"
    return f"{channel_label(channel)}, predicted{when}"


def _extent(found: PredictedDesign) -> str:
    cells = counted(found.cloud.num_points, "cell")
    if found.times is None:
        return cells
    steps = counted(len(found.times), "step")
    return f"{steps} from {found.times[0]:g} to {found.times[-1]:g} s on {cells}"


def _shown(found: PredictedDesign) -> str:
    return "the prediction" if found.solved is None else "solution, prediction and error"


def _print_quantities(surrogate: Surrogate, found: PredictedDesign) -> None:
    alone = {} if found.bands is None else found.bands.by_regression
    if found.quantities or alone:
        solved, bands = found.solved_quantities, found.bands
        table = Table("quantity", "predicted", box=None, header_style="bold")
        if bands is not None and bands.quantities:
            table.add_column(f"{bands.level:.0%} band")
        if found.fine:
            table.add_column("fine mesh")
        if alone:
            table.add_column("by regression")
        if found.fine_by_regression:
            table.add_column("that on a fine mesh")
        if solved is not None:
            table.add_column("solver")
        table.add_column("unit")
        for name, unit in _units(surrogate, found).items():
            is_predicted = name in found.quantities
            cells = [f"{found.quantities[name]:.4g}" if is_predicted else ""]
            if bands is not None and bands.quantities:
                width = bands.quantities.get(name, math.inf)
                none = "none holds" if is_predicted else ""
                cells.append(f"+- {two_digits(width)}" if math.isfinite(width) else none)
            if found.fine:
                cells.append(_between(found.fine.get(name, ())))
            if alone:
                cells.append(_value_and_width(*alone[name]) if name in alone else "")
            if found.fine_by_regression:
                cells.append(_between(found.fine_by_regression.get(name, ())))
            if solved is not None:
                cells.append(f"{solved[name]:.4g}" if name in solved else "")
            table.add_row(plain(name), *cells, escape(unit))
        screen.print(table)
    for line in [
        *(f"{plain(name)} is not predicted: {why}" for name, why in found.not_predicted.items()),
        *trust_lines(found.bands),
    ]:
        print_line(line)


def _between(ends: tuple[float, ...]) -> str:
    return " to ".join(f"{end:.3g}" for end in ends)


def _value_and_width(value: float, width: float) -> str:
    return f"{value:.4g} +- {two_digits(width)}"


def two_digits(value: float) -> str:
    """Return a positive number with two significant digits and without an exponent: 120, 0.0043."""
    return np.format_float_positional(float(f"{value:.2g}"), trim="-")


def trust_lines(bands: DesignBands | None) -> list[str]:
    """Say what the bands do not: where none holds, and whether the design has a solution."""
    if bands is None:
        return []
    of = {"the field": bands.refusal, "the quantities": bands.no_quantities}
    lines = {f"no band of {what} holds: {why}" for what, why in of.items() if why}
    if bands.refusal and bands.refusal == bands.no_quantities:
        lines = {f"no band holds: {bands.refusal}"}
    if bands.unsolved >= TOLD_UNSOLVED:
        lines.add(
            f"of the designs near this one {bands.unsolved:.0%} had no accepted solution: there"
            " may be none to predict"
        )
    return sorted(lines)


def _units(surrogate: Surrogate, found: PredictedDesign) -> dict[str, str]:
    from simgen.cases import get_family

    family = get_family(surrogate.dataset["family"])
    alone = {} if found.bands is None else found.bands.by_regression
    shown = {*found.quantities, *alone}
    return {each.name: each.unit for each in family.quantities if each.name in shown}


def times_line(found: PredictedDesign) -> str:
    """Return the time that each step took: `meshing 0.9 s, prediction 0.05 s`."""
    seconds = found.seconds
    meshing = "known geometry" if found.known_geometry else f"meshing {seconds.meshing:.2g} s"
    parts = [meshing]
    if seconds.solving:
        parts.append(f"solver {seconds.solving:.2g} s")
    return ", ".join([*parts, f"prediction {seconds.prediction:.2g} s"])


def refuse_others(**given: object) -> None:
    """Raise InputError for options that do not go with a design."""
    for option, value in given.items():
        if value is not None:
            raise InputError(f"--{option} does not go with --design; leave it out")
