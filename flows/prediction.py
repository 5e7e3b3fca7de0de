"""A prediction as a file: what `courant predict` writes."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import courant
import simgen
from courant.data.normalisation import Channel
from courant.data.steady import read_solution
from courant.data.trajectories import read_states
from courant.steady_surrogate import SteadySurrogate
from courant.surrogate import Surrogate
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
    if isinstance(surrogate, SteadySurrogate):
        if start_s is not None or steps is not None:
            raise InputError(f"{run} is a steady model: leave out --start and --steps")
        return _write_steady(surrogate, stored, out)
    return _write_rollout(surrogate, stored, 100.0 if start_s is None else start_s, steps or 10, out)


def _write_steady(surrogate: SteadySurrogate, case: StoredCase, out: Path) -> str:
    predicted, points = surrogate.predict_case(case), case.points
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == ".npz":
        np.savez_compressed(out, points=points, **_by_component(predicted, surrogate.channels))
        return f"{out}: {len(points)} points"
    truth = read_solution(case, surrogate.normaliser)
    _write_vtu(out, points, predicted, truth, surrogate.normaliser.channels)
    return f"{out}: {len(points)} points, with the solver's field and the error"


def _write_rollout(surrogate: Surrogate, case: StoredCase, start_s: float, steps: int, out: Path) -> str:
    predicted = surrogate.predict_case(case, start_s=start_s, steps=steps)
    times, points = surrogate.times(start_s, steps), case.points
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == ".npz":
        np.savez_compressed(out, points=points, time=times, **_by_component(predicted, surrogate.channels))
        return f"{out}: {steps} steps from {times[0]:g} to {times[-1]:g} s at {len(points)} points"
    channels, truth = surrogate.normaliser.channels, None
    with contextlib.suppress(InputError):
        frame = surrogate.snapshot(case, float(times[-1]))
        truth = read_states(case, channels, slice(frame, frame + 1))[0]
    _write_vtu(out, points, predicted[-1], truth, channels)
    beside = "" if truth is None else ", with the solver's field and the error"
    return f"{out}: t = {times[-1]:g} s at {len(points)} points{beside}"


def _write_vtu(
    out: Path, points: np.ndarray, predicted: np.ndarray, truth: np.ndarray | None, channels: Sequence[Channel]
) -> None:
    import meshio

    data = by_field(predicted, channels)
    if truth is not None:
        data |= {f"{field}_solver": values for field, values in by_field(truth, channels).items()}
        data |= {f"{field}_error": values for field, values in by_field(predicted - truth, channels).items()}
    meshio.write_points_cells(str(out), points, [("vertex", np.arange(len(points))[:, None])], point_data=data)


def _by_component(values: np.ndarray, channels: Sequence[str]) -> dict[str, Any]:
    return {name: values[..., c] for c, name in enumerate(channels)}


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
