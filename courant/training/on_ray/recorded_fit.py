"""Run a fit in a worker of Ray, however that was started."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import simgen
from courant.experiment import parse_experiment
from courant.runs.directory import RunDirectory
from courant.runs.record import EpochRecord, write_status
from courant.runs.standing import InUseError
from courant.training.loop import TrainingError, fit
from simgen.errors import InputError


def fit_on_record(
    config: dict[str, Any],
    device: torch.device,
    is_first: bool,
    on_checkpoint: Callable[[EpochRecord], None] | None = None,
) -> None:
    """Run the whole fit; `is_first` of several workers writes the record.

    Errors that no retry can cure go on record and end the run; Ray retries the rest.
    """
    config["logs"].take_up_training()
    run = RunDirectory(config["run_url"])
    try:
        fit(
            parse_experiment(config["experiment"]),
            simgen.open_dataset(config["dataset_url"], config["version"]),
            run,
            device=device,
            on_checkpoint=on_checkpoint,
        )
    except InUseError:
        raise  # the record is that of the other process
    except (InputError, TrainingError) as error:
        if is_first:
            write_status(run, "failed", reason=str(error))
