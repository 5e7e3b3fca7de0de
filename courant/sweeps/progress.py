"""Tell how far a sweep or a benchmark is: both keep their trials as run directories below them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from courant.runs.directory import RunDirectory
from courant.runs.progress import RunProgress
from simgen.errors import StoreError

TRIALS, TABLE = "trials", "trials.json"
ENDED = ("finished", "stopped", "failed")


@dataclass(frozen=True)
class TrialsProgress:
    """The trials of a sweep or a benchmark."""

    name: str
    url: str
    num_trials: dict[str, int]
    """By state, in the order in which states were met"""
    best_nmae: float | None
    """Lowest validation NMAE of a trial"""

    @property
    def num_ended(self) -> int:
        return sum(self.num_trials.get(state, 0) for state in ENDED)

    @property
    def state(self) -> str:
        """Return `running` while a trial is; `interrupted` where some did not end and none is."""
        if self.num_trials.get("running"):
            return "running"
        return "finished" if self.num_ended == sum(self.num_trials.values()) else "interrupted"


def read_trials_progress(
    folder: RunDirectory, read: Callable[[RunDirectory], RunProgress | None]
) -> TrialsProgress | None:
    """Read how far a sweep or a benchmark is; None for a folder without trials.

    `read` gives each trial's progress: a caller who looks often need not read ended ones again.
    StoreError for a damaged table.
    """
    found = [read(folder / TRIALS / name) for name in folder.names(TRIALS)]
    trials = [trial for trial in found if trial is not None]
    if not trials:
        return None
    # The table has a row for each trial that is planned; a benchmark plans as it goes.
    table = folder.read_json(TABLE) if folder.exists(TABLE) else []
    if not isinstance(table, list):
        raise StoreError(f"{folder.url}/{TABLE} is damaged: it is no list of trials")
    planned = len(table)
    waiting = {"waiting": planned - len(trials)} if planned > len(trials) else {}
    # Of NaN, `min` would make what comes first.
    measured = [
        trial.validation_nmae
        for trial in trials
        if trial.validation_nmae is not None and math.isfinite(trial.validation_nmae)
    ]
    return TrialsProgress(
        name=folder.url.rsplit("/", 1)[-1],
        url=folder.url,
        num_trials=dict(Counter(trial.state for trial in trials) + Counter(waiting)),
        best_nmae=min(measured, default=None),
    )
