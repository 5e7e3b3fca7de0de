"""Train trials in processes of Ray Tune: as many at a time as fit, dead ones started again.

Tune places processes and tells a scheduler what they report. It holds no state that matters:
checkpoints and results are the trials' run directories, and a trial goes on from what it finds
there.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from courant.ray_session import available_gpus, gpus_on_demand, ray_storage

# isort: split
import ray
from ray import tune
from ray.tune.schedulers import TrialScheduler

from courant.experiment import Experiment
from courant.runs.directory import RunDirectory
from courant.runs.record import write_status
from courant.runs.trackers import end_stopped
from courant.sweeps.ray_trial import run_trial
from courant.sweeps.search_space import label
from courant.sweeps.sweep import ENDED, Trial, TrialResult, read_result
from courant.training.loop import TrainingError
from simgen.errors import InputError
from simgen.log_lines import carried

OnTrial = Callable[[TrialResult], None]
MAX_TRIAL_FAILURES = 3

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
    def of(cls, experiment: Experiment, cpus: float | None, gpus: float | None) -> Share:
        """Take a whole GPU where none is asked for, there is one, and the experiment may use it.

        Take one core where none is asked for, but of a node that comes only with its GPU none: such
        nodes give all their cores to training (`num-cpus: 0`), and a trial would wait for ever.
        InputError for more than any node has: the trial would wait for ever.
        """
        if gpus is None:
            use = experiment.training.use_gpu
            gpus = 1.0 if use is True or (use == "auto" and available_gpus() >= 1) else 0.0
        if cpus is None:
            cpus = 0.0 if 0 < gpus <= gpus_on_demand() and not _has_room(1.0, gpus) else 1.0
        check_resources(cpus, gpus)
        return cls(cpus, gpus)


def run_trials(
    trials: Sequence[Trial],
    folder: RunDirectory,
    dataset: tuple[str, str],
    share: Share,
    follower: Follower,
    *,
    scheduler: TrialScheduler | None = None,
    own_processes: bool = False,
) -> None:
    """Train the trials to their end on a dataset (URL and version), with Tune's notes in `folder`.

    With `own_processes` no two trials share a process, and a trial's peak memory is its own.
    Raises TrainingError for a trial that did not end, however often it was started again.
    """
    trainable = tune.with_parameters(
        run_trial,
        trials={
            trial.number: (trial.experiment.model_dump_json(), trial.run.url) for trial in trials
        },
        dataset=dataset,
        cpus=share.cpus,
        gpus=share.gpus,
        logs=carried(),
    )
    settings = [
        {"number": trial.number, **{label(key): value for key, value in trial.setting.items()}}
        for trial in trials
    ]
    names = {trial.number: trial.run.url.rsplit("/", 1)[-1] for trial in trials}
    storage, filesystem = ray_storage(folder)
    for name, value in TUNE_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    tuner = tune.Tuner(
        tune.with_resources(trainable, {"cpu": share.cpus, "gpu": share.gpus}),
        param_space={"trial": tune.grid_search(settings)},
        tune_config=tune.TuneConfig(
            scheduler=scheduler,
            # A new process for each trial would spend seconds on importing torch.
            reuse_actors=not own_processes,
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
            f"{folder.url}: Ray Tune stopped ({last_line(error)}); run the same again to go on"
        ) from error
    follower.write()
    _check_ended(trials, folder, follower, [last_line(error) for error in grid.errors])


class Follower(tune.Callback):
    """Follow the trials in the process that runs them, and keep their results up to date."""

    def __init__(self, trials: Sequence[Trial], on_trial: OnTrial | None) -> None:
        self._trials = {trial.number: trial for trial in trials}
        self.results = {number: read_result(trial) for number, trial in self._trials.items()}
        self._on_trial = on_trial

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the display.

        Tune pickles its settings with the callbacks, and never reads them again here; a live
        display cannot be pickled.
        """
        return {**self.__dict__, "_on_trial": None}

    def write(self) -> None:
        """Write down the results so far; called as trials end."""

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        number = trial.config["trial"]["number"]
        if result.get("validation_nmae") is not None:
            # The figures of the weights that the run keeps, which the last epoch's need not be.
            found = replace(read_result(self._trials[number]), state="running")
            self._update(replace(found, epochs=result["epoch"]))

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Handle a trial's end, also for one that the scheduler stops.

        The process of a stopped trial waits at a report and writes nothing any more.
        """
        ended = self._trials[trial.config["trial"]["number"]]
        result = read_result(ended)
        if result.state not in ENDED:
            write_status(ended.run, "stopped", epochs=result.epochs, best_epoch=result.best_epoch)
            end_stopped(ended.run)
        self._update(read_result(ended))
        self.write()

    def _update(self, result: TrialResult) -> None:
        self.results[result.number] = result
        if self._on_trial is not None:
            self._on_trial(result)


def check_resources(cpus: float, gpus: float) -> None:
    """Reject a trial that no node has room for; it would wait for ever.

    Nodes with GPUs may be there only once a trial asks for them.
    """
    if 0 < gpus <= gpus_on_demand():
        return
    if not _has_room(cpus, gpus):
        nodes = _alive()
        most = " or ".join(
            f"{node.get('CPU', 0):g} CPUs and {node.get('GPU', 0):g} GPUs" for node in nodes
        )
        raise InputError(
            f"a trial asks for {cpus:g} CPUs and {gpus:g} GPUs on one node, the nodes have {most}"
        )


def _alive() -> list[dict[str, float]]:
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _has_room(cpus: float, gpus: float) -> bool:
    """Tell whether a node that is there could ever take a trial."""
    return any(node.get("CPU", 0) >= cpus and node.get("GPU", 0) >= gpus for node in _alive())


def _check_ended(
    trials: Sequence[Trial], folder: RunDirectory, follower: Follower, errors: Sequence[str]
) -> None:
    """Raise TrainingError for trials that did not end, with the first of Tune's errors."""
    numbers = [trial.number for trial in trials]
    unfinished = [number for number in numbers if follower.results[number].state not in ENDED]
    if unfinished:
        raise TrainingError(
            f"{folder.url}: trials {', '.join(map(str, unfinished))} did not"
            f" end{f' ({errors[0]})' if errors else ''}; run the same again to go on from"
            " their checkpoints"
        )


def last_line(error: BaseException) -> str:
    """Return the last line of Ray's traceback, which says what went wrong."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
