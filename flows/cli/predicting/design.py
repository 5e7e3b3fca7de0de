"""Predict a design that nobody has solved into files, for `courant predict RUN --design`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.markup import escape
from rich.table import Table

import courant
from courant.data.normalisation import Channel
from courant.prediction.bands import DesignBands
from courant.prediction.design import PredictedDesign
from courant.prediction.surrogate import Surrogate
from courant.report.panels.prediction import draw as draw_beside
from courant.report.wording import channel_label, plain
from flows.cli.predicting.files import (
    beside_solution,
    check_output,
    whole_file,
    write_arrays,
    write_series,
    write_state,
)
from flows.settings import load_settings
from flows.terminal import counted, say, screen
from simgen.cell_shapes import cells_of
from simgen.errors import InputError
from simgen.publish.field_plots import add_colorbar, draw_field, layer_of_cloud, spanning
from simgen.publish.figure_files import png_bytes

SUFFIXES = (".npz", ".vtu", ".pvd")
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
    say(f"{out}: {_extent(found)}")
    say(f"{picture}: {_shown(found)}")
    _print_quantities(surrogate, found)
    say(times_line(found))


def _write(out: Path, surrogate: Surrogate, found: PredictedDesign) -> None:
    if out.suffix == ".npz":
        write_arrays(out, _arrays(surrogate, found))
        return
    shape = cells_of(found.cloud)
    if found.times is None or out.suffix == ".vtu":
        write_state(shape, _fields(surrogate, found, -1), out)
        return
    states = [(time, _fields(surrogate, found, number)) for number, time in enumerate(found.times)]
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


def _fields(surrogate: Surrogate, found: PredictedDesign, number: int) -> dict[str, np.ndarray]:
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
        return draw_beside(triangles, solved, predicted, channels)
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
        say(line)


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
