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
from courant.data.trajectories import read_states
from simgen.errors import InputError

SUFFIXES = (".npz", ".vtu")


def write_prediction(run: str, case: str, start_s: float, steps: int, out: Path) -> str:
    """Roll the run out from a stored case's snapshot into `out`; a line that says what was written.

    .npz holds points (N, 3) m, time (T,) s and one array (T, N) per component; .vtu the last step, for ParaView, with the
    solver's field and the difference where the case has a snapshot at that time.
    """
    if out.suffix not in SUFFIXES:
        raise InputError(
            f"{out} has no suffix of {', '.join(SUFFIXES)}: name the file prediction.npz or prediction.vtu"
        )
    surrogate = courant.load(run)
    stored = simgen.open_dataset(surrogate.dataset["url"], surrogate.dataset["version"])[case]
    predicted = surrogate.predict_case(stored, start_s=start_s, steps=steps)
    times, points = surrogate.times(start_s, steps), stored.points
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == ".npz":
        components: dict[str, Any] = {name: predicted[..., c] for c, name in enumerate(surrogate.channels)}
        np.savez_compressed(out, points=points, time=times, **components)
        return f"{out}: {steps} steps from {times[0]:g} to {times[-1]:g} s at {len(points)} points"
    import meshio

    channels = surrogate.normaliser.channels
    data = _by_field(predicted[-1], channels)
    beside = ""
    with contextlib.suppress(InputError):
        frame = surrogate.snapshot(stored, float(times[-1]))
        truth = read_states(stored, channels, slice(frame, frame + 1))[0]
        data |= {f"{field}_solver": values for field, values in _by_field(truth, channels).items()}
        data |= {f"{field}_error": values for field, values in _by_field(predicted[-1] - truth, channels).items()}
        beside = ", with the solver's field and the error"
    meshio.write_points_cells(str(out), points, [("vertex", np.arange(len(points))[:, None])], point_data=data)
    return f"{out}: t = {times[-1]:g} s at {len(points)} points{beside}"


def _by_field(values: np.ndarray, channels: Sequence[Channel]) -> dict[str, np.ndarray]:
    """(N, C) -> (N,) for each field of one component, (N, 3) for each vector, as ParaView knows them."""
    fields: dict[str, np.ndarray] = {}
    for name in dict.fromkeys(channel.field for channel in channels):
        columns = [c for c, channel in enumerate(channels) if channel.field == name]
        field = values[:, columns]
        fields[name] = field[:, 0] if len(columns) == 1 else np.pad(field, ((0, 0), (0, 3 - len(columns))))
    return fields
