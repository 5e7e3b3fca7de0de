"""Flow `solve-cases`: one Ray task a case, from mesh to arrays in the store.

Each case is committed as it ends, or some seconds later. Neither the flow's parameters, which
travel to Prefect's server and along with each task, nor the tasks that wait grow with the number of
designs.
"""

from __future__ import annotations

import platform
import shutil
from collections.abc import Sequence
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger, task
from prefect.client.schemas.objects import TaskRun
from prefect.context import TagsContext
from prefect.exceptions import TerminationSignal
from prefect.runtime import flow_run
from prefect.states import State
from prefect_ray.context import remote_options
from prefect_ray.task_runners import PrefectRayFuture

from flows.artifacts import CaseReport
from flows.cluster.prefect_clients import keep_asking
from flows.cluster.process_logs import take_up
from flows.cluster.ray_many_tasks import ManyTasksRunner
from flows.cluster.ray_notes import forget_on_other_nodes
from flows.cluster.ray_room import at_once, check_cores, room
from flows.cluster.submitting import as_they_end, interruptible, longest_first_at_the_end
from flows.committer import Committer, SolvedFork
from flows.display import CaseBars, duration
from flows.settings import load_settings
from simgen.case import CaseResult, SolvedCase
from simgen.cases import get_family
from simgen.design_space import DesignPoint, unique
from simgen.errors import CaseError, InputError, ProgramError, StoreError
from simgen.foam.environment import MissingSolverError
from simgen.log_lines import Carried, about, carried
from simgen.point_cloud import PointCloud
from simgen.solving.case_lock import OwnedCase, forget_case, own_case
from simgen.store.access.fork import CaseFork
from simgen.store.access.writer import DatasetWriter
from simgen.store.format.split import Split

#: Cases at the end of a run whose order is chosen, for each that runs at the same time.
LAST_OF_EACH = 4


# Ray's workers import this module and nothing of the command that has started them.
keep_asking()


@dataclass(frozen=True)
class Execution:
    """Settings that do not affect what is solved; without `split` cases are dealt to splits."""

    time_limit_s: float | None = None
    """Limit of a case's meshing, and of its solver, in wall time"""
    cores: int = 1
    """Cores of each case; above 1 its solver runs under MPI"""
    archive_raw: bool = False
    """Keep accepted cases' directories too, under <store>/raw/"""
    split: Split | None = None


@dataclass(frozen=True)
class _Work:
    """Hold what a flow run solves."""

    points: Sequence[DesignPoint]
    writer: DatasetWriter
    execution: Execution


_WORK: ContextVar[_Work] = ContextVar("work of the flow run")


def _current_work() -> _Work:
    """Return the flow run's work.

    This is a function of its own, since a flow's globals are pickled with each task, and a context
    variable cannot be.
    """
    return _WORK.get()


def solve_cases(points: Sequence[DesignPoint], writer: DatasetWriter, execution: Execution) -> None:
    """Solve every point in a flow run of its own, and commit the cases as they end."""
    points = unique(points)
    token = _WORK.set(_Work(points, writer, execution))
    try:
        solve_all(writer.url, len(points))
    finally:
        _WORK.reset(token)


def _run_name() -> str:
    """Say in Prefect's list of flow runs how many cases are solved for which dataset."""
    number, dataset = flow_run.parameters["num_cases"], flow_run.parameters["dataset"]
    return f"solve {number} {'case' if number == 1 else 'cases'} for {dataset}"


@flow(
    name="solve-cases",
    flow_run_name=_run_name,
    task_runner=ManyTasksRunner(),
    validate_parameters=False,
)
def solve_all(dataset: str, num_cases: int) -> None:
    """Solve every point of the work in a task on Ray, and commit cases as they end.

    Each task writes through its own copy of one fork. It reserves its case's cores on one node, and
    a node's scratch disk holds no more cases than it runs.
    """
    work = _current_work()
    check_cores(work.execution.cores)
    family = get_family(work.points[0].family)
    last = LAST_OF_EACH * max(1, room(work.execution.cores))
    points = longest_first_at_the_end(work.points, family.effort, last)
    scratch, fork, logs = Path(load_settings().scratch), work.writer.fork(), carried()
    lost: list[str] = []
    with CaseBars(num_cases, scratch, get_run_logger()) as bars:

        def submit(point: DesignPoint) -> PrefectRayFuture[SolvedFork]:
            bars.started(point.id)
            # `with_options` would read the source of this module again.
            named = copy(solve)
            named.task_run_name = f"case {point.id}"
            # Prefect asks its server for leave to start each task that has tags; those of a flow
            # run would be its tasks' too.
            with (
                remote_options(num_cpus=work.execution.cores),
                TagsContext(current_tags=set()),
                interruptible(),
            ):
                return named.submit(point, fork, dataset, work.execution, logs)

        def committed(case: SolvedFork) -> None:
            forget_case(case.case, scratch)
            with about(dataset=dataset, case=case.case):
                bars.finished(case.case, case.status, case.reason, case.seconds)

        committer = Committer(work.writer, committed, num_cases)
        try:
            for future in as_they_end(
                points, submit, lambda: at_once(work.execution.cores), committer.flush_where_due
            ):
                solved = future.result(raise_on_failure=False)
                if isinstance(solved, SolvedFork):
                    committer.take(solved)
                elif isinstance(solved, ProgramError):
                    committer.flush()
                    get_run_logger().error(solved.trace)
                    raise solved
                elif isinstance(solved, MissingSolverError):
                    committer.flush()  # no other case fares better on that machine
                    raise solved
                else:
                    lost.append(str(solved))
            committer.flush()
            forget_on_other_nodes([point.id for point in work.points])
        except (KeyboardInterrupt, TerminationSignal):
            committer.flush()  # cases that ended since the last commit are not in flight
            raise
        finally:
            # Nobody waits for the commit of a case that this run will not make.
            for point in work.points:
                forget_case(point.id, scratch)
    if lost:
        first = (lost[0].strip().splitlines() or ["an error without a text"])[-1]
        raise StoreError(
            f"{len(lost)} of {num_cases} cases were lost to their machine or the store, the first"
            f" with: {first}; run again"
        )


def _worth_retrying(task: object, run: TaskRun, state: State[Any]) -> bool:
    """Retry trouble of the machine or the store, which may pass.

    A bad request or a mistake in code will not become better, and a bad case raises nothing.
    """
    try:
        state.result()
    except (InputError, ProgramError):
        return False
    except Exception:
        return True
    return False


@task(
    name="solve",
    retries=2,
    retry_delay_seconds=5,
    retry_condition_fn=_worth_retrying,
    persist_result=False,
)
def solve(
    point: DesignPoint, fork: CaseFork, dataset: str, execution: Execution, logs: Carried
) -> SolvedFork:
    """Solve one case, from mesh to arrays in the store; delete the raw case once it is written.

    Its directory is this task's alone from the first file to the deletion. Another run of the same
    case on this machine waits, and then takes over the first one's record, or where that was
    killed, the case itself. The directory of a rejected or failed case is archived first, and the
    archive's URL put on record.
    """
    take_up(logs)
    with about(dataset=dataset, case=point.id):
        try:
            return _solve(point, fork, dataset, execution)
        except MissingSolverError as error:
            raise MissingSolverError(f"case {point.id} on {platform.node()}: {error}") from error


def _solve(point: DesignPoint, fork: CaseFork, dataset: str, execution: Execution) -> SolvedFork:
    # The scratch disk of the node that this runs on, by its environment.
    scratch = Path(load_settings().scratch)
    report = CaseReport(point, scratch / point.id)
    with own_case(point.id, scratch, report.waits) as own:
        # A run that has just written this case into the same dataset commits it in a moment.
        recorded = fork.recorded_since(point.id, own.left_s if own.left == fork.url else 0.0)
        if recorded is not None:
            report.ended(f"{recorded['status']}, solved by another run")
            return SolvedFork(fork, point.id, recorded["status"], "solved by another run", 0.0)
        result = _solve_and_write(point, fork, own, dataset, execution, report)
        own.leave(fork.url)
    seconds = sum(result.provenance["wall_time_s"].values())
    report.ended(
        f"{result.status} after {duration(seconds)}{': ' + result.reason if result.reason else ''}"
    )
    return SolvedFork(fork, point.id, result.status, _told(result), seconds)


def _told(result: CaseResult) -> str:
    """Return why a case was not accepted, and where its directory is kept."""
    archive = result.provenance.get("archive")
    return f"{result.reason}; archive: {archive}" if result.reason and archive else result.reason


def _solve_and_write(
    point: DesignPoint,
    fork: CaseFork,
    own: OwnedCase,
    dataset: str,
    execution: Execution,
    report: CaseReport,
) -> CaseResult:
    from simgen.solving.archive import archive_case
    from simgen.solving.mistakes import told_as_mistakes
    from simgen.solving.solve_case import solve_owned

    directory = own.directory
    with told_as_mistakes(point.id):
        result = solve_owned(
            point,
            own,
            on_progress=report,
            time_limit_s=execution.time_limit_s,
            cores=execution.cores,
        )
        accepted = result.status == "accepted"
        cloud = _converted(SolvedCase(point, directory)) if accepted else None
    if execution.archive_raw or not accepted:
        archive = archive_case(directory, dataset, "raw" if accepted else "failed")
        result = replace(result, provenance={**result.provenance, "archive": archive})
    fork.write(replace(result, split=execution.split), cloud)
    shutil.rmtree(directory, ignore_errors=True)
    return result


def _converted(case: SolvedCase) -> PointCloud:
    from simgen.solving.convert import convert

    try:
        return convert(case)
    except (CaseError, InputError) as error:
        shutil.rmtree(case.directory, ignore_errors=True)
        raise StoreError(
            f"case {case.point.id}: its files were damaged on {case.directory.parent}: {error}"
        ) from error
