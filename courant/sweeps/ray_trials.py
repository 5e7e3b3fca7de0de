"""Train the trials of sweeps and benchmarks in processes of Ray Tune, as many at a time as fit.

Tune places processes, starts dead ones again, and passes what they report to a scheduler. It holds
no state that matters: checkpoints and results are the trials' run directories, and a trial goes on
from what it finds there. So resuming after an interruption is a new Tune run over the trials that
have not ended, whose scheduler is first given what the ended trials reported.

Whatever needs torch is imported inside functions: OpenMP reads how its threads wait when torch is
loaded, Tune gives its processes no environment of their own, and so `run_trial` sets the variable
before that.
"""

import logging
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from types import SimpleNamespace
from typing import Any, Self

from courant.ray_session import available_gpus, gpus_on_demand, ray_session, ray_storage

# isort: split
import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler, TrialScheduler

from courant.experiment import Experiment, parse_experiment
from courant.runs.directory import RunDirectory
from courant.runs.record import EpochRecord, read_records, write_status
from courant.sweeps import benchmark as plans
from courant.sweeps.search_space import label
from courant.sweeps.sweep import (
    ENDED,
    Sweep,
    Trial,
    TrialResult,
    copy_twin,
    is_done,
    read_result,
    write_table,
)
from simgen.errors import InputError
from simgen.log_lines import LogContext, log_context

OnTrial = Callable[[TrialResult], None]  # called at the start, with each epoch, and at the end
MAX_TRIAL_FAILURES = 3
RUNNING = "RUNNING"  # to Tune
EVERY_S = 2.0  # between two looks at the running trials
REDUCTION_FACTOR = 4  # of the trials at a rung, one in so many continues; so far apart are rungs
FIRST_RUNG = 9
"""The first rung is at this fraction of the epochs: with factor 4, decisions at a ninth and at four
ninths of them
"""
TUNE_ENVIRONMENT = {
    # Ctrl-C ends the sweep like everything else; Tune would swallow it and return as if all were
    # done.
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    # With this, `verbose=0` means silence; the caller shows the progress.
    "RAY_AIR_NEW_OUTPUT": "0",
    # A trial that diverges before its first validation has no result to report.
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
}
# On a busy machine Tune warns of its own steps, which nobody can do anything about, in the midst of
# the trials' lines.
logging.getLogger("ray.tune.utils.util").setLevel(logging.ERROR)


@dataclass(frozen=True)
class Share:
    """What each trial reserves of a node."""

    cpus: float = 1.0
    gpus: float = 0.0

    @classmethod
    def of(cls, experiment: Experiment, cpus: float | None, gpus: float | None) -> Self:
        """Take a whole GPU where none is asked for, there is one, and the experiment may use it.

        Take one core where none is asked for, but of a node that comes only with its GPU none: such
        nodes give all their cores to training (`num-cpus: 0`). InputError for more than any node
        has. In either case the trial would wait for ever.
        """
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]

        def has_room(cpus: float, gpus: float) -> bool:
            return any(n.get("CPU", 0) >= cpus and n.get("GPU", 0) >= gpus for n in nodes)

        if gpus is None:
            use = experiment.training.use_gpu
            gpus = 1.0 if use is True or (use == "auto" and available_gpus() >= 1) else 0.0
        # Nodes with GPUs may be there only once a trial asks for them.
        comes_on_demand = 0 < gpus <= gpus_on_demand()
        if cpus is None:
            cpus = 0.0 if comes_on_demand and not has_room(1.0, gpus) else 1.0
        if not comes_on_demand and not has_room(cpus, gpus):
            most = " or ".join(
                f"{n.get('CPU', 0):g} CPUs and {n.get('GPU', 0):g} GPUs" for n in nodes
            )
            raise InputError(
                f"a trial asks for {cpus:g} CPUs and {gpus:g} GPUs on one node, the nodes have"
                f" {most}"
            )
        return cls(cpus, gpus)


def run_sweep(
    sweep: Sweep,
    *,
    early_stopping: bool = True,
    cpus_per_trial: float | None = None,
    gpus_per_trial: float | None = None,
    on_trial: OnTrial | None = None,
) -> list[TrialResult]:
    """Run every trial that has not ended; return the results of all, which the table has as well.

    Without early stopping, trials that were stopped earlier are trained to their end. InputError
    for resources that no node has, TrainingError when a trial keeps dying or none could be
    measured.
    """
    for trial in sweep.trials:
        copy_twin(trial)
    results = {trial.number: read_result(trial) for trial in sweep.trials}
    write_table(sweep, list(results.values()))
    if on_trial is not None:
        for result in results.values():
            on_trial(result)
    waiting = [of for of in sweep.trials if not is_done(results[of.number], early_stopping)]

    def follow(result: TrialResult) -> None:
        results[result.number] = result
        write_table(sweep, list(results.values()))
        if on_trial is not None:
            on_trial(result)

    if waiting:
        scheduler = None
        # Trials that end by time have other epochs each.
        if early_stopping and sweep.experiment.training.budget_s is None:
            done = [trial for trial in sweep.trials if trial not in waiting]
            scheduler = halving(sweep.experiment.training.epochs, done)
        with ray_session(quiet=on_trial is not None):
            share = Share.of(sweep.experiment, cpus_per_trial, gpus_per_trial)
            run_trials(waiting, sweep, share, follow, scheduler=scheduler)
    return list(results.values())


def run_benchmark(
    benchmark: plans.Benchmark,
    *,
    cpus_per_trial: float | None = None,
    gpus_per_trial: float | None = None,
    on_phase: Callable[[plans.Phase], None] = lambda phase: None,
    on_trial: OnTrial | None = None,
) -> list[Trial]:
    """Train and evaluate whatever is not on record; return the trials that count.

    `on_phase` is called with each phase before its trials. InputError for a folder that holds
    another benchmark, for a budget below one epoch of a model, or for resources that no node has;
    TrainingError for a trial that keeps dying.
    """
    benchmark.write()
    with ray_session(quiet=on_trial is not None):
        share = Share.of(benchmark.base, cpus_per_trial, gpus_per_trial)
        while (phase := plans.next_phase(benchmark)) is not None:
            on_phase(phase)
            run_trials(phase.trials, benchmark, share, on_trial, count=phase.counts)
    return plans.final_trials(benchmark)


def halving(epochs: int, done: Sequence[Trial]) -> ASHAScheduler:
    """Halve successively on validation NMAE, knowing what the ended trials reported."""
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


def run_trials(
    trials: Sequence[Trial],
    of: Sweep | plans.Benchmark,
    share: Share,
    on_trial: OnTrial | None = None,
    *,
    scheduler: TrialScheduler | None = None,
    count: bool = False,
) -> None:
    """Train the trials of a sweep or benchmark to their end, with Tune's notes in its folder.

    Trials that `count` are evaluated, and no two of them share a process: a trial's peak memory
    is its own. TrainingError for a trial that did not end, however often it was started again.
    """
    from courant.training.train import TrainingError

    follower = Follower(trials, on_trial)
    trainable = tune.with_parameters(
        run_trial,
        trials={each.number: (each.experiment.model_dump_json(), each.run.url) for each in trials},
        dataset=(of.dataset_url, of.version),
        share=share,
        evaluates=count,
        logs=log_context(),
    )
    settings = [
        {"number": trial.number, **{label(key): value for key, value in trial.setting.items()}}
        for trial in trials
    ]
    names = {trial.number: trial.run.url.rsplit("/", 1)[-1] for trial in trials}
    storage, filesystem = ray_storage(of.folder)
    for name, value in TUNE_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    tuner = tune.Tuner(
        tune.with_resources(trainable, {"cpu": share.cpus, "gpu": share.gpus}),
        param_space={"trial": tune.grid_search(settings)},
        tune_config=tune.TuneConfig(
            scheduler=scheduler,
            # A new process for each trial would spend seconds on importing torch.
            reuse_actors=not count,
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
            f"{of.folder.url}: Ray Tune stopped ({_last_line(error)}); run the same again to go on"
        ) from error
    left = [each for each in trials if follower.results[each.number].state not in ENDED]
    if count:
        left = [each for each in trials if not plans.is_complete(each, evaluated=True)]
    if left:
        cause = f" ({_last_line(grid.errors[0])})" if grid.errors else ""
        raise TrainingError(
            f"{of.folder.url}: trials {', '.join(str(each.number) for each in left)} did not end"
            f"{cause}; run the same again to go on from their checkpoints"
        )


def _last_line(error: BaseException) -> str:
    """Return the last line of Ray's traceback, which names what went wrong."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]


class Follower(tune.Callback):
    """Follow the trials in the process that runs them, and keep their results up to date."""

    def __init__(self, trials: Sequence[Trial], on_trial: OnTrial | None) -> None:
        self._trials = {trial.number: trial for trial in trials}
        self.results = {number: read_result(trial) for number, trial in self._trials.items()}
        self._on_trial, self._next_s = on_trial, 0.0

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the caller's function: Tune pickles callbacks, and a display has no pickle."""
        return {**self.__dict__, "_on_trial": None}

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        found = read_result(self._trials[trial.config["trial"]["number"]])
        self._update(replace(found, state="running"))

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Read how far the running trials are, every few seconds."""
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + EVERY_S
        for number in (each.config["trial"]["number"] for each in trials if each.status == RUNNING):
            # Of the weights that the run keeps, which the last epoch's need not be.
            found = replace(read_result(self._trials[number]), state="running")
            if found != self.results[number]:
                self._update(found)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Record a trial's end; one that the scheduler stops waits, and writes no more."""
        ended = self._trials[trial.config["trial"]["number"]]
        result = read_result(ended)
        if result.state not in ENDED:
            write_status(ended.run, "stopped", epochs=result.epochs, best_epoch=result.best_epoch)
        self._update(read_result(ended))

    def _update(self, result: TrialResult) -> None:
        self.results[result.number] = result
        if self._on_trial is not None:
            self._on_trial(result)


def run_trial(
    config: dict[str, Any],
    trials: dict[int, tuple[str, str]],
    dataset: tuple[str, str],
    share: Share,
    evaluates: bool,
    logs: LogContext,
) -> None:
    """Train the trial `config["trial"]["number"]` to its end, from its newest checkpoint if any.

    `trials` holds experiment (JSON) and run URL of each, `dataset` URL and version. They were
    compared with the data when they were planned: a training that fails by itself goes on record;
    anything else, such as a machine that lacks something, is raised, and Tune tries again.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    import simgen
    from courant.runs.checkpoint import checkpoint_epochs
    from courant.training.train import TrainingError, fit
    from courant.training.workers import use_threads

    use_threads(max(1, int(share.cpus)))
    logs.apply_in_training()
    content, url = trials[config["trial"]["number"]]
    run = RunDirectory(url)

    def report_unless_last(record: EpochRecord) -> None:
        # Tune ends a trial that has reported its last epoch, which is therefore reported below.
        if record.epoch < record.epochs and record.validation_nmae is not None:
            report(record)

    # Tune's scheduler may be a new one, which needs the trial's results before the interruption.
    kept = max(checkpoint_epochs(run), default=0)
    for record in read_records(run):
        if record.epoch <= kept:
            report_unless_last(record)
    try:
        fit(
            parse_experiment(content),
            simgen.open_dataset(*dataset),
            run,
            device="cuda" if share.gpus else "cpu",
            on_epoch=report_unless_last,
        )
    except TrainingError as error:
        write_status(run, "failed", reason=str(error))
        return
    if evaluates:
        plans.evaluate_trial(run, dataset[0])
    report(read_records(run)[-1])


def report(record: EpochRecord) -> None:
    """Report to Tune, whose scheduler stops no trial for a NaN."""
    nmae = record.validation_nmae
    is_known = nmae is not None and math.isfinite(nmae)
    tune.report({**asdict(record), "validation_nmae": nmae if is_known else math.inf})
