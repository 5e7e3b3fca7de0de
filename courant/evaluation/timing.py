"""What a prediction takes beside what the solver took, each on the machine that it ran on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from courant.trained_model import TrainedModel

if TYPE_CHECKING:
    from simgen.store.reader import StoredCase


def timing(
    surrogate: TrainedModel, cases: Sequence[StoredCase], seconds: Sequence[float], solver_s: float | None
) -> dict[str, Any]:
    """The median of `seconds`, from stored arrays to numpy, beside the solver's mean time; None where no case records one."""
    prediction = float(np.median(seconds))
    device = torch.cuda.get_device_name(surrogate.device) if surrogate.device.type == "cuda" else "CPU"
    return {
        "prediction_s": prediction,
        "prediction_device": device,
        "prediction_threads": torch.get_num_threads(),
        "prediction_total_s": sum(seconds),
        "solver_s": solver_s,
        "solver_host": str(cases[0].provenance.get("host_class", "unknown")),
        "speed_up": solver_s / prediction if solver_s else None,
    }
