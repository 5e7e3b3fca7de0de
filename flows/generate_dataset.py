"""Flow `generate`: design points -> solved cases -> a published dataset version.

The dataset is the truth about what is done: points that it has on record are not solved again,
whatever Prefect remembers. Each case is one task on Ray, committed as it finishes; killed at any
moment, the same call goes on from there.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from prefect import flow, get_run_logger, task

import simgen
from flows.artifacts import show_markdown, show_table
from flows.cluster.process_logs import know_flow_run
from flows.cluster.ray_cluster import ensure_ray, warm_workers
from flows.display import announce
from flows.settings import load_settings
from flows.solve_cases import Execution, solve_cases
from flows.stages.generation import Generation, PublishedVersion
from simgen.design_space import DesignPoint, Sampler
from simgen.store.format.split import Split

if TYPE_CHECKING:
    import pandas as pd

#: Cases in the table of Prefect's UI.
MOST_SHOWN = 2_000


@flow(name="generate", flow_run_name="generate {family}, {cases} cases")
def generate(
    family: str = "cylinder-flow",
    cases: int = 8,
    sampler: Sampler = "sobol",
    seed: int = 42,
    preset: str | None = None,
    settings: dict[str, float] | None = None,
    designs: str | None = None,
    design_parameters: list[dict[str, float]] | None = None,
    store: str | None = None,
    time_limit_s: float | None = None,
    retry_failed: bool = False,
    cores: int = 1,
    archive_raw: bool = False,
    split: Split | None = None,
) -> PublishedVersion:
    """Solve what the dataset does not have yet, and publish a version if that is anything new.

    Args:
        family: The case family, as `courant families` lists them.
        cases: How many designs to sample.
        sampler: How designs are sampled in the design space.
        seed: Seed of the sampling.
        preset: Solver settings: `trial` is coarse and short, `paper` is the paper's. Where not
            given, `trial` or the family's first.
        settings: Solver settings that replace those of the preset, by name.
        designs: A CSV file of design parameters to solve instead of sampled ones, or a dataset
            whose test designs are solved.
        design_parameters: Designs by their parameters, to solve instead of sampled ones.
        store: Where datasets are: a folder or s3://bucket/prefix; COURANT_STORE where not given.
        time_limit_s: Limit of a case's meshing, and of its solver, in seconds of wall time.
        retry_failed: Solve failed cases again.
        cores: Cores of one machine for each case; above 1 its solver runs under MPI.
        archive_raw: Keep accepted cases' directories as well, as those of all others are kept.
        split: The split of the cases that are new; drawn where not given.
    """
    asked = Generation(
        family=family,
        cases=cases,
        sampler=sampler,
        seed=seed,
        preset=preset,
        settings=settings,
        designs=designs,
        design_parameters=design_parameters,
        store=store,
        time_limit_s=time_limit_s,
        retry_failed=retry_failed,
        cores=cores,
        archive_raw=archive_raw,
        split=split,
    )
    know_flow_run()
    published = asked.finished() or solve_and_publish(asked)
    describe(published.dataset, published.version)
    announce(published.line(), get_run_logger())
    return published


def solve_and_publish(asked: Generation) -> PublishedVersion:
    """Solve the points that are left, here or on the cluster, and publish a version."""
    writer, pending = asked.open()
    points, url = asked.points, asked.url
    get_run_logger().info("%s: %d designs, %d to solve", url, len(points), len(pending))
    execution = Execution(asked.time_limit_s, asked.cores, asked.archive_raw, asked.split)
    if pending and load_settings().jobs_address:
        solve_on_cluster(points, url, execution, asked.retry_failed)
    elif pending:
        ensure_ray()
        warm_workers()
        solve_cases(pending, writer, execution)
    message = f"{asked.family}: {asked.known_preset} preset, {len(points)} designs"
    return PublishedVersion(url, writer.publish(message, asked.remake))


@task(name="solve-on-cluster", persist_result=False)
def solve_on_cluster(
    points: list[DesignPoint], url: str, execution: Execution, retry_failed: bool
) -> None:
    """Solve the points in a job on the cluster.

    The request names all points, however many are solved by now: it stays the same request, and so
    the same job.
    """
    from flows.cluster.ray_jobs import JobRequest, run_job

    store, _, family = url.rpartition("/")
    request = {
        "points": [asdict(point) for point in points],
        "dataset": url,
        "execution": asdict(execution),
        "retry_failed": retry_failed,
    }
    logger = get_run_logger()
    run_job(JobRequest("solve", family, store, request), lambda line: announce(line, logger))


def describe(url: str, version: str) -> None:
    """Artifacts in Prefect's UI: a table of cases, and what the version holds."""
    dataset = simgen.open_dataset(url, version)
    design = dataset.design
    shown = shown_cases(design)
    rows = [
        {"case": case, **{str(name): _cell(value) for name, value in row.items()}}
        for case, row in shown.iterrows()
    ]
    named = "Cases" if len(shown) == len(design) else f"{len(shown):,} of {len(design):,} cases"
    show_table(rows, f"cases-{dataset.schema.family}", f"{named} of {url} {version}")
    counts = "\n".join(
        f"| {status} | {count} |" for status, count in design["status"].value_counts().items()
    )
    show_markdown(
        f"## {dataset.schema.family} {version}\n\n`{url}`\n\n"
        f"| status | cases |\n| --- | --- |\n{counts}\n\n"
        f"{dataset.splits}; {design['num_bytes'].sum() / 1e6:.0f} MB of fields.\n\n"
        f'```python\nimport simgen\nds = simgen.open_dataset("{url}", version="{version}")\n```\n',
        key=f"dataset-{dataset.schema.family}",
        description=f"{dataset.schema.family} {version}",
    )


def shown_cases(design: pd.DataFrame) -> pd.DataFrame:
    """Return at most MOST_SHOWN cases of a design table, those without a solution before others.

    Prefect's server refuses the event of a larger artifact.
    """
    solved = (design["status"] == "accepted").reset_index(drop=True)
    first = solved.sort_values(kind="stable").index[:MOST_SHOWN]
    return design.iloc[sorted(first)]


def _cell(value: object) -> object:
    """A JSON value for a table: numbers short, what is missing empty."""
    if value is None or value != value:
        return ""
    return float(f"{value:.4g}") if isinstance(value, float) else value
