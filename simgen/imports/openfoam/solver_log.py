"""Read what a case's dictionaries and log say of its solver, and judge it as far as they allow."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simgen.case import Gate
from simgen.errors import CaseError, InputError
from simgen.foam.log import SolverLog
from simgen.imports.openfoam.dictionary import read_entry
from simgen.imports.openfoam.finding import has_file
from simgen.solving.gates import rejection

_EXEC = re.compile(r"^Exec\s*:\s*(?:\S*/)?([\w.-]+)", re.MULTILINE)
_VERSION = re.compile(r"^(?:Version|Build)\s*:\s*(\S+)", re.MULTILINE)
_HEAD = 8192
FIGURES = ("courant", "continuity", "residual")
"""What a log tells of a solve, and what a limit may be set on"""


@dataclass(frozen=True)
class SolverControl:
    """What the dictionaries say of a solve; empty and None where they say nothing."""

    application: str = ""
    end_time: float | None = None
    is_steady: bool | None = None


@dataclass(frozen=True)
class FoundLog:
    """The newest log of the case's solver."""

    path: Path
    version: str
    log: SolverLog


def read_control(directory: Path, region: str = "") -> SolverControl:
    """Read system/controlDict and fvSchemes; CaseError where they are there and damaged.

    A region has schemes of its own in system/<region>.
    """
    control, schemes = directory / "system/controlDict", directory / "system/fvSchemes"
    own = directory / "system" / region / "fvSchemes"
    schemes = own if has_file(own) else schemes
    application, end, stop = "", None, "endTime"
    if has_file(control):
        application = read_entry(control, ["application"]) or ""
        stop = read_entry(control, ["stopAt"]) or stop
        end = _number(read_entry(control, ["endTime"]))
    scheme = read_entry(schemes, ["ddtSchemes", "default"]) if has_file(schemes) else None
    # localEuler steps each cell by a time of its own: its times are iterations.
    steady = None if scheme is None else scheme.startswith(("steadyState", "localEuler"))
    return SolverControl(application, end if stop == "endTime" else None, steady)


def find_log(directory: Path, application: str) -> FoundLog | None:
    """Return the newest log of this application; of whatever solver, if it is not known."""
    found: list[tuple[float, Path, str]] = []
    for path in {*directory.glob("log*"), *directory.glob("*.log")}:
        if not path.is_file():
            continue
        with path.open(errors="replace") as file:
            head = file.read(_HEAD)
        program = _EXEC.search(head)
        if program and (program[1] == application if application else "Time = " in head):
            release = _VERSION.search(head)
            found.append((path.stat().st_mtime, path, release[1] if release else ""))
    if not found:
        return None
    _, path, version = max(found)
    log = SolverLog()
    with path.open(errors="replace") as file:
        for line in file:
            log.read(line.rstrip("\n"))
    return FoundLog(path, version, log)


def check_finished(last_time: float, control: SolverControl, found: FoundLog | None) -> bool | None:
    """Tell whether the solver came to its end; None where nothing tells.

    CaseError says how it can be known that it did not.
    """
    if found is not None and found.log.finished:
        return True
    end = control.end_time
    if end is not None and last_time >= end * (1 - 1e-6):
        return True
    if found is not None:
        why = f": {found.log.fatal}" if found.log.fatal else ", which has no End"
        raise CaseError(
            f"it is unfinished: its last time is {last_time:g}, and see {found.path.name}{why}"
        )
    if end is None:
        return None
    raise CaseError(
        f"it is unfinished: its last time is {last_time:g}, controlDict's endTime is {end:g}, and"
        " no log says that it converged before; --allow-unfinished takes it as it is"
    )


def figures_of(found: FoundLog | None) -> dict[str, float]:
    """Return the figures that the log holds, by the names of `FIGURES`."""
    if found is None:
        return {}
    log = found.log
    residuals = list(log.last_residuals.values())
    figures = {"residual": float(np.max(residuals))} if residuals else {}
    if log.max_courant != 0:  # NaN too, which passes no limit
        figures["courant"] = log.max_courant
    if log.last_continuity_error != 0:
        figures["continuity"] = log.last_continuity_error
    return figures


def parse_limits(texts: list[str]) -> dict[str, float]:
    """Parse `courant=1`; InputError lists what can be limited."""
    limits = {}
    for text in texts:
        name, _, value = (part.strip() for part in text.partition("="))
        limit = _number(value)
        if name not in FIGURES or limit is None or not math.isfinite(limit):
            raise InputError(
                f"'{text}' is no limit; expected NAME=NUMBER with one of {', '.join(FIGURES)}"
            )
        limits[name] = limit
    return limits


def check_limits(figures: Mapping[str, float], limits: Mapping[str, float]) -> None:
    """Raise CaseError for a figure that is known and beyond its limit."""
    if why := rejection(list(gates_of(None, figures, limits, 0.0))):
        raise CaseError(why)


def gates_of(
    finished: bool | None, figures: Mapping[str, float], limits: Mapping[str, float], time: float
) -> tuple[Gate, ...]:
    """Return the gates that can be judged: those whose figure is known."""
    end = () if finished is None else (Gate("solver finished", time, "End", finished),)
    return end + tuple(
        Gate.at_most(f"{name} in the log", figures[name], limit)
        for name, limit in limits.items()
        if name in figures
    )


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
