"""Flow `generate`: design points -> solved cases -> a published dataset version.

The dataset is the truth about what is done: points that it has on record are not solved again, whatever Prefect remembers.
Each case is one task on Ray, committed as it finishes; killed at any moment, the same call goes on from there.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast
from uuid import UUID

from prefect import flow, get_run_logger, task
from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.client.schemas.objects import TaskRun
from prefect.futures import as_completed
from prefect.states import State
from prefect_ray import RayTaskRunner

import simgen
from flows.committer import Committer, SolvedFork
from flows.display import CaseBars, announce, duration, write_progress
from flows.ray_cluster import ensure_ray, warm_workers
from flows.settings import absolute, load_settings
from simgen.case import Progress, SolvedCase
from simgen.cases import get_family
from simgen.design_space import DesignPoint, Sampler, unique
from simgen.errors import CaseError, InputError, StoreError
from simgen.foam.environment import find_openfoam
from simgen.solve_case import needed_applications
from simgen.store.layout import Schema
from simgen.store.repository import repository_exists
from simgen.store.writer import CaseFork, DatasetWriter

#: A case's log gets a line when it has come this much further, and no sooner than so many seconds after the last.
LOG_FRACTION, LOG_INTERVAL_S = 0.1, 5.0


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
) -> PublishedVersion:
    """Solve what the dataset does not have yet, and publish a version if that is anything new.

    `settings` replaces single solver settings of the preset; `designs` is a CSV file of design parameters to use instead of
    sampling; `time_limit_s` bounds a case's solver in wall time; `retry_failed` solves failed cases again.
    """
    points = design_points(family, cases, sampler, seed, preset, settings, designs)
    url = f"{absolute(store or load_settings().store).rstrip('/')}/{family}"
    cluster = load_settings().jobs_address
    if not (cluster or repository_exists(url)):
        # Before there is anything on disk; a dataset that has all designs needs no solver.
        find_openfoam(needed_applications(get_family(family)))
    writer = DatasetWriter.open(url, Schema.of(get_family(family)))
    pending = to_solve(points, writer, retry_failed)
    get_run_logger().info("%s: %d designs, %d to solve", url, len(points), len(pending))
    if pending and cluster:
        solve_on_cluster(points, url, time_limit_s, retry_failed)
    elif pending:
        find_openfoam(needed_applications(get_family(family)))
        ensure_ray()
        warm_workers()
        solve_cases(pending, writer, time_limit_s)
    run = {
        "family": family, "cases": cases, "sampler": sampler, "seed": seed, "preset": preset, "settings": settings or {},
        "designs": designs, "time_limit_s": time_limit_s,
    }  # fmt: skip
    version = writer.publish(f"{family}: {preset} preset, {len(points)} designs", run)
    describe(url, version)
    announce(repr(simgen.open_dataset(url, version)).strip("<>"), get_run_logger())
    return PublishedVersion(url, version)


def to_solve(points: Sequence[DesignPoint], writer: DatasetWriter, retry_failed: bool) -> list[DesignPoint]:
    """The points that the dataset has nothing on record about."""
    solved = {case for case, status in writer.known().items() if not (retry_failed and status == "failed")}
    return [point for point in points if point.id not in solved]


@task(name="solve-on-cluster", persist_result=False)
def solve_on_cluster(points: list[DesignPoint], url: str, time_limit_s: float | None, retry_failed: bool) -> None:
    """All points in the request: it is the same one, and so the same job, however many are solved by now."""
    from flows.ray_jobs import JobRequest, run_job

    store, _, family = url.rpartition("/")
    request = {
        "points": [asdict(point) for point in points], "dataset": url, "time_limit_s": time_limit_s, "retry_failed": retry_failed,
    }  # fmt: skip
    logger = get_run_logger()
    run_job(JobRequest("solve", family, store, request), lambda line: announce(line, logger))


@flow(name="solve-cases", task_runner=RayTaskRunner(), validate_parameters=False)
def solve_cases(points: Sequence[DesignPoint], writer: DatasetWriter, time_limit_s: float | None) -> None:
    """Every point as a task on Ray, which writes through its own copy of one fork; cases are committed as they end."""
    scratch, fork = Path(load_settings().scratch), writer.fork()
    futures = [
        solve.with_options(task_run_name=f"case {point.id}").submit(point, fork, str(scratch), time_limit_s)
        for point in points
    ]
    lost: list[str] = []
    with CaseBars([point.id for point in points], scratch, get_run_logger()) as bars:
        committer = Committer(writer, lambda case: bars.finished(case.case, case.status, case.reason, case.seconds))
        for future in as_completed(futures):
            solved = future.result(raise_on_failure=False)
            if isinstance(solved, SolvedFork):
                committer.take(solved)
            else:
                lost.append(str(solved))
        committer.flush()
    if lost:
        first = lost[0].strip().splitlines()[-1]
        raise StoreError(
            f"{len(lost)} of {len(points)} cases were lost to their machine or the store, the first with: {first}; run again"
        )


def _worth_retrying(task: object, run: TaskRun, state: State[Any]) -> bool:
    """Trouble of the machine or the store may pass; a bad request will not, and a bad case raises nothing."""
    try:
        state.result()
    except InputError:
        return False
    except Exception:
        return True
    return False


@task(name="solve", retries=2, retry_delay_seconds=5, retry_condition_fn=_worth_retrying, persist_result=False)
def solve(point: DesignPoint, fork: CaseFork, scratch: str, time_limit_s: float | None) -> SolvedFork:
    """One case, from mesh to arrays in the store; the raw case is deleted once it is written."""
    from simgen.convert import convert
    from simgen.solve_case import solve_case

    directory = Path(scratch) / point.id
    report = _CaseReport(point, directory)
    result = solve_case(point, Path(scratch), on_progress=report, time_limit_s=time_limit_s)
    cloud = None
    if result.status == "accepted":
        try:
            cloud = convert(SolvedCase(point, directory))
        except (CaseError, InputError) as error:
            shutil.rmtree(directory, ignore_errors=True)
            raise StoreError(f"case {point.id}: its files were damaged on {scratch}: {error}") from error
    fork.write(result, cloud)
    shutil.rmtree(directory, ignore_errors=True)
    seconds = sum(result.provenance["wall_time_s"].values())
    report.ended(f"{result.status} after {duration(seconds)}{': ' + result.reason if result.reason else ''}")
    return SolvedFork(fork, point.id, result.status, result.reason, seconds)


class _CaseReport:
    """A case's progress: for the terminal as a file, for Prefect as log lines and a progress artifact."""

    def __init__(self, point: DesignPoint, directory: Path) -> None:
        self._logger, self._directory = get_run_logger(), directory
        self._logged, self._logged_at = 0.0, time.monotonic()
        parameters = ", ".join(f"{name} {value:g}" for name, value in point.parameters.items())
        self._logger.info("case %s: %s", point.id, parameters)
        self._artifact = cast(
            UUID, create_progress_artifact(0.0, key=f"case-{point.id}", description=f"{point.family}: {parameters}")
        )

    def __call__(self, progress: Progress) -> None:
        write_progress(progress, self._directory)
        further = progress.fraction - self._logged >= LOG_FRACTION
        if progress.fraction == 1 or (further and time.monotonic() - self._logged_at >= LOG_INTERVAL_S):
            self._logged, self._logged_at = progress.fraction, time.monotonic()
            left = f", {duration(progress.eta_s)} left" if progress.eta_s else ""
            self._logger.info("%s%s", progress.message, left)
            update_progress_artifact(self._artifact, 100 * progress.fraction)

    def ended(self, line: str) -> None:
        self._logger.info(line)
        update_progress_artifact(self._artifact, 100.0)


def describe(url: str, version: str) -> None:
    """Artifacts in Prefect's UI: a table of all cases, and what the version holds."""
    dataset = simgen.open_dataset(url, version)
    design = dataset.design
    rows = [
        {"case": case, **{str(name): _cell(value) for name, value in row.items()}} for case, row in design.iterrows()
    ]
    create_table_artifact(rows, key=f"cases-{dataset.schema.family}", description=f"Cases of {url} {version}")
    counts = "\n".join(f"| {status} | {count} |" for status, count in design["status"].value_counts().items())
    splits = ", ".join(f"{len(dataset.cases(split))} {split}" for split in ("train", "validation", "test"))
    create_markdown_artifact(
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
