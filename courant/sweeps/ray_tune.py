"""Sweeps on Ray Tune: as many trials at a time as the cluster has room for, those that fall behind stopped early (ASHA).

Tune places processes, compares trials and starts dead ones again. It holds no state that matters: checkpoints and results are
the trials' run directories, so going on after an interruption is a new Tune run over what has not ended, whose
scheduler is first told what the ended trials reported.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler

from courant.runs.record import read_records, write_status
from courant.sweeps.ray_trial import run_trial
from courant.sweeps.sweep import (
    ENDED,
    Sweep,
    Trial,
    TrialResult,
    describe_sweep,
    is_done,
    read_result,
    write_table,
)
from courant.training.errors import TrainingError
from courant.training.ray_session import ray_session, ray_storage
from simgen.errors import InputError

OnTrial = Callable[[TrialResult], None]
MAX_TRIAL_FAILURES = 3
REDUCTION_FACTOR = 4
"""Of the trials that reach a rung, about one in so many goes on; rungs lie this factor apart."""
FIRST_RUNG = 9
"""The first rung is at one in so many of the epochs: with factor 4, decisions at a ninth and at four ninths of them."""

TUNE_ENVIRONMENT = {
    # Ctrl-C ends the sweep, as it ends everything else; Tune would swallow it and return as if all were done.
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    # With this, `verbose=0` means silence; the caller shows the progress.
    "RAY_AIR_NEW_OUTPUT": "0",
    # A trial that diverges before its first validation has none to report.
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
}


def run_sweep(
    sweep: Sweep,
    *,
    early_stopping: bool = True,
    cpus_per_trial: float = 1.0,
    gpus_per_trial: float | None = None,
    on_trial: OnTrial | None = None,
) -> list[TrialResult]:
    """Run every trial that has not ended, and return all of them; the table is in the sweep's folder as well.

    `gpus_per_trial` may be a fraction, several trials then share a GPU; None takes a whole one where the cluster has any
    and the experiment's `use_gpu` allows it. `on_trial` is called in this process after each validation and when a trial ends.
    Without early stopping, trials that were stopped earlier go on to their end.

    Raises InputError for resources that no node has, TrainingError when a trial keeps dying or none could be measured.
    """
    describe_sweep(sweep)
    results = {trial.number: read_result(trial) for trial in sweep.trials}
    done = [trial for trial in sweep.trials if is_done(results[trial.number], early_stopping)]
    waiting = [trial for trial in sweep.trials if trial not in done]
    follower = _Follower(sweep, results, on_trial)
    follower.write()
    if waiting:
        with ray_session(quiet=on_trial is not None):
            gpus = _gpus(sweep, gpus_per_trial)
            _check_resources(cpus_per_trial, gpus)
            scheduler = _asha(sweep, done) if early_stopping else None
            errors = _tune(sweep, waiting, scheduler, cpus_per_trial, gpus, follower)
        follower.write()
        unfinished = [trial.number for trial in waiting if results[trial.number].state not in ENDED]
        if unfinished:
            raise TrainingError(
                f"{sweep.folder.url}: trials {', '.join(map(str, unfinished))} did not end"
                f"{f' ({errors[0]})' if errors else ''}; run the sweep again to go on from their checkpoints"
            )
    return [results[trial.number] for trial in sweep.trials]


def _tune(
    sweep: Sweep,
    trials: Sequence[Trial],
    scheduler: ASHAScheduler | None,
    cpus: float,
    gpus: float,
    follower: _Follower,
) -> list[str]:
    """Run the trials; the first line of each error that outlasted the retries."""
    trainable = tune.with_parameters(
        run_trial,
        trials={trial.number: (trial.experiment.model_dump_json(), trial.run.url) for trial in trials},
        dataset=(sweep.dataset_url, sweep.version), cpus=cpus, gpus=gpus,
    )  # fmt: skip
    settings = [
        {"number": trial.number, **{key.partition(".")[2]: value for key, value in trial.setting.items()}}
        for trial in trials
    ]
    names = {trial.number: trial.run.url.rsplit("/", 1)[-1] for trial in trials}
    storage, filesystem = ray_storage(sweep.folder)
    for name, value in TUNE_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    tuner = tune.Tuner(
        tune.with_resources(trainable, {"cpu": cpus, "gpu": gpus}),
        param_space={"trial": tune.grid_search(settings)},
        tune_config=tune.TuneConfig(
            scheduler=scheduler,
            # A new process for each trial would spend seconds on importing torch.
            reuse_actors=True,
            trial_name_creator=lambda trial: names[trial.config["trial"]["number"]],
            trial_dirname_creator=lambda trial: names[trial.config["trial"]["number"]],
        ),
        run_config=tune.RunConfig(
            name="ray",
            storage_path=storage,
            storage_filesystem=filesystem,
            failure_config=tune.FailureConfig(max_failures=MAX_TRIAL_FAILURES),
            callbacks=[follower],
            verbose=0,
        ),
    )
    try:
        grid = tuner.fit()
    except tune.TuneError as error:
        raise TrainingError(
            f"{sweep.folder.url}: Ray Tune stopped ({_last_line(error)}); run the sweep again to go on"
        ) from error
    return [_last_line(error) for error in grid.errors]


def _last_line(error: BaseException) -> str:
    """Ray's errors are tracebacks; what went wrong stands last."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]


def _asha(sweep: Sweep, done: Sequence[Trial]) -> ASHAScheduler:
    """Successive halving on validation NMAE, which knows what the ended trials reported."""
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
        # Of a trial, the scheduler reads nothing but its id.
        known = SimpleNamespace(trial_id=f"done-{trial.number}")
        scheduler.on_trial_add(None, known)
        for record in read_records(trial.run):
            if record.validation_nmae is not None:
                scheduler.on_trial_result(
                    None, known, {"epoch": record.epoch, "validation_nmae": record.validation_nmae}
                )
    return scheduler


class _Follower(tune.Callback):
    """Keeps the table up to date in the process that runs the sweep."""

    def __init__(self, sweep: Sweep, results: dict[int, TrialResult], on_trial: OnTrial | None) -> None:
        self._sweep, self._results, self._on_trial = sweep, results, on_trial

    def __reduce__(self) -> tuple[Any, ...]:
        """Tune writes its settings down, callbacks with them, and never reads them again here; a live display cannot be."""
        return (_Follower, (self._sweep, self._results, None))

    def write(self) -> None:
        write_table(self._sweep, [self._results[trial.number] for trial in self._sweep.trials])

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        number = trial.config["trial"]["number"]
        if result.get("validation_nmae") is not None:
            self._update(
                replace(self._results[number], state="running", epochs=result["epoch"], nmae=result["validation_nmae"])
            )

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Also called for a trial that the scheduler stops; its process waits at a report and writes nothing any more."""
        ended = self._sweep.trials[trial.config["trial"]["number"] - 1]
        result = read_result(ended)
        if result.state not in ENDED:
            write_status(ended.run, "stopped", epochs=result.epochs, best_epoch=result.best_epoch)
        self._update(read_result(ended))
        self.write()

    def _update(self, result: TrialResult) -> None:
        self._results[result.number] = result
        if self._on_trial is not None:
            self._on_trial(result)


def _gpus(sweep: Sweep, wanted: float | None) -> float:
    if wanted is not None:
        return wanted
    use = sweep.experiment.training.use_gpu
    return 1.0 if use is True or (use == "auto" and ray.cluster_resources().get("GPU", 0) >= 1) else 0.0


def _check_resources(cpus: float, gpus: float) -> None:
    """A trial that no node has room for would wait for ever."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(node.get("CPU", 0) >= cpus and node.get("GPU", 0) >= gpus for node in nodes):
        most = " or ".join(f"{node.get('CPU', 0):g} CPUs and {node.get('GPU', 0):g} GPUs" for node in nodes)
        raise InputError(f"a trial asks for {cpus:g} CPUs and {gpus:g} GPUs on one node, the nodes have {most}")
