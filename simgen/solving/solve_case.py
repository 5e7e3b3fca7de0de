"""Solve one design point: the function that a worker runs.

It never raises for a bad case: a mesher or solver error becomes `failed`, a gate that does not pass
`rejected`, both with one line of reason. It raises InputError where the machine cannot solve, since
every case would fail alike, and MachineError where the machine ended this case (a killed solver, a
full disk), which another attempt may solve.

A finished solve is marked by `result.json` in its directory, written last; the same call again
reads it instead of solving. A directory without the mark was interrupted and is started afresh,
because a half-written time directory would corrupt a restart. All of this happens under the case's
lock.
"""

import contextlib
import json
import logging
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from simgen.case import CaseFamily, CaseResult, Gate, Progress, SolvedCase
from simgen.cases import get_family
from simgen.design_space import DesignPoint
from simgen.errors import CaseError, MachineError, OutOfMemoryError
from simgen.foam.log import SolverLog
from simgen.foam.run import APPLICATIONS, find_openfoam, run_solver
from simgen.meshing import check_mesh
from simgen.provenance import generator_version, host_class, source_revision
from simgen.solving.case_lock import await_orphans, own_case, scratch_errors
from simgen.solving.gates import check_patches, judge, measure, rejection
from simgen.solving.preparation import write_case
from simgen.whole_file import whole_file

logger = logging.getLogger(__name__)

OnProgress = Callable[[Progress], None]

NAME = "result.json"
PROGRESS_INTERVAL_S = 1.0
MOST_KILLS = 3
"""Times that a case may run out of memory, in any runs on this machine, until it is failed"""
FULL = 5_000_000  # With fewer free bytes than this, a failure is attributed to the full disk


def full_disk(directory: Path) -> str:
    """Return `full (1.2 MB free)`; empty where there is room."""
    free = shutil.disk_usage(directory).free
    return f"full ({free / 1e6:.1f} MB free)" if free < FULL else ""


def write_result(result: CaseResult, directory: Path) -> None:
    """Mark the case as ended; the file appears complete or not at all."""
    record = asdict(result)
    record.pop("point")
    with whole_file(directory / NAME) as part:
        part.write_text(json.dumps(record))


def read_result(point: DesignPoint, directory: Path) -> CaseResult | None:
    """Read the result of the case in `directory`; None if it was interrupted, or is damaged."""
    try:
        record: dict[str, Any] = json.loads((directory / NAME).read_text())
        gates = tuple(Gate(**gate) for gate in record.pop("gates"))
        return CaseResult(point, gates=gates, **record)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def solve_case(
    point: DesignPoint,
    scratch: Path,
    *,
    on_progress: OnProgress | None = None,
    time_limit_s: float | None = None,
    cores: int = 1,
) -> CaseResult:
    """Mesh, solve and judge one design point under `scratch`/<id>.

    `time_limit_s` bounds the wall time of the meshing, that of the solver, and that of each other
    application. On more than one core the solver runs under MPI. Waits while another process has
    the case.
    """
    with own_case(point.id, scratch):
        return solve_owned(point, scratch / point.id, on_progress, time_limit_s, cores)


def solve_owned(
    point: DesignPoint,
    directory: Path,
    on_progress: OnProgress | None,
    time_limit_s: float | None,
    cores: int,
) -> CaseResult:
    """Solve like `solve_case`, for a caller that owns the case's directory."""
    family = get_family(point.family)
    marked = read_result(point, directory)
    # One that failed before it was stored may have had less time or another number of cores.
    if marked and marked.status != "failed":
        return marked
    applications = needed_applications(family, cores)
    version = find_openfoam(applications)
    with scratch_errors(directory.parent):
        if directory.exists():
            await_orphans(directory, applications)
            shutil.rmtree(directory)
        directory.mkdir()
    case = SolvedCase(point, directory)
    try:
        result = _solve(family, case, version, on_progress, time_limit_s, cores)
    except MachineError as error:
        # What it has written would keep a full disk full.
        shutil.rmtree(directory, ignore_errors=True)
        logger.error("lost: %s", error)
        raise MachineError(f"case {point.id}: {error}") from error
    _kills_file(directory).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # full disk: without the mark the case is solved again
        write_result(result, directory)
    return result


def _kills_file(directory: Path) -> Path:
    """Return where a byte is for each time that a case was killed; beside its directory."""
    return directory.with_name(f".{directory.name}.kills")


def needed_applications(family: CaseFamily, cores: int = 1) -> tuple[str, ...]:
    """Name the programs that a case of this family runs."""
    parallel = APPLICATIONS if cores > 1 else ()
    return (family.application, "checkMesh", "gmshToFoam", *family.preparation, *parallel)


def _solve(
    family: CaseFamily,
    case: SolvedCase,
    version: str,
    on_progress: OnProgress | None,
    time_limit_s: float | None,
    cores: int,
) -> CaseResult:
    provenance: dict[str, Any] = {
        "solver": family.application,
        "solver_version": f"OpenFOAM {version}",
        "generator_version": generator_version(),
        "source_revision": source_revision(),
        "host_class": host_class(),
        "cores": cores,
        "settings": dict(case.point.settings),
        "wall_time_s": {},
    }
    started = solving = reported = time.perf_counter()

    def report(log: SolverLog) -> None:
        """Report a step, at most one a second, and always the last one."""
        nonlocal reported
        now = time.perf_counter()
        if on_progress and (log.finished or now - reported >= PROGRESS_INTERVAL_S):
            reported = now
            end = case.point.settings[family.horizon]
            fraction = 1.0 if log.finished else min(1.0, log.time / end)
            eta = (now - solving) * (1 - fraction) / fraction if fraction > 0 else None
            note = f"t = {log.time:.6g} of {end:g} s, max Courant number {log.max_courant:.2f}"
            if not family.transient:
                greatest = max(log.last_residuals.values(), default=float("nan"))
                note = f"iteration {log.time:.0f} of at most {end:g}, residual {greatest:.1e}"
            on_progress(Progress(case.point.id, "solving", fraction, note, eta))

    try:
        if on_progress:
            on_progress(Progress(case.point.id, "meshing", 0.0, "meshing"))
        logger.info("meshing in %s", case.directory)
        write_case(case.point, case.directory, time_limit_s)
        mesh = provenance["mesh"] = check_mesh(case.directory, time_limit_s)
        check_patches(family, case.directory)
        solving = time.perf_counter()
        provenance["wall_time_s"]["mesh"] = solving - started
        logger.info("%d cells meshed in %.1f s, solving", mesh["num_cells"], solving - started)
        log, seconds = run_solver(
            family.application, case.directory, cores, on_step=report, time_limit_s=time_limit_s
        )
        report(log)
        provenance["wall_time_s"]["solve"] = seconds
        if log.cpu_s is not None:
            provenance["cpu_time_s"] = {"solve": log.cpu_s * cores}
        logger.info("%s ended after %.1f s on %d cores", family.application, seconds, cores)
        provenance["residuals"] = dict(log.residuals)
        figures = measure(family, case, mesh, log)
        provenance["figures"] = figures
        gates = judge(family, case, figures)
    except CaseError as error:
        reason = str(error).replace(f"{case.directory}/", "")
        if trouble := disk_trouble(case.directory, meshed="mesh" in provenance):
            raise MachineError(f"{reason}; {trouble}") from error
        logger.info("failed: %s", reason)
        return CaseResult(
            case.point, "failed", reason, log_tail=error.log_tail, provenance=provenance
        )
    except OutOfMemoryError as error:
        kills = _kills_file(case.directory)
        num_kills = 1 + (len(kills.read_bytes()) if kills.exists() else 0)
        if num_kills < MOST_KILLS:
            kills.write_bytes(b"." * num_kills)
            raise
        reason = (
            f"{error} It was killed {num_kills} times: give more memory, fewer cases at once or"
            " more --cores, with --retry-failed"
        )
        logger.info("failed: %s", reason)
        return CaseResult(case.point, "failed", reason, provenance=provenance)
    except OSError as error:
        reason = f"{case.directory} could not be written: {error.strerror}"
        trouble = disk_trouble(case.directory)
        raise MachineError(f"{reason}; {trouble}" if trouble else reason) from error
    reason = rejection(gates)
    passed = sum(gate.passed for gate in gates)
    logger.info("%d of %d gates passed%s", passed, len(gates), f": {reason}" if reason else "")
    tail = "\n".join(log.tail) if reason else ""
    return CaseResult(
        case.point, "rejected" if reason else "accepted", reason, tuple(gates), tail, provenance
    )


def disk_trouble(directory: Path, *, meshed: bool = False) -> str:
    """Report that the scratch disk is full, or the case's directory was removed; else empty."""
    # A solver that still writes makes parts of a removed directory anew, but not the mesh.
    if not (directory / ("constant/polyMesh/boundary" if meshed else "")).exists():
        return f"{directory} was removed"
    full = full_disk(directory)
    return f"the scratch disk is {full}: choose another with COURANT_SCRATCH" if full else ""
