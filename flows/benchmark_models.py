"""Flow `benchmark`: models at an equal budget -> trials, test errors, table, figure, ledger."""

from __future__ import annotations

import base64

from prefect import flow, get_run_logger, task

from courant.benchmark.carrying_out import trials_on_record
from courant.benchmark.markdown import FIGURE
from courant.benchmark.request import Request
from courant.runs.directory import RunDirectory
from courant.sweeps.sweep import TrialResult
from flows.artifacts import show_image, show_markdown
from flows.cluster.process_logs import know_flow_run
from flows.display import Bars
from flows.settings import load_settings
from flows.stages.benchmark import Comparison, FinishedBenchmark, show
from simgen.errors import SimgenError


@flow(name="benchmark", flow_run_name="benchmark at {budget}")
def benchmark(
    dataset: str,
    version: str | None = None,
    models: list[str] | None = None,
    space: str | None = None,
    budget: str = "30min",
    rates: list[float] | None = None,
    seeds: int = 1,
    best: int | None = None,
    sizes: str | None = None,
    recipe: str | None = None,
    experiment: str | None = None,
    runs: str | None = None,
    out: str | None = None,
    cpus_per_trial: float | None = None,
    gpus_per_trial: float | None = None,
) -> FinishedBenchmark:
    """Compare models on a dataset version at an equal budget. Finished trials are not repeated.

    Args:
        dataset: The dataset: a folder or s3://bucket/prefix/family.
        version: The dataset's version, such as v2; the newest where not given.
        models: Models to compare, such as courant and transolver.
        space: A search space whose settings are compared in place of models (ablations).
        budget: What each training may spend: 40epochs, or processor time such as 90s, 30min, 2h.
        rates: Learning rates that are tried for each model; one alone is taken as it is.
        seeds: Trainings of each model, with different seeds.
        best: So many models get all seeds, by validation error with the first; all if not given.
        sizes: A JSON file of model sizes by model.
        recipe: The training run by name, in which each model takes its place; `<family>-small`
            where not given.
        experiment: A JSON file with a training run, in place of a recipe.
        runs: Where runs are: a folder or s3://bucket/prefix; COURANT_RUNS where not given.
        out: The benchmark's folder or s3://bucket/prefix; one among the runs where not given.
        cpus_per_trial: Cores that a trial reserves; where none is given one, or none of a node that
            comes with its GPU.
        gpus_per_trial: GPUs that a trial reserves, also a part of one; a whole one where there are
            any and none is given.
    """
    asked = Comparison(
        dataset=dataset,
        version=version,
        models=models,
        space=space,
        budget=budget,
        rates=rates,
        seeds=seeds,
        best=best,
        sizes=sizes,
        recipe=recipe,
        experiment=experiment,
        runs=runs,
        out=out,
    )
    know_flow_run()
    request, opened = asked.plan()
    try_models(request, cpus_per_trial, gpus_per_trial)
    trials = trials_on_record(request)
    if trials is None:
        raise SimgenError(
            f"{request.folder.url}: some trials did not end; run the benchmark again to go on"
        )
    finished = show(request, opened, trials)
    show_benchmark(request, finished)
    return finished


@task(name="try-models", persist_result=False)
def try_models(request: Request, cpus: float | None, gpus: float | None) -> None:
    """Run all trials on Ray, here or as a job on the cluster, with a line as each ends."""
    with Bars(f"benchmark of {len(request.contenders)} models", 1, get_run_logger()) as bars:
        bars.line(f"benchmark {request.folder.url}")
        if load_settings().jobs_address:
            _try_on_cluster(request, cpus, gpus, bars)
        else:
            _try_here(request, cpus, gpus, bars)


def _try_here(request: Request, cpus: float | None, gpus: float | None, bars: Bars) -> None:
    from courant.benchmark.ray_runner import run_benchmark
    from flows.cluster.ray_cluster import ensure_ray

    def on_phase(phase: str, num: int) -> None:
        bars.line(f"{phase}: {num} to do")

    def on_trial(result: TrialResult) -> None:
        if result.state != "running":
            bars.line(result.line())
        bars.advance(0, f"{result.setting['model']}, epoch {result.epochs}")

    ensure_ray()
    run_benchmark(
        request, cpus_per_trial=cpus, gpus_per_trial=gpus, on_phase=on_phase, on_trial=on_trial
    )


def _try_on_cluster(request: Request, cpus: float | None, gpus: float | None, bars: Bars) -> None:
    """Run the benchmark as a job, which leaves its trials where this process finds them."""
    from flows.cluster.ray_jobs import JobRequest, run_job

    if trials_on_record(request) is None:
        place, _, name = request.folder.url.rpartition("/")
        content = {"request": request.to_json(), "cpus": cpus, "gpus": gpus}
        job = JobRequest("benchmark", name, place, content)
        run_job(job, bars.line, lambda: bars.advance(0))


@task(name="show-benchmark", persist_result=False)
def show_benchmark(request: Request, finished: FinishedBenchmark) -> None:
    """Show page and figure in Prefect's UI as well."""
    key = f"benchmark-{request.base.name}"
    folder: RunDirectory = request.folder
    page = folder.read_bytes(finished.page.rpartition("/")[2]).decode()
    show_markdown(f"{page}\nFolder: `{folder.url}`\n", key=key)
    figure = base64.b64encode(folder.read_bytes(FIGURE)).decode()
    show_image(
        f"data:image/png;base64,{figure}",
        key=f"{key}-figure",
        description="Error against processor time, every seed",
    )
