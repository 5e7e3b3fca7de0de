"""Solve cases and commit them: each from mesh to arrays in one process, committed as it ends."""

import logging
import pickle
import platform
import re
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from flows.executor import Executor, LocalExecutor, LostWorkerError, as_they_end
from flows.settings import load_settings
from flows.terminal import CaseBars, progress_note, write_progress
from simgen.case import CaseResult, Progress, SolvedCase, Status
from simgen.cases import get_family
from simgen.design_space import DesignPoint, unique
from simgen.errors import CaseError, InputError, PatchValueError, ProgramError, StoreError
from simgen.foam.mesh import time_directories
from simgen.foam.run import MissingSolverError
from simgen.log_lines import about, duration_text
from simgen.solving import convert, preparation, solve_case
from simgen.solving.case_lock import own_case
from simgen.store.schema import digest_record
from simgen.store.split import Split
from simgen.store.write import CaseFork, DatasetWriter
from simgen.whole_file import pack_folder

logger = logging.getLogger("flows.case")

LOOKED_AT = 3
"""First cases of a dataset; where all end alike and none is accepted, no others are solved"""
COMMIT_SHARE = 0.1
"""Part of the time that commits may take. A killed run solves those cases again that have waited
for a commit: some seconds' worth in a dataset of 10,000"""
COMMIT_WAIT_S = 60.0
"""How long to wait for the commit of a case that another run on this machine has written"""
LOG_S = 5.0  # Between two lines of a case's progress in its log, at least


@dataclass(frozen=True)
class Execution:
    """Settings that do not affect what is solved; without `split` cases are dealt to splits."""

    time_limit_s: float | None = None  # Limit of a case's meshing, and of its solver, in wall time
    cores: int = 1  # Cores of each case; above 1 its solver runs under MPI
    archive_raw: bool = False  # Keep accepted cases' directories too, under <store>/raw/
    split: Split | None = None
    note: str | None = None  # What asked for these cases, for their record


@dataclass(frozen=True)
class SolvedFork:
    """The result of a case: its store session, and how the case ended."""

    fork: CaseFork
    case: str
    status: Status
    reason: str
    seconds: float
    digest: str = ""  # Of the arrays of an accepted case


def solve_cases(
    points: Sequence[DesignPoint],
    writer: DatasetWriter,
    execution: Execution,
    on_submit: Callable[[DesignPoint, Future[SolvedFork]], None] = lambda point, future: None,
) -> None:
    """Solve every point here or on Ray, and commit the cases as they end.

    Each case writes through its own copy of one fork. `on_submit` is called with each case that is
    submitted. Raises StoreError where cases were lost to their machine or the store, and InputError
    where the first of a dataset all end for one reason.
    """
    points, settings = unique(points), load_settings()
    is_new = all(row["status"] != "accepted" for row in writer.design().values())
    first = list[SolvedFork]()
    fork, lost, scratch = writer.fork(), list[str](), Path(settings.scratch)
    submitted: dict[Future[SolvedFork], DesignPoint] = {}
    if settings.ray_address is None:
        executor: Executor = LocalExecutor(execution.cores)
    else:
        from flows.ray_jobs import RayExecutor

        executor = RayExecutor(execution.cores)
    with (
        CaseBars(len(points), scratch) as bars,
        Committer(writer, len(points), bars) as committer,
        executor,
    ):

        def submit(point: DesignPoint) -> Future[SolvedFork]:
            bars.started(point.id)
            future = executor.submit(solve, point, fork, writer.url, execution)
            submitted[future] = point
            on_submit(point, future)
            return future

        for future in as_they_end(points, submit, executor.at_once, committer.flush_where_due):
            error = future.exception()
            point = submitted.pop(future)
            if error is None:
                committer.take(future.result())
                if is_new and len(first) < LOOKED_AT < len(points):
                    first.append(future.result())
                    _check_first(first)
            elif isinstance(error, LostWorkerError):
                # Mostly of memory, and at every attempt: it would keep all others from being
                # published.
                own: CaseFork = pickle.loads(pickle.dumps(fork))
                own.write(CaseResult(point, "failed", str(error), split=execution.split), None)
                committer.take(SolvedFork(own, point.id, "failed", str(error), 0.0))
            elif isinstance(error, ProgramError):
                logger.info(error.trace)
                raise error
            elif isinstance(error, MissingSolverError):
                raise error  # no other case fares better on that machine
            else:
                lost.append(str(error))
    if lost:
        why = (lost[0].strip().splitlines() or ["an error without a text"])[-1]
        raise StoreError(
            f"{len(lost)} of {len(points)} cases were lost to their machine or the store, the first"
            f" with: {why}; run again"
        )


def kind_of(reason: str) -> str:
    """Return a reason without its numbers and files, which cases of one kind share."""
    return re.sub(r"\S*[/\d]\S*", "", reason)


def _check_first(ended: Sequence[SolvedFork]) -> None:
    """Raise InputError where so many cases are equal, or have one reason but for its numbers."""
    if len(ended) < LOOKED_AT or len({(kind_of(each.reason), each.digest) for each in ended}) > 1:
        return
    stopped = f"stopped: the first {LOOKED_AT} cases"
    if ended[0].digest:
        raise InputError(
            f"{stopped} have the same fields to the last digit: what is varied has no effect on"
            " them; vary what the solver reads, under another name"
        )
    if reason := ended[0].reason.partition("; archive: ")[0]:
        way_out = "; change the case, --set or the ranges, and run again" * ("--" not in reason)
        verb = "failed" if ended[0].status == "failed" else "were rejected"
        raise InputError(f"{stopped} {verb}, for one reason: {reason}{way_out}")


class Committer(AbstractContextManager["Committer"]):
    """Commit each case as it ends: at once, as long as that is cheap.

    A commit rewrites the list of all groups and arrays of the dataset, some kilobytes a case. If
    every case had one of its own, the time and the storage of all commits together would grow with
    the square of the number of cases. So cases that end shortly after a commit share the next one,
    and commits take no more than COMMIT_SHARE of the time. Each commit records how many cases are
    left. At the end, also of an interruption, waiting cases are committed.
    """

    def __init__(self, writer: DatasetWriter, num_cases: int, bars: CaseBars) -> None:
        self._writer, self._bars = writer, bars
        self._num_left = num_cases
        self._waiting: list[SolvedFork] = []
        self._not_before = 0.0

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or not issubclass(kind, StoreError):
            self.flush()

    def take(self, solved: SolvedFork) -> None:
        """Commit now, or when `flush_where_due` is called later."""
        self._waiting.append(solved)
        self.flush_where_due()

    def flush_where_due(self) -> None:
        """Commit the waiting cases if it is time."""
        self._bars.show_slow()
        if time.monotonic() >= self._not_before:
            self.flush()

    def flush(self) -> None:
        """Commit every waiting case."""
        if not self._waiting:
            return
        began = time.monotonic()
        left = self._num_left - len(self._waiting)
        self._writer.commit([solved.fork for solved in self._waiting], num_left=left)
        # Not earlier: a commit that was interrupted is made again.
        self._num_left = left
        ended = time.monotonic()
        self._not_before = ended + (ended - began) * (1 / COMMIT_SHARE - 1)
        committed, self._waiting = self._waiting, []
        for solved in committed:
            with about(dataset=self._writer.url, case=solved.case):
                self._bars.ended(solved.case, solved.status, solved.reason, solved.seconds)


def solve(point: DesignPoint, fork: CaseFork, dataset: str, execution: Execution) -> SolvedFork:
    """Solve one case, from mesh to arrays in the store; delete the raw case once it is written.

    Its directory is this process's alone from the first file to the deletion. Another run of the
    same case on this machine waits, and then takes over the first one's record, or where that was
    killed, the case itself. The directory of a rejected or failed case is archived first, and the
    archive's URL put on record.
    """
    # The scratch disk of the node that this runs on, by its environment.
    scratch = Path(load_settings().scratch)
    get_family(point.family, dataset)  # a template's is unpacked on the machine that solves
    with about(dataset=dataset, case=point.id):
        values = ", ".join(f"{name} {value:g}" for name, value in point.parameters.items())
        logger.info("case %s: %s", point.id, values)
        waiting = "another run on this machine solves this case: waiting for its result"
        with own_case(point.id, scratch, lambda: logger.info(waiting)) as has_waited:
            # A run that has written the case, and so removed its directory, commits it in a moment.
            is_written = has_waited and not (scratch / point.id).exists()
            recorded = fork.recorded_since(point.id, COMMIT_WAIT_S if is_written else 0.0)
            if recorded is not None:
                return SolvedFork(fork, point.id, recorded["status"], "solved by another run", 0.0)
            result = _solve_and_write(point, fork, scratch / point.id, dataset, execution)
        seconds = sum(result.provenance["wall_time_s"].values())
        kept = result.provenance.get("archive")
        reason = f"{result.reason}{f'; archive: {kept}' if result.reason and kept else ''}"
        why = f": {reason}" if reason else ""
        logger.info("%s after %s%s", result.status, duration_text(seconds), why)
        arrays = fork.records[point.id].details["arrays"]
        digest = digest_record(arrays) if arrays else ""
        return SolvedFork(fork, point.id, result.status, reason, seconds, digest)


def _solve_and_write(
    point: DesignPoint, fork: CaseFork, directory: Path, dataset: str, execution: Execution
) -> CaseResult:
    logged_at = time.monotonic()

    def on_progress(progress: Progress) -> None:
        nonlocal logged_at
        write_progress(progress, directory)
        if progress.fraction == 1 or time.monotonic() - logged_at >= LOG_S:
            logged_at = time.monotonic()
            logger.info("%s", progress_note(progress))

    with preparation.as_program_error(point.id):
        try:
            limits = execution.time_limit_s, execution.cores
            result = solve_case.solve_owned(point, directory, on_progress, *limits)
        except MissingSolverError as error:
            message = f"case {point.id} on {platform.node()}: {error}"
            raise MissingSolverError(message) from error
        accepted = result.status == "accepted"
        try:
            cloud = convert.convert(SolvedCase(point, directory)) if accepted else None
        except PatchValueError as error:
            result = replace(result, status="failed", reason=str(error))
            accepted, cloud = False, None
        except (CaseError, InputError) as error:
            shutil.rmtree(directory, ignore_errors=True)
            raise StoreError(
                f"case {point.id}: its files were damaged on {directory.parent}: {error}"
            ) from error
    if execution.archive_raw or not accepted:
        kept = archive_case(directory, dataset, "raw" if accepted else "failed")
        result = replace(result, provenance={**result.provenance, "archive": kept})
    if execution.note:
        result = replace(result, provenance={**result.provenance, "note": execution.note})
    fork.write(replace(result, split=execution.split), cloud)
    shutil.rmtree(directory, ignore_errors=True)
    return result


def archive_case(directory: Path, dataset: str, area: Literal["failed", "raw"]) -> str:
    """Pack a case's directory into the store of the dataset; return the URL; or StoreError.

    It is <store>/<area>/<family>/<id>.tar.gz; of rejected and failed cases without all times but
    the last.
    """
    store, _, family = dataset.rstrip("/").rpartition("/")
    url = f"{store}/{area}/{family}/{directory.name}.tar.gz"
    times = time_directories(directory)[:-1] if area == "failed" else []
    left_out = {f"{directory.name}/{path.name}" for _, path in times}
    try:
        pack_folder(directory, url, left_out)
    except OSError as error:
        raise StoreError(
            f"case {directory.name} cannot be archived at {url}: {error.strerror or error}"
        ) from error
    return url
