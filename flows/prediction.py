"""A prediction as a file: what `courant predict` writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import courant
import simgen
from simgen.errors import InputError

SUFFIXES = (".npz", ".vtu")


def write_prediction(run: str, case: str, start_s: float, steps: int, out: Path) -> str:
    """Roll the run out from a stored case's snapshot into `out`; a line that says what was written.

    .npz holds points (N, 3) m, time (T,) s and one array (T, N) per component; .vtu the last step, for ParaView.
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

    data = {name: predicted[-1, :, c] for c, name in enumerate(surrogate.channels)}
    meshio.write_points_cells(str(out), points, [("vertex", np.arange(len(points))[:, None])], point_data=data)
    return f"{out}: t = {times[-1]:g} s at {len(points)} points"
