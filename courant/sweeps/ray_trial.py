"""Run one trial in a process of Ray Tune: the plain training loop, which reports each validation.

torch is imported inside the function: OpenMP reads how its threads wait when torch is loaded, Tune
gives its processes no environment of their own, and so the variable has to be set in the process
before that.
"""

from __future__ import annotations

import math
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ray import tune

if TYPE_CHECKING:
    from courant.runs.record import EpochRecord
    from simgen.log_lines import Carried


def run_trial(
    config: dict[str, Any],
    trials: dict[int, tuple[str, str]],
    dataset: tuple[str, str],
    cpus: float,
    gpus: float,
    logs: Carried,
) -> None:
    """Train the trial `config["trial"]["number"]` to its end, from its newest checkpoint if any.

    `trials` holds experiment (JSON) and run URL of each, `dataset` URL and version. They were
    compared with the data when they were planned: a training that fails by itself goes on record;
    anything else, such as a machine that lacks something, is raised, and Tune tries again.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    import simgen
    from courant.cpu_arithmetic import use_threads
    from courant.experiment import parse_experiment
    from courant.runs.checkpoint import checkpoint_epochs
    from courant.runs.directory import RunDirectory
    from courant.runs.record import read_records, write_status
    from courant.training.loop import TrainingError, fit

    use_threads(max(1, int(cpus)))
    logs.take_up_training()
    content, url = trials[config["trial"]["number"]]
    experiment, run = parse_experiment(content), RunDirectory(url)
    # Tune's scheduler may be a new one; it is told the trial's results before the interruption.
    kept = max(checkpoint_epochs(run), default=0)
    earlier = [record for record in read_records(run) if record.epoch <= kept]
    for record in earlier:
        report_unless_last(record)
    try:
        fit(
            experiment,
            simgen.open_dataset(*dataset),
            run,
            device="cuda" if gpus else "cpu",
            on_epoch=report_unless_last,
        )
    except TrainingError as error:
        write_status(run, "failed", reason=str(error))
        return
    report(read_records(run)[-1])


def report_unless_last(record: EpochRecord) -> None:
    """Report an epoch unless it is the last, which is reported when the run is closed.

    Tune ends a trial that has reported its last epoch.
    """
    if record.epoch < record.epochs and record.validation_nmae is not None:
        report(record)


def report(record: EpochRecord) -> None:
    """Report to Tune, whose scheduler stops no trial for a NaN."""
    nmae = record.validation_nmae
    is_known = nmae is not None and math.isfinite(nmae)
    tune.report({**asdict(record), "validation_nmae": nmae if is_known else math.inf})
