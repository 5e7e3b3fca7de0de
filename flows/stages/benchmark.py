"""Stage `benchmark`: models at an equal budget -> trials, test errors, table, figure, ledger."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from courant.runs.directory import RunDirectory
from courant.sweeps.search_space import load_space
from flows.display import Bars
from flows.request_models import BenchmarkRequest
from flows.settings import absolute, check_reach, load_settings
from flows.stages.training import Training
from simgen.errors import InputError, SimgenError

if TYPE_CHECKING:
    from courant.sweeps.benchmark import Benchmark
    from courant.sweeps.sweep import TrialResult
    from simgen.store.read import Dataset

MODELS = ("courant", "transolver", "upt")


@dataclass(frozen=True)
class FinishedBenchmark:
    """The URL of a benchmark's page, and its summary."""

    page: str
    verdict: str


class Comparison(BenchmarkRequest):
    """Train models at an equal budget, and compare them."""

    def plan(self) -> tuple[Benchmark, Dataset]:
        """Make every experiment, and compare each with the data."""
        from courant.problems import open_problem
        from courant.sweeps.benchmark import (
            RATES,
            choose_contenders,
            parse_budget,
            plan_benchmark,
            settings_of,
        )

        budget = parse_budget(self.budget)
        around = Training(self.dataset, self.version, self.recipe, self.experiment, self.runs)
        base, opened = around.open()
        if self.space and self.models:
            raise InputError(
                "give models to compare or a space of one model's settings, not both (models=null"
                " for a deployment that sets them)"
            )
        if self.space and self.sizes:
            raise InputError(
                "sizes are those of models; a space of settings has none, leave them out"
            )
        space = load_space(self.space) if self.space else None
        if space:
            space = space.for_data(base, lambda made: open_problem(made, opened))
            contenders = settings_of(space, base, opened)
        else:
            contenders = choose_contenders(self.models or MODELS, base, opened, self._sizes())
        planned = plan_benchmark(
            base,
            contenders,
            opened,
            budget,
            runs_url=around.place,
            out=None if self.out is None else absolute(self.out),
            rates=self.rates or RATES,
            seeds=self.seeds,
            best=self.best,
            space=space,
        )
        return planned, opened

    def done(self) -> FinishedBenchmark | None:
        """Write the page anew where every trial is on record."""
        from courant.sweeps.benchmark import next_phase

        planned, dataset = self.plan()
        planned.check_folder()
        return None if next_phase(planned) is not None else _show(planned, dataset)

    def check(self) -> None:
        """Reject what does not fit the data, or a folder that is another benchmark's."""
        planned, _ = self.plan()
        if cluster := load_settings().jobs_address:
            check_reach(cluster, planned.url)
        planned.write()

    def execute(self) -> FinishedBenchmark:
        """Run all trials on Ray, with a line as each ends, and write the results."""
        from courant.sweeps.benchmark import next_phase

        planned, dataset = self.plan()
        with Bars(f"benchmark of {len(planned.contenders)} models", 1) as bars:
            bars.line(f"benchmark {planned.url}")
            on_cluster = load_settings().jobs_address is not None
            (self._try_on_cluster if on_cluster else self._try)(planned, bars)
        if next_phase(planned) is not None:
            raise SimgenError(
                f"{planned.url}: some trials did not end; run the benchmark again to go on"
            )
        return _show(planned, dataset)

    def _try(self, planned: Benchmark, bars: Bars) -> None:
        from courant.sweeps.ray_trials import run_benchmark

        def on_trial(result: TrialResult) -> None:
            if result.state != "running":
                bars.line(result.line())
            bars.advance(0, f"{result.setting['model']}, epoch {result.epochs}")

        run_benchmark(
            planned,
            cpus_per_trial=self.cpus_per_trial,
            gpus_per_trial=self.gpus_per_trial,
            on_phase=lambda phase, num: bars.line(f"{phase}: {num} to do"),
            on_trial=on_trial,
        )

    def _try_on_cluster(self, planned: Benchmark, bars: Bars) -> None:
        """Run the benchmark as a job, which leaves its trials where this process finds them."""
        from courant.sweeps.benchmark import next_phase
        from flows.ray_jobs import JobRequest, run_job

        if next_phase(planned) is not None:
            place, _, name = planned.url.rpartition("/")
            content = {
                "benchmark": planned.model_dump(mode="json"),
                "cpus": self.cpus_per_trial,
                "gpus": self.gpus_per_trial,
            }
            run_job(
                JobRequest("benchmark", name, place, content), bars.line, lambda: bars.advance(0)
            )

    def _sizes(self) -> dict[str, dict[str, Any]]:
        """Read the JSON file of model sizes."""
        if self.sizes is None:
            return {}
        folder, _, name = absolute(self.sizes).rpartition("/")
        try:
            content = json.loads(RunDirectory(folder or "/").read_bytes(name))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{self.sizes} is not valid JSON: {error}") from error
        if not isinstance(content, dict) or not all(isinstance(v, dict) for v in content.values()):
            raise InputError(
                f'{self.sizes} holds no sizes by model, such as {{"transolver": {{"width": 64}}}}'
            )
        return content


def _show(planned: Benchmark, dataset: Dataset) -> FinishedBenchmark:
    """Write the results of trials that are on record."""
    from courant.report.benchmark_page import write_benchmark_page
    from courant.sweeps.benchmark import final_trials
    from courant.sweeps.benchmark_table import read_table

    table = read_table(planned, dataset, final_trials(planned))
    return FinishedBenchmark(write_benchmark_page(table), table.verdict())
