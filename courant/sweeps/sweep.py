"""Plan a sweep: settings of a space as experiments with run directories, and a table of results.

    <runs>/<experiment>-<space>-<hash>/
        trials/<run>/                 run directories, as `courant train` makes them
        trials.csv  trials.json       the table, rewritten with each epoch of a trial
        best.json                     the best trial's experiment, for `courant train --experiment`
        ray/                          Ray Tune's notes, TensorBoard event files among them

The run directories hold the state: a sweep that is run again resumes what has not finished. The
hash does not include the number of trials, so a sweep can be extended with more of them.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from courant.experiment import MACHINE, MAX_NAME, Experiment
from courant.runs import record
from courant.runs.directory import RunDirectory
from courant.runs.summary import RunSummary
from courant.runs.weights import WEIGHTS
from courant.sweeps.search_space import BASELINE, CHOICE, SearchSpace, Setting, Value, label
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.read import Dataset

TrialState = Literal["waiting", "running", "finished", "stopped", "failed"]
"""`stopped` early, because others were better; `failed` in a way that no retry can cure"""
ENDED = ("finished", "stopped", "failed")
MAX_TRIALS = 10_000
BEST, TABLE, TRIALS = "best.json", "trials.json", "trials"


@dataclass(frozen=True)
class Trial:
    """One setting with one seed: an experiment and its run directory."""

    number: int  # from 1
    setting: Setting
    experiment: Experiment
    run: RunDirectory
    twin: RunDirectory | None = None
    """Where a training of the same experiment under the recipe's own name would be"""


@dataclass(frozen=True)
class TrialResult:
    """A row of the table."""

    number: int
    state: TrialState
    nmae: float | None  # of validation, by the weights that are kept; None before the first
    best_epoch: int | None
    epochs: int  # trained so far
    seconds: float  # of training
    seed: int
    setting: Setting
    run: str  # URL of the run directory
    reason: str = ""  # of a failed trial
    left_s: float | None = None  # estimated, for the remaining epochs

    def line(self) -> str:
        """Format for a log: `trial 3  num_anchors 32  stopped after 5 epochs  NMAE 0.301`."""
        given = "  ".join(f"{label(key)} {value}" for key, value in self.setting.items())
        measured = f"NMAE {self.nmae:.3f}" if self.nmae is not None else self.reason
        return f"trial {self.number}  {given}  {self.state} after {self.epochs} epochs  {measured}"


@dataclass(frozen=True)
class Sweep:
    """The trials, their order, and the folder where they are kept."""

    folder: RunDirectory
    space: SearchSpace  # With the choices that apply to the experiment and fit the dataset
    left_out: tuple[str, ...]  # A line for each of the other choices
    experiment: Experiment  # the baseline
    dataset_url: str
    version: str
    seed: int
    trials: tuple[Trial, ...]


def sweep_of(run: RunDirectory) -> RunDirectory | None:
    """Return the folder of the sweep that a run is a trial of; None for any other run."""
    folder, _, trials = run.url.rstrip("/").rpartition("/")[0].rpartition("/")
    sweep = RunDirectory(folder)
    return sweep if trials == TRIALS and sweep.exists(TABLE) else None


def plan_sweep(
    experiment: Experiment,
    dataset: Dataset,
    space: SearchSpace,
    num_trials: int | None,
    runs_url: str,
    seed: int = 42,
) -> Sweep:
    """Plan the first `num_trials` settings of a space (None: each once) around an experiment.

    A setting that comes a second time takes the experiment's training seed + 1, and so on. Raises
    InputError for keys, values or a dataset that do not fit, before anything is written.
    """
    # It imports torch, which whoever only reads a sweep does not need.
    from courant.problems import open_problem

    space, left_out = space.applied_to(experiment, lambda made: open_problem(made, dataset))
    wanted = num_trials or space.count(experiment)
    if wanted is None:
        raise InputError(f"space {space.name} draws its values: give their number, --trials 12")
    if not 1 <= wanted <= MAX_TRIALS:
        raise InputError(f"{wanted} trials; a sweep has 1 to {MAX_TRIALS}")
    dataset.required("validation")  # by which trials are judged
    around = experiment.model_dump(mode="json", exclude=MACHINE)
    varied = space.model_dump(mode="json", exclude={"about"})
    content = json.dumps([around, varied, dataset.snapshot_id, seed], sort_keys=True)
    digest = hashlib.sha256(content.encode()).hexdigest()[:10]
    folder = RunDirectory(runs_url) / f"{experiment.name}-{space.name}-{digest}"
    trials: list[Trial] = []
    seen: list[Setting] = []
    for number, setting in enumerate(itertools.islice(space.settings(experiment, seed), wanted), 1):
        name = f"{experiment.name}-trial-{number:02d}"
        if (choice := setting.get(CHOICE, BASELINE)) != BASELINE:
            name += f"-{re.sub('[^a-z0-9]+', '-', str(choice).lower())}"
        training = experiment.training
        made = space.apply(experiment, setting).derive(
            name=name[:MAX_NAME].rstrip("-"),
            training={
                # A trial may be stopped at any validation, and its weights are kept.
                "checkpoint_every": training.validate_every,
                "seed": training.seed + seen.count(setting),
            },
        )
        open_problem(made, dataset)
        run = folder / TRIALS / made.run_id(dataset.snapshot_id)
        usual = {"checkpoint_every": training.checkpoint_every}
        twin = made.derive(name=experiment.name, training=usual).run_id(dataset.snapshot_id)
        trials.append(Trial(number, setting, made, run, RunDirectory(runs_url) / twin))
        seen.append(setting)
    return Sweep(
        folder, space, left_out, experiment, dataset.url, dataset.version, seed, tuple(trials)
    )


def read_result(trial: Trial) -> TrialResult:
    """Read the state of a trial from its run directory."""
    status = record.read_status(trial.run) if trial.run.exists(record.STATUS) else None
    records = record.read_records(trial.run)
    best = record.best_record(records)
    nmae = best.validation_nmae if best else None
    return TrialResult(
        number=trial.number,
        state=status.state if status else "waiting",
        nmae=nmae if nmae is not None and math.isfinite(nmae) else None,
        best_epoch=best.epoch if best else None,
        epochs=records[-1].epoch if records else 0,
        seconds=sum(record.seconds for record in records),
        seed=trial.experiment.training.seed,
        setting=trial.setting,
        run=trial.run.url,
        reason=status.reason if status else "",
        left_s=records[-1].eta_s if records else None,
    )


def copy_twin(trial: Trial) -> None:
    """Make the finished training of the same experiment the trial's run, if there is one."""
    twin, run = trial.twin, trial.run
    if twin is None or run.exists(record.EXPERIMENT) or not record.is_finished(twin):
        return
    for name in (
        record.DATASET,
        record.NORMALISER,
        WEIGHTS,
        record.ENVIRONMENT,
        record.METRICS,
        record.STATUS,
    ):
        run.write_bytes(name, twin.read_bytes(name, limit=twin.size(name)))
    # Last: before it, the trial is copied again.
    run.write_json(record.EXPERIMENT, trial.experiment.model_dump(mode="json"))


def is_done(result: TrialResult, early_stopping: bool) -> bool:
    """Whether nothing is left to train; a stopped trial continues without early stopping."""
    return result.state in ENDED and (early_stopping or result.state != "stopped")


def best_trial(results: Sequence[TrialResult]) -> TrialResult:
    """Return the trial of the lowest NMAE; TrainingError where none was ever validated."""
    measured = [each for each in results if each.nmae is not None and each.state != "failed"]
    if not measured:
        from courant.training.train import TrainingError  # torch, which no finished command needs

        reasons = [f": trial {each.number}: {each.reason}" for each in results if each.reason]
        raise TrainingError(f"no trial of the sweep came to a validation{''.join(reasons[:1])}")
    return min(measured, key=lambda result: (result.nmae, result.number))


def trial_rows(sweep: Sweep, results: Sequence[TrialResult]) -> list[dict[str, Value]]:
    """Return the rows of trials.csv and of the sweep's page, by column."""
    return [
        {
            "trial": result.number,
            **{label(key): result.setting[key] for key in sweep.space.columns},
            **{key: getattr(result, key) for key in ("seed", "state", "nmae", "best_epoch")},
            "epochs": result.epochs,
            "seconds": round(result.seconds, 1),
            "run": result.run.rsplit("/", 1)[-1],
            "reason": result.reason,
        }
        for result in results
    ]


def write_table(sweep: Sweep, results: Sequence[TrialResult]) -> None:
    """Write trials.csv, trials.json and, once a trial has been validated, best.json."""
    import pandas  # commands that find their work done do without

    sweep.folder.write_json(TABLE, [asdict(result) for result in results])
    text = pandas.DataFrame(trial_rows(sweep, results), dtype=object).to_csv(index=False)
    sweep.folder.write_bytes("trials.csv", text.encode())
    if any(result.nmae is not None and result.state != "failed" for result in results):
        best = sweep.trials[best_trial(results).number - 1]
        sweep.folder.write_json(BEST, best.experiment.model_dump(mode="json"))


@dataclass(frozen=True)
class TrialsProgress:
    """The trials of a sweep or a benchmark."""

    name: str
    url: str
    state: str  # `running` while a trial is; `interrupted` where some did not end and none is
    num_trials: dict[str, int]  # By state, in the order in which states were met
    num_ended: int
    best_nmae: float | None  # Lowest validation NMAE of a trial


def read_trials_progress(
    folder: RunDirectory, read: Callable[[RunDirectory], RunSummary | None]
) -> TrialsProgress | None:
    """Read how far a sweep or benchmark is; None without trials. StoreError for a damaged table."""
    trials = [each for name in folder.names(TRIALS) if (each := read(folder / TRIALS / name))]
    if not trials:
        return None
    # The table has a row for each trial that is planned; a benchmark plans as it goes.
    table = folder.read_json(TABLE) if folder.exists(TABLE) else []
    states = Counter(trial.state for trial in trials)
    if len(table) > len(trials):
        states["waiting"] += len(table) - len(trials)
    ended = sum(states[state] for state in ENDED)
    state = "finished" if ended == states.total() else "interrupted"
    # Of NaN, `min` would make what comes first.
    errors = [trial.validation_nmae for trial in trials]
    return TrialsProgress(
        name=folder.url.rsplit("/", 1)[-1],
        url=folder.url,
        state="running" if states["running"] else state,
        num_trials=dict(states),
        num_ended=ended,
        best_nmae=min((e for e in errors if e is not None and math.isfinite(e)), default=None),
    )
