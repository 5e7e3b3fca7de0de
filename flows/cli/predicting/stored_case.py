"""Predict a stored case into a file, for `courant predict`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import courant
from courant.prediction.bands import bands_of_case
from courant.prediction.surrogate import Surrogate
from flows.cli.predicting.files import (
    beside_solution,
    check_output,
    write_arrays,
    write_series,
    write_state,
)
from flows.terminal import counted
from simgen.cell_shapes import cells_of
from simgen.store.access.stored_case import StoredCase

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
    write_state(cells_of(found.case), _fields(found, -1, truth), out)
    beside = "" if truth is None else ", with the solver's field and the error"
    when = "" if at_s is None else f"t = {at_s:g} s at "
    return f"{out}: {when}{counted(found.case.num_points, 'point')}{beside}"


def _write_series(out: Path, found: _Predicted) -> str:
    """Write every predicted state, beside the solver's at the times that the case has."""
    assert found.times is not None
    times = found.times.tolist()
    truths = [found.surrogate.problem.solution(found.case, time) for time in times]
    states = [
        (time, _fields(found, number, truth))
        for number, (time, truth) in enumerate(zip(times, truths, strict=True))
    ]
    write_series(cells_of(found.case), states, out)
    solved = sum(truth is not None for truth in truths)
    beside = f", {solved} of them with the solver's field and the error" if solved else ""
    steps = f"{counted(len(times), 'step')} {_span(found.times)}"
    return f"{out}: {steps} at {counted(found.case.num_points, 'point')}{beside}"


def _fields(found: _Predicted, number: int, truth: np.ndarray | None) -> dict[str, np.ndarray]:
    """Return the fields of one state; of a steady model there is only one."""
    normaliser, whole = found.surrogate.normaliser, found.times is None
    values = found.values if whole else found.values[number]
    band = found.band if whole or found.band is None else found.band[number]
    return beside_solution(values, truth, normaliser.channels, normaliser.dimension, band)


def _span(times: np.ndarray) -> str:
    return f"from {times[0]:g} to {times[-1]:g} s"
