"""Stage `benchmark`: models at an equal budget -> trials, test errors, table, figure, ledger."""

from __future__ import annotations

import json
from collections.abc import Sequence
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
    from courant.benchmark.request import Request
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

    def plan(self) -> tuple[Request, Dataset]:
        """Make every experiment, and compare each with the data."""
        from courant.benchmark.request import (
            RATES,
            choose_contenders,
            make_request,
            parse_budget,
            settings_of,
        )
        from courant.problems import open_problem

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
        request = make_request(
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
        return request, opened

    def done(self) -> FinishedBenchmark | None:
        """Write the page anew where every trial is on record."""
        from courant.benchmark.phases import trials_on_record

        request, dataset = self.plan()
        request.check_folder()
        trials = trials_on_record(request)
        return None if trials is None else _show(request, dataset, trials)

    def check(self) -> None:
        """Reject what does not fit the data, or a folder that is another benchmark's."""
        request, _ = self.plan()
        if cluster := load_settings().jobs_address:
            check_reach(cluster, request.folder.url)
        request.write()

    def execute(self) -> FinishedBenchmark:
        """Run all trials on Ray, with a line as each ends, and write the results."""
        from courant.benchmark.phases import trials_on_record

        request, dataset = self.plan()
        with Bars(f"benchmark of {len(request.contenders)} models", 1) as bars:
            bars.line(f"benchmark {request.folder.url}")
            on_cluster = load_settings().jobs_address is not None
            (self._try_on_cluster if on_cluster else self._try)(request, bars)
        trials = trials_on_record(request)
        if trials is None:
            raise SimgenError(
                f"{request.folder.url}: some trials did not end; run the benchmark again to go on"
            )
        return _show(request, dataset, trials)

    def _try(self, request: Request, bars: Bars) -> None:
        from courant.benchmark.ray_runner import run_benchmark

        def on_trial(result: TrialResult) -> None:
            if result.state != "running":
                bars.line(result.line())
            bars.advance(0, f"{result.setting['model']}, epoch {result.epochs}")

        run_benchmark(
            request,
            cpus_per_trial=self.cpus_per_trial,
            gpus_per_trial=self.gpus_per_trial,
            on_phase=lambda phase, num: bars.line(f"{phase}: {num} to do"),
            on_trial=on_trial,
        )

    def _try_on_cluster(self, request: Request, bars: Bars) -> None:
        """Run the benchmark as a job, which leaves its trials where this process finds them."""
        from courant.benchmark.phases import trials_on_record
        from flows.ray_jobs import JobRequest, run_job

        if trials_on_record(request) is None:
            place, _, name = request.folder.url.rpartition("/")
            content = {
                "request": request.to_json(),
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


def _show(request: Request, dataset: Dataset, trials: Sequence[Any]) -> FinishedBenchmark:
    """Write the results of trials that are on record."""
    from courant.benchmark.page import verdict, write_results
    from courant.benchmark.rows import read_table

    table = read_table(request, dataset, trials)
    return FinishedBenchmark(write_results(table), verdict(table))
