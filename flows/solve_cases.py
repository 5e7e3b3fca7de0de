"""Flow `solve-cases`: one Ray task a case, from mesh to arrays in the store, committed as it ends."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
from prefect import flow, get_run_logger, task
from prefect.client.schemas.objects import TaskRun
from prefect.futures import as_completed
from prefect.states import State
from prefect_ray import RayTaskRunner
from prefect_ray.context import remote_options

from flows.artifacts import ProgressArtifact
from flows.committer import Committer, SolvedFork
from flows.display import CaseBars, duration, write_progress
from flows.settings import load_settings
from simgen.case import CaseResult, Progress, SolvedCase
from simgen.case_lock import OwnedCase, own_case
from simgen.design_space import DesignPoint, unique
from simgen.errors import CaseError, InputError, StoreError
from simgen.store.fork import CaseFork
from simgen.store.writer import DatasetWriter

#: A case's log gets a line when it has come this much further, and no sooner than so many seconds after the last.
LOG_FRACTION, LOG_INTERVAL_S = 0.1, 5.0
#: How long to wait for the commit of a case that another run has written, before it is solved again.
COMMIT_S = 60.0


@dataclass(frozen=True)
class Execution:
    """How cases are run, which changes nothing of what they are."""

    time_limit_s: float | None = None
    """of a case's solver, in wall time"""
    cores: int = 1
    """of each case; above 1 its solver runs under MPI"""
    archive_raw: bool = False
    """Keep accepted cases' directories as well, under <store>/raw/"""


@flow(name="solve-cases", task_runner=RayTaskRunner(), validate_parameters=False)
def solve_cases(points: Sequence[DesignPoint], writer: DatasetWriter, execution: Execution) -> None:
    """Every point as a task on Ray, which writes through its own copy of one fork; cases are committed as they end.

    Each task reserves its case's cores on one node, and no more cases lie on a node's scratch disk than it runs.
    """
    _check_cores(execution.cores)
    points = unique(points)
    scratch, fork = Path(load_settings().scratch), writer.fork()
    with remote_options(num_cpus=execution.cores):
        futures = [
            solve.with_options(task_run_name=f"case {point.id}").submit(point, fork, writer.url, execution)
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


def _check_cores(cores: int) -> None:
    """InputError where no node has as many: its tasks would wait for ever."""
    most = max((node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]), default=0)
    if cores > most:
        raise InputError(f"a case was given {cores} cores, the largest machine has {most:.0f}; lower --cores")


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
def solve(point: DesignPoint, fork: CaseFork, dataset: str, execution: Execution) -> SolvedFork:
    """One case, from mesh to arrays in the store; the raw case is deleted once it is written.

    Its directory is this task's alone from the first file to the deletion. Another run of the same
    case on this machine waits, and then takes over what the first has put on record, or where the
    first was killed, the case itself.
    Of a rejected or failed case its directory is archived first, and the archive's URL put on record.
    """
    # On the own disk of the node that this runs on, where its environment says.
    scratch = Path(load_settings().scratch)
    report = _CaseReport(point, scratch / point.id)
    with own_case(point.id, scratch, report.waits) as own:
        # A run that has just written this case into the same dataset commits it in a moment.
        recorded = fork.recorded_since(point.id, COMMIT_S if own.left == fork.url else 0.0)
        if recorded is not None:
            report.ended(f"{recorded['status']}, solved by another run")
            return SolvedFork(fork, point.id, recorded["status"], "solved by another run", 0.0)
        result = _solve_and_write(point, fork, own, dataset, execution, report)
        own.leave(fork.url)
    seconds = sum(result.provenance["wall_time_s"].values())
    report.ended(f"{result.status} after {duration(seconds)}{': ' + result.reason if result.reason else ''}")
    return SolvedFork(fork, point.id, result.status, result.reason, seconds)


def _solve_and_write(
    point: DesignPoint, fork: CaseFork, own: OwnedCase, dataset: str, execution: Execution, report: _CaseReport
) -> CaseResult:
    from simgen.archive import archive_case
    from simgen.convert import convert
    from simgen.solve_case import solve_owned

    directory = own.directory
    result = solve_owned(point, own, on_progress=report, time_limit_s=execution.time_limit_s, cores=execution.cores)
    accepted = result.status == "accepted"
    cloud = None
    if accepted:
        try:
            cloud = convert(SolvedCase(point, directory))
        except (CaseError, InputError) as error:
            shutil.rmtree(directory, ignore_errors=True)
            raise StoreError(f"case {point.id}: its files were damaged on {directory.parent}: {error}") from error
    if execution.archive_raw or not accepted:
        archive = archive_case(directory, dataset, "raw" if accepted else "failed")
        result = replace(result, provenance={**result.provenance, "archive": archive})
    fork.write(result, cloud)
    shutil.rmtree(directory, ignore_errors=True)
    return result


class _CaseReport:
    """A case's progress: for the terminal as a file, for Prefect as log lines and a progress artifact."""

    def __init__(self, point: DesignPoint, directory: Path) -> None:
        self._logger, self._directory = get_run_logger(), directory
        self._logged, self._logged_at = 0.0, time.monotonic()
        parameters = ", ".join(f"{name} {value:g}" for name, value in point.parameters.items())
        self._logger.info("case %s: %s", point.id, parameters)
        self._artifact = ProgressArtifact(f"case-{point.id}", f"{point.family}: {parameters}")

    def __call__(self, progress: Progress) -> None:
        write_progress(progress, self._directory)
        further = progress.fraction - self._logged >= LOG_FRACTION
        if progress.fraction == 1 or (further and time.monotonic() - self._logged_at >= LOG_INTERVAL_S):
            self._logged, self._logged_at = progress.fraction, time.monotonic()
            left = f", {duration(progress.eta_s)} left" if progress.eta_s else ""
            self._logger.info("%s%s", progress.message, left)
            self._artifact.update(100 * progress.fraction)

    def waits(self) -> None:
        self._logger.info("another run on this machine is solving this case: waiting for its result")

    def ended(self, line: str) -> None:
        self._logger.info(line)
        self._artifact.update(100.0)
