"""Flow `sweep`: a search space around a recipe -> trials, table, figures, best configuration."""

from __future__ import annotations

import base64
from contextlib import suppress

from prefect import flow, get_run_logger, task

from courant.sweeps.sweep import (
    BEST,
    ENDED,
    TABLE,
    Sweep,
    TrialResult,
    best_trial,
    is_done,
    read_result,
    table_row,
)
from flows.artifacts import page_link, show_image, show_markdown, show_table
from flows.cluster.process_logs import know_flow_run
from flows.display import Bars
from flows.settings import load_settings
from flows.stages.sweep import FinishedSweep, Trials
from simgen.errors import StoreError
from simgen.log_lines import about


@flow(name="sweep", flow_run_name="sweep {space}")
def sweep(
    dataset: str,
    version: str | None = None,
    space: str = "anchors",
    trials: int | None = None,
    recipe: str | None = None,
    experiment: str | None = None,
    runs: str | None = None,
    seed: int = 42,
    early_stopping: bool = True,
    cpus_per_trial: float | None = None,
    gpus_per_trial: float | None = None,
) -> FinishedSweep:
    """Try a space's settings around a recipe or the experiment in a JSON file.

    Finished trials are not repeated.

    Args:
        dataset: The dataset: a folder or s3://bucket/prefix/family.
        version: The dataset's version, such as v2; the newest where not given.
        space: A search space by name, or a YAML file with one.
        trials: How many settings are tried; the space's own number where not given.
        recipe: A training run by name, around which settings are tried; `<family>-small` where not
            given.
        experiment: A JSON file with a training run, in place of a recipe.
        runs: Where runs are: a folder or s3://bucket/prefix; COURANT_RUNS where not given.
        seed: Seed of the settings that are drawn.
        early_stopping: End trials early that do worse than others.
        cpus_per_trial: Cores that a trial reserves; where none is given one, or none of a node that
            comes with its GPU.
        gpus_per_trial: GPUs that a trial reserves, also a part of one; a whole one where there are
            any and none is given.
    """
    know_flow_run()
    asked = Trials(dataset, version, space, trials, recipe, experiment, runs, seed)
    plan = asked.plan()
    results = try_settings(plan, early_stopping, cpus_per_trial, gpus_per_trial)
    return show_sweep(plan, results)


@task(name="try-settings", persist_result=False)
def try_settings(
    plan: Sweep, early_stopping: bool, cpus: float | None, gpus: float | None
) -> list[TrialResult]:
    """Run all trials on Ray, here or as a job on the cluster, with a line as each ends."""
    ids = about(dataset=plan.dataset_url, sweep=plan.folder.url.rsplit("/", 1)[-1])
    with ids, Bars(f"sweep {plan.space.name}", len(plan.trials), get_run_logger()) as bars:
        bars.line(f"sweep {plan.folder.url}")
        for line in plan.left_out:
            bars.line(line)
        bars.advance(0, "starting trials")
        if load_settings().jobs_address:
            return _try_on_cluster(plan, early_stopping, cpus, gpus, bars)
        return _try_here(plan, early_stopping, cpus, gpus, bars)


def _try_here(
    plan: Sweep, early_stopping: bool, cpus: float | None, gpus: float | None, bars: Bars
) -> list[TrialResult]:
    from courant.sweeps.ray_tune import run_sweep
    from flows.cluster.ray_cluster import ensure_ray

    ended: set[int] = set()
    lowest: list[float] = []

    def on_trial(result: TrialResult) -> None:
        if result.nmae is not None:
            lowest[:] = [min([*lowest, result.nmae])]
        if result.state != "running":
            ended.add(result.number)
            bars.line(result.line())
        best = f", lowest NMAE {lowest[0]:.3f}" if lowest else ""
        bars.advance(len(ended), f"trial {result.number}, epoch {result.epochs}{best}")

    ensure_ray()
    return run_sweep(
        plan,
        early_stopping=early_stopping,
        cpus_per_trial=cpus,
        gpus_per_trial=gpus,
        on_trial=on_trial,
    )


def _try_on_cluster(
    plan: Sweep, early_stopping: bool, cpus: float | None, gpus: float | None, bars: Bars
) -> list[TrialResult]:
    """Run the sweep as a job, which makes the same plan and leaves the trials' runs."""
    from flows.cluster.ray_jobs import JobRequest, run_job

    if not all(is_done(read_result(trial), early_stopping) for trial in plan.trials):
        runs, _, name = plan.folder.url.rpartition("/")
        request = {
            "experiment": plan.experiment.model_dump(mode="json"),
            "space": plan.asked.model_dump(mode="json"),
            "dataset": plan.dataset_url,
            "version": plan.version,
            "runs": runs,
            "trials": len(plan.trials),
            "seed": plan.seed,
            "early_stopping": early_stopping,
            "cpus": cpus,
            "gpus": gpus,
        }

        def look() -> None:
            # The store may be away for a moment: the sweep itself goes on on the cluster.
            with suppress(StoreError):
                bars.advance(_num_ended(plan))

        run_job(JobRequest("sweep", name, runs, request), bars.line, look)
    return [read_result(trial) for trial in plan.trials]


def _num_ended(plan: Sweep) -> int:
    """Count the ended trials in the table that the sweep keeps up to date."""
    table = plan.folder.read_json(TABLE) if plan.folder.exists(TABLE) else []
    return sum(row["state"] in ENDED for row in table)


@task(name="show-sweep", persist_result=False)
def show_sweep(plan: Sweep, results: list[TrialResult]) -> FinishedSweep:
    """Write the page; show table, verdict and figure in Prefect's UI as well."""
    from courant.report.sweep_page import HYPERPARAMETERS, verdict, write_sweep_page

    page = write_sweep_page(plan, results)
    said = verdict(plan, results)
    key = f"sweep-{plan.space.name}"
    rows = [table_row(plan.space, result) for result in results]
    show_table(rows, key=f"{key}-trials", description=page)
    best = plan.trials[best_trial(results).number - 1]
    text = f"## {key}\n\n{said}\n\nPage: {page_link(page)}\n\nBest run: `{best.run.url}`\n"
    show_markdown(text, key=key)
    figure = base64.b64encode(plan.folder.read_bytes(HYPERPARAMETERS)).decode()
    show_image(
        f"data:image/png;base64,{figure}",
        key=f"{key}-hyperparameters",
        description="Each hyperparameter against validation NMAE",
    )
    return FinishedSweep(page, f"{plan.folder.url}/trials", f"{plan.folder.url}/{BEST}", said)
