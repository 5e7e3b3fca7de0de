"""Stage `benchmark`: plan the comparison of several models on one dataset version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from courant.json_text import parse_json
from courant.runs.directory import RunDirectory
from courant.sweeps.space_files import load_space
from flows.settings import absolute, check_reach, load_settings
from flows.stages.stage import RayWork
from flows.stages.training import Training
from simgen.errors import InputError

if TYPE_CHECKING:
    from courant.benchmark.request import Request
    from simgen.store.access.reader import Dataset

MODELS = ("courant", "transolver", "upt")


@dataclass(frozen=True)
class FinishedBenchmark:
    """The URL of a benchmark's page, and its summary."""

    page: str
    verdict: str


@dataclass(frozen=True)
class Comparison:
    """Hold the parameters of the flow `benchmark`, which explains them."""

    dataset: str
    version: str | None = None
    models: Sequence[str] | None = None
    space: str | None = None
    budget: str = "30min"
    rates: Sequence[float] | None = None
    seeds: int = 1
    best: int | None = None
    sizes: str | None = None
    recipe: str | None = None
    experiment: str | None = None
    runs: str | None = None
    out: str | None = None
    cpus_per_trial: float | None = None
    gpus_per_trial: float | None = None

    def plan(self) -> tuple[Request, Dataset]:
        """Make every experiment, and compare each with the data."""
        from courant.benchmark.budget import parse_budget
        from courant.benchmark.contenders import choose_contenders, settings_of
        from courant.benchmark.request import RATES, make_request
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

    def finished(self) -> FinishedBenchmark | None:
        """Write the page anew where every trial is on record."""
        from courant.benchmark.carrying_out import trials_on_record

        request, dataset = self.plan()
        request.check_folder()
        trials = trials_on_record(request)
        return None if trials is None else show(request, dataset, trials)

    def prepare(self) -> RayWork | None:
        """Reject what does not fit the data, or a folder that is another benchmark's."""
        request, _ = self.plan()
        cluster = load_settings().jobs_address
        if cluster:
            check_reach(cluster, request.folder.url)
        request.write()
        return None if cluster else "models"

    def _sizes(self) -> dict[str, dict[str, Any]]:
        """Read the JSON file of model sizes."""
        if self.sizes is None:
            return {}
        folder, _, name = absolute(self.sizes).rpartition("/")
        try:
            content = parse_json(RunDirectory(folder or "/").read_bytes(name))
        except ValueError as error:
            raise InputError(f"{self.sizes} is not valid JSON: {error}") from error
        if not isinstance(content, dict) or not all(isinstance(v, dict) for v in content.values()):
            raise InputError(
                f'{self.sizes} holds no sizes by model, such as {{"transolver": {{"width": 64}}}}'
            )
        return content


def show(request: Request, dataset: Dataset, trials: Sequence[Any]) -> FinishedBenchmark:
    """Write the results of trials that are on record."""
    from courant.benchmark.files import write_results
    from courant.benchmark.markdown import verdict
    from courant.benchmark.rows import read_table

    table = read_table(request, dataset, trials)
    return FinishedBenchmark(write_results(table), verdict(table))
