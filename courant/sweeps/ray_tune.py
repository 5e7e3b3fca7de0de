"""Run sweeps on Ray Tune, with as many parallel trials as fit and early stopping (ASHA).

The trials' run directories hold the state. So resuming after an interruption is a new Tune run over
the trials that have not ended, whose scheduler is first told what the ended trials reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

from courant.ray_session import ray_session

# isort: split
from ray.tune.schedulers import ASHAScheduler

from courant.runs.record import read_records
from courant.sweeps.ray_trials import Follower, OnTrial, Share, run_trials
from courant.sweeps.sweep import Sweep, Trial, TrialResult, describe_sweep, is_done, write_table

REDUCTION_FACTOR = 4
"""About one in so many of the trials that reach a rung continues; rungs are this factor apart"""
FIRST_RUNG = 9
"""The first rung is at this fraction of the epochs: with factor 4, decisions at a ninth and at four
ninths of them
"""


def run_sweep(
    sweep: Sweep,
    *,
    early_stopping: bool = True,
    cpus_per_trial: float | None = None,
    gpus_per_trial: float | None = None,
    on_trial: OnTrial | None = None,
) -> list[TrialResult]:
    """Run every trial that has not ended; return the results of all.

    The table is in the sweep's folder as well. `gpus_per_trial` may be a fraction, several trials
    then share a GPU; None takes a whole one where the cluster has any and the experiment's
    `use_gpu` allows it. `on_trial` is called in this process after each validation and when a trial
    ends. Without early stopping, trials that were stopped earlier are trained to their end.

    Raises InputError for resources that no node has, TrainingError when a trial keeps dying or none
    could be measured.
    """
    describe_sweep(sweep)
    follower = _TableWriter(sweep, on_trial)
    results = follower.results
    done = [trial for trial in sweep.trials if is_done(results[trial.number], early_stopping)]
    waiting = [trial for trial in sweep.trials if trial not in done]
    follower.write()
    if waiting:
        with ray_session(quiet=on_trial is not None):
            run_trials(
                waiting,
                sweep.folder,
                (sweep.dataset_url, sweep.version),
                Share.of(sweep.experiment, cpus_per_trial, gpus_per_trial),
                follower,
                scheduler=_asha(sweep, done) if early_stopping else None,
            )
    return [results[trial.number] for trial in sweep.trials]


def _asha(sweep: Sweep, done: Sequence[Trial]) -> ASHAScheduler:
    """Halve successively on validation NMAE, knowing what the ended trials reported."""
    epochs = sweep.experiment.training.epochs
    scheduler = ASHAScheduler(
        time_attr="epoch",
        metric="validation_nmae",
        mode="min",
        max_t=epochs,
        grace_period=max(1, epochs // FIRST_RUNG),
        reduction_factor=REDUCTION_FACTOR,
    )
    for trial in done:
        # The scheduler reads only a trial's id.
        known = SimpleNamespace(trial_id=f"done-{trial.number}")
        scheduler.on_trial_add(None, known)
        for record in read_records(trial.run):
            if record.validation_nmae is not None:
                scheduler.on_trial_result(
                    None, known, {"epoch": record.epoch, "validation_nmae": record.validation_nmae}
                )
    return scheduler


class _TableWriter(Follower):
    """Keep the sweep's table up to date."""

    def __init__(self, sweep: Sweep, on_trial: OnTrial | None) -> None:
        super().__init__(sweep.trials, on_trial)
        self._sweep = sweep

    def write(self) -> None:
        write_table(self._sweep, [self.results[trial.number] for trial in self._sweep.trials])
