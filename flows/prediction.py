"""A prediction as a file: what `courant predict` writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import courant
import simgen
from courant.data.normalisation import Channel
from courant.prediction.surrogate import Surrogate
from simgen.errors import InputError
from simgen.store.reader import StoredCase

SUFFIXES = (".npz", ".vtu")


def write_prediction(run: str, case: str, start_s: float | None, steps: int | None, out: Path) -> str:
    """Predict a stored case into `out`; a line that says what was written. `start_s` and `steps` belong to transient runs.

    .npz holds points (N, 3) m and one array per component, (N,) steady, (T, N) with time (T,) s transient; .vtu is for
    ParaView and holds the last step, with the solver's field and the difference where the case has a solution at that time.
    """
    if out.suffix not in SUFFIXES:
        raise InputError(
            f"{out} has no suffix of {', '.join(SUFFIXES)}: name the file prediction.npz or prediction.vtu"
        )
    surrogate = courant.load(run)
    stored = simgen.open_dataset(surrogate.dataset["url"], surrogate.dataset["version"])[case]
    begin = surrogate.problem.start(stored, start_s)
    predicted = surrogate.predict_case(stored, start_s=begin, steps=steps)
    times = None if begin is None else surrogate.times(begin, steps)
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == ".npz":
        return _write_npz(out, stored.points, predicted, times, surrogate.channels)
    return _write_last(out, surrogate, stored, predicted, times)


def _write_npz(
    out: Path, points: np.ndarray, predicted: np.ndarray, times: np.ndarray | None, channels: Sequence[str]
) -> str:
    arrays: dict[str, Any] = {name: predicted[..., c] for c, name in enumerate(channels)}
    if times is not None:
        arrays["time"] = times
    np.savez_compressed(out, points=points, **arrays)
    steps = "" if times is None else f"{len(times)} steps from {times[0]:g} to {times[-1]:g} s at "
    return f"{out}: {steps}{len(points)} points"


def _write_last(
    out: Path, surrogate: Surrogate, case: StoredCase, predicted: np.ndarray, times: np.ndarray | None
) -> str:
    """The last predicted state, beside the solver's where the case has one at that time."""
    last = predicted if times is None else predicted[-1]
    truth = surrogate.problem.solution(case, None if times is None else float(times[-1]))
    _write_vtu(out, case.points, last, truth, surrogate.normaliser.channels)
    beside = "" if truth is None else ", with the solver's field and the error"
    when = "" if times is None else f"t = {times[-1]:g} s at "
    return f"{out}: {when}{len(case.points)} points{beside}"


def _write_vtu(
    out: Path, points: np.ndarray, predicted: np.ndarray, truth: np.ndarray | None, channels: Sequence[Channel]
) -> None:
    import meshio

    data = by_field(predicted, channels)
    if truth is not None:
        data |= {f"{field}_solver": values for field, values in by_field(truth, channels).items()}
        data |= {f"{field}_error": values for field, values in by_field(predicted - truth, channels).items()}
    meshio.write_points_cells(str(out), points, [("vertex", np.arange(len(points))[:, None])], point_data=data)


def by_field(values: np.ndarray, channels: Sequence[Channel]) -> dict[str, np.ndarray]:
    """(N, C) -> (N,) for each field of one component, (N, 3) for each vector, as ParaView knows them.

    A component that is not modelled is zero in a vector.
    """
    fields: dict[str, np.ndarray] = {}
    for name in dict.fromkeys(channel.field for channel in channels):
        columns = [c for c, channel in enumerate(channels) if channel.field == name]
        places = ["xyz".find(channels[c].component) for c in columns]
        if -1 in places:
            fields[name] = values[:, columns[0]]
            continue
        fields[name] = np.zeros((len(values), 3), values.dtype)
        fields[name][:, places] = values[:, columns]
    return fields
