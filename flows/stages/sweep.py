"""Stage `sweep`: a search space around a recipe -> trials, table, figures, best configuration."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from courant.sweeps.search_space import load_space
from flows.display import Bars
from flows.request_models import SweepRequest
from flows.settings import check_reach, load_settings
from flows.stages.training import Training
from simgen.errors import StoreError
from simgen.log_lines import about

if TYPE_CHECKING:
    from courant.sweeps.sweep import Sweep, TrialResult


@dataclass(frozen=True)
class FinishedSweep:
    """The URLs of a sweep and its summary.

    These are its page, the folder of its trials' runs, and the best one's experiment.
    """

    page: str
    trials: str
    best: str
    verdict: str


class Trials(SweepRequest):
    """Try the settings of a search space."""

    def plan(self) -> Sweep:
        """Plan every trial, and compare each with the data."""
        from courant.sweeps.sweep import plan_sweep

        baseline, opened = self._baseline.open()
        space = load_space(self.space)
        return plan_sweep(baseline, opened, space, self.trials, self._baseline.place, self.seed)

    def done(self) -> FinishedSweep | None:
        """Return None: `execute` looks at each trial, and skips those that have ended."""
        load_space(self.space)
        self._baseline.open()
        return None

    def check(self) -> None:
        """Reject settings that do not fit the data."""
        if cluster := load_settings().jobs_address:
            check_reach(cluster, self._baseline.place)
        self.plan()

    def execute(self) -> FinishedSweep:
        """Run all trials on Ray, with a line as each ends, and write the page."""
        from courant.report.sweep_page import verdict, write_sweep_page
        from courant.sweeps.sweep import BEST

        plan = self.plan()
        folder = plan.folder.url
        ids = about(dataset=plan.dataset_url, sweep=folder.rsplit("/", 1)[-1])
        with ids, Bars(f"sweep {plan.space.name}", len(plan.trials)) as bars:
            bars.line(f"sweep {folder}")
            for line in plan.left_out:
                bars.line(line)
            bars.advance(0, "starting trials")
            on_cluster = load_settings().jobs_address is not None
            results = (self._try_on_cluster if on_cluster else self._try)(plan, bars)
        page = write_sweep_page(plan, results)
        best = f"{folder}/{BEST}"
        return FinishedSweep(page, f"{folder}/trials", best, verdict(plan, results))

    def _try(self, plan: Sweep, bars: Bars) -> list[TrialResult]:
        from courant.sweeps.ray_trials import run_sweep

        ended: set[int] = set()
        errors: list[float] = []

        def on_trial(result: TrialResult) -> None:
            if result.nmae is not None:
                errors.append(result.nmae)
            if result.state != "running":
                ended.add(result.number)
                bars.line(result.line())
            best = f", lowest NMAE {min(errors):.3f}" if errors else ""
            bars.advance(len(ended), f"trial {result.number}, epoch {result.epochs}{best}")

        return run_sweep(
            plan,
            early_stopping=self.early_stopping,
            cpus_per_trial=self.cpus_per_trial,
            gpus_per_trial=self.gpus_per_trial,
            on_trial=on_trial,
        )

    def _try_on_cluster(self, plan: Sweep, bars: Bars) -> list[TrialResult]:
        """Run the sweep as a job, which makes the same plan and leaves the trials' runs."""
        from courant.sweeps.sweep import is_done, read_result
        from flows.ray_jobs import JobRequest, run_job

        if not all(is_done(read_result(trial), self.early_stopping) for trial in plan.trials):
            runs, _, name = plan.folder.url.rpartition("/")
            request = {
                "experiment": plan.experiment.model_dump(mode="json"),
                "space": plan.asked.model_dump(mode="json"),
                "dataset": plan.dataset_url,
                "version": plan.version,
                "runs": runs,
                "trials": len(plan.trials),
                "seed": plan.seed,
                "early_stopping": self.early_stopping,
                "cpus": self.cpus_per_trial,
                "gpus": self.gpus_per_trial,
            }

            def look() -> None:
                # The store may be away for a moment: the sweep itself goes on on the cluster.
                with suppress(StoreError):
                    bars.advance(_num_ended(plan))

            run_job(JobRequest("sweep", name, runs, request), bars.line, look)
        return [read_result(trial) for trial in plan.trials]

    @property
    def _baseline(self) -> Training:
        return Training(self.dataset, self.version, self.recipe, self.experiment, self.runs)


def _num_ended(plan: Sweep) -> int:
    """Count the ended trials in the table that the sweep keeps up to date."""
    from courant.sweeps.sweep import ENDED, TABLE

    table = plan.folder.read_json(TABLE) if plan.folder.exists(TABLE) else []
    return sum(row["state"] in ENDED for row in table)
