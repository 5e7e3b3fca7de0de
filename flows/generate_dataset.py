"""Flow `generate`: design points -> solved cases -> a published dataset version.

The dataset is the truth about what is done: points that it has on record are not solved again, whatever Prefect remembers.
Each case is one task on Ray, committed as it finishes; killed at any moment, the same call goes on from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from prefect import flow, get_run_logger, task

import simgen
from flows.artifacts import show_markdown, show_table
from flows.display import announce
from flows.ray_cluster import ensure_ray, warm_workers
from flows.settings import absolute, load_settings
from flows.solve_cases import Execution, solve_cases
from simgen.cases import get_family
from simgen.design_space import DesignPoint, Sampler, unique
from simgen.foam.environment import find_openfoam
from simgen.solve_case import needed_applications
from simgen.store.layout import Schema
from simgen.store.repository import repository_exists
from simgen.store.writer import DatasetWriter


@dataclass(frozen=True)
class PublishedVersion:
    """What the stages hand to each other: a dataset's URL and one of its versions."""

    dataset: str
    version: str


def design_points(
    family: str,
    cases: int = 8,
    sampler: Sampler = "sobol",
    seed: int = 42,
    preset: str = "trial",
    settings: dict[str, float] | None = None,
    designs: str | None = None,
) -> list[DesignPoint]:
    """The points to solve: sampled, or read from the CSV file `designs`."""
    of = get_family(family)
    values = of.settings(preset, settings)
    parameters = of.design_space.read_csv(designs) if designs else of.design_space.sample(cases, sampler, seed)
    return unique([of.point(parameter, values) for parameter in parameters])


@flow(name="generate", flow_run_name="generate {family}, {cases} cases")
def generate(
    family: str = "cylinder-flow",
    cases: int = 8,
    sampler: Sampler = "sobol",
    seed: int = 42,
    preset: Literal["trial", "paper"] = "trial",
    settings: dict[str, float] | None = None,
    designs: str | None = None,
    store: str | None = None,
    time_limit_s: float | None = None,
    retry_failed: bool = False,
    cores: int = 1,
    archive_raw: bool = False,
) -> PublishedVersion:
    """Solve what the dataset does not have yet, and publish a version if that is anything new.

    `settings` replaces single solver settings of the preset; `designs` is a CSV file of design parameters to use instead of
    sampling; `time_limit_s` bounds a case's solver in wall time; `retry_failed` solves failed cases again; a case runs on `cores`
    cores of one machine; `archive_raw` keeps accepted cases' directories as well, as those of all others are kept.
    """
    execution = Execution(time_limit_s, cores, archive_raw)
    points = design_points(family, cases, sampler, seed, preset, settings, designs)
    url = f"{absolute(store or load_settings().store).rstrip('/')}/{family}"
    cluster = load_settings().jobs_address
    if not (cluster or repository_exists(url)):
        # Before there is anything on disk; a dataset that has all designs needs no solver.
        find_openfoam(needed_applications(get_family(family), cores))
    writer = DatasetWriter.open(url, Schema.of(get_family(family)))
    pending = to_solve(points, writer, retry_failed)
    get_run_logger().info("%s: %d designs, %d to solve", url, len(points), len(pending))
    if pending and cluster:
        solve_on_cluster(points, url, execution, retry_failed)
    elif pending:
        find_openfoam(needed_applications(get_family(family), cores))
        ensure_ray()
        warm_workers()
        solve_cases(pending, writer, execution)
    run = {
        "family": family, "cases": cases, "sampler": sampler, "seed": seed, "preset": preset, "settings": settings or {},
        "designs": designs, "time_limit_s": time_limit_s,
    }  # fmt: skip
    version = writer.publish(f"{family}: {preset} preset, {len(points)} designs", run)
    describe(url, version)
    announce(repr(simgen.open_dataset(url, version)).strip("<>"), get_run_logger())
    return PublishedVersion(url, version)


def to_solve(points: Sequence[DesignPoint], writer: DatasetWriter, retry_failed: bool) -> list[DesignPoint]:
    """The points that the dataset knows nothing of, withdrawn ones, and on request failed ones."""
    unsolved = {"withdrawn", "failed"} if retry_failed else {"withdrawn"}
    solved = {case for case, status in writer.known().items() if status not in unsolved}
    return [point for point in points if point.id not in solved]


@task(name="solve-on-cluster", persist_result=False)
def solve_on_cluster(points: list[DesignPoint], url: str, execution: Execution, retry_failed: bool) -> None:
    """All points in the request: it is the same one, and so the same job, however many are solved by now."""
    from flows.ray_jobs import JobRequest, run_job

    store, _, family = url.rpartition("/")
    request = {
        "points": [asdict(point) for point in points], "dataset": url, "execution": asdict(execution), "retry_failed": retry_failed,
    }  # fmt: skip
    logger = get_run_logger()
    run_job(JobRequest("solve", family, store, request), lambda line: announce(line, logger))


def describe(url: str, version: str) -> None:
    """Artifacts in Prefect's UI: a table of all cases, and what the version holds."""
    dataset = simgen.open_dataset(url, version)
    design = dataset.design
    rows = [
        {"case": case, **{str(name): _cell(value) for name, value in row.items()}} for case, row in design.iterrows()
    ]
    show_table(rows, key=f"cases-{dataset.schema.family}", description=f"Cases of {url} {version}")
    counts = "\n".join(f"| {status} | {count} |" for status, count in design["status"].value_counts().items())
    splits = ", ".join(f"{len(dataset.cases(split))} {split}" for split in ("train", "validation", "test"))
    show_markdown(
        f"## {dataset.schema.family} {version}\n\n`{url}`\n\n| status | cases |\n| --- | --- |\n{counts}\n\n"
        f"{splits}; {design['num_bytes'].sum() / 1e6:.0f} MB of fields.\n\n"
        f'```python\nimport simgen\nds = simgen.open_dataset("{url}", version="{version}")\n```\n',
        key=f"dataset-{dataset.schema.family}",
        description=f"{dataset.schema.family} {version}",
    )


def _cell(value: object) -> object:
    """A JSON value for a table: numbers short, what is missing empty."""
    if value is None or value != value:
        return ""
    return float(f"{value:.4g}") if isinstance(value, float) else value
