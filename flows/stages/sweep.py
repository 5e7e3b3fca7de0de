"""Stage `sweep`: plan the trials that a search space asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from courant.sweeps.space_files import load_space
from flows.settings import check_reach, load_settings
from flows.stages.stage import RayWork
from flows.stages.training import Training

if TYPE_CHECKING:
    from courant.sweeps.sweep import Sweep


@dataclass(frozen=True)
class FinishedSweep:
    """The URLs of a sweep and its summary.

    These are its page, the folder of its trials' runs, and the best one's experiment.
    """

    page: str
    trials: str
    best: str
    verdict: str


@dataclass(frozen=True)
class Trials:
    """Hold the parameters of the flow `sweep`, which explains them."""

    dataset: str
    version: str | None = None
    space: str = "anchors"
    trials: int | None = None
    recipe: str | None = None
    experiment: str | None = None
    runs: str | None = None
    seed: int = 42
    early_stopping: bool = True
    cpus_per_trial: float | None = None
    gpus_per_trial: float | None = None

    def plan(self) -> Sweep:
        """Plan every trial, and compare each with the data."""
        from courant.sweeps.sweep import plan_sweep

        baseline, opened = self._baseline.open()
        space = load_space(self.space)
        return plan_sweep(baseline, opened, space, self.trials, self._baseline.place, self.seed)

    def finished(self) -> FinishedSweep | None:
        """Return None: the flow looks at each trial, and skips those that have ended."""
        load_space(self.space)
        self._baseline.open()
        return None

    def prepare(self) -> RayWork | None:
        """Reject settings that do not fit the data."""
        cluster = load_settings().jobs_address
        if cluster:
            check_reach(cluster, self._baseline.place)
        self.plan()
        return None if cluster else "models"

    @property
    def _baseline(self) -> Training:
        return Training(self.dataset, self.version, self.recipe, self.experiment, self.runs)
