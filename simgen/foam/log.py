"""Parse what an OpenFOAM application prints while it runs, and the files of function objects."""

import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

import numpy as np

from simgen.errors import CaseError
from simgen.foam.mesh import time_of

TAIL_LINES = 40
HISTORY_POINTS = 400
MOST_OF_ERROR = 300

_TIME = re.compile(r"^(?:Time =|Iteration:) ([-+.\deE]+)s?$")
_RANK = re.compile(r"^\[\d+\]\s?")
_FATAL = re.compile(r"^--> FOAM FATAL (?:IO )?ERROR\s*:(.*)$")
_RELEASE = re.compile(r"\(openfoam-[^()]*\)")
_RESIDUAL = re.compile(r"Solving for (\S+), Initial residual = ([-+.\deEinfa]+)")
_COURANT = re.compile(r"(?:Region: \S+ )?Courant Number mean|Mean and max Courant Numbers")
_NUMBER_AFTER = re.compile(r"(?:max:|Numbers = \S+) ([-+.\deEinfa]+)")
_CPU = re.compile(r"ExecutionTime = ([\d.eE+-]+) s")
_WALL = re.compile(r"ClockTime = ([\d.eE+-]+) s")
_CONTINUITY = re.compile(r"sum local = ([-+.\deEinfa]+)")


@dataclass
class SolverLog:
    """Running figures of one solver run; feed it each printed line."""

    time: float = 0.0
    num_steps: int = 0
    max_courant: float = 0.0
    last_continuity_error: float = 0.0
    finished: bool = False
    cpu_s: float | None = None
    """Processor time so far, of one process of a parallel run; None where it prints none"""
    wall_s: float = np.nan  # In whole seconds, as OpenFOAM counts them
    residuals: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    last_residuals: dict[str, float] = field(default_factory=dict)
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))
    fatal: str = ""  # OpenFOAM's own words for the error that ended it, in one line
    _in_fatal_message: bool = False
    _stride: int = 1
    _seen_this_step: set[str] = field(default_factory=set)

    def read(self, line: str) -> bool:
        """Parse one line; return True if it opened a new time step."""
        if line:
            self.tail.append(line)
        if line.startswith(("Time = ", "Iteration: ")):
            if not (found := _TIME.match(line)):
                return False
            self.time, self.num_steps = float(found[1]), self.num_steps + 1
            # A log may have several runs, one after the other: only the last one counts.
            self.finished, self.fatal, self._in_fatal_message = False, "", False
            self._seen_this_step.clear()
            return True
        self._read_error(line)
        if " Solving for " in line:
            found = _RESIDUAL.search(line)
            # The first solve of a step shows how far the step began from its solution; PISO's later
            # correctors do not.
            if not found or found[1] in self._seen_this_step:
                return False
            name, residual = found[1], float(found[2])
            self._seen_this_step.add(name)
            self.last_residuals[name] = residual
            if self.num_steps % self._stride:
                return False
            self.residuals.setdefault(name, []).append((self.time, residual))
            if len(self.residuals[name]) > HISTORY_POINTS:
                self._stride *= 2
                self.residuals = {each: past[::2] for each, past in self.residuals.items()}
        elif _COURANT.match(line):
            # NaN stays, where max() would depend on the order.
            self.max_courant = float(np.maximum(self.max_courant, _number(_NUMBER_AFTER, line)))
        elif line.startswith("time step continuity errors"):
            self.last_continuity_error = _number(_CONTINUITY, line)
        elif line.startswith("ExecutionTime = "):
            self.cpu_s, self.wall_s = _number(_CPU, line), _number(_WALL, line)
        elif line == "End":
            self.finished = True
        return False

    def _read_error(self, line: str) -> None:
        """Parse the lines of a fatal error's message, which an empty one ends."""
        line = _RANK.sub("", line)
        if found := _FATAL.match(line):
            if not self.fatal:  # further processes of a parallel run print the same
                self.fatal, self._in_fatal_message = _RELEASE.sub("", found[1]).strip(), True
            self.finished = False
        elif "sigFpe::sigHandler" in line and not self.fatal:
            self.fatal = "floating point exception"
        elif self.fatal and line.startswith("file: "):
            place = line.removeprefix("file: ").strip(" .")
            named = place.partition(" at line")[0].partition(" from line")[0] in self.fatal
            self.fatal += f", in {place}" * (not named)
        elif self._in_fatal_message:
            words = line.strip()
            self._in_fatal_message = bool(words or not self.fatal) and not words.startswith("From ")
            if self._in_fatal_message:
                self.fatal = f"{self.fatal} {words}".strip()[:MOST_OF_ERROR]


def _number(pattern: re.Pattern[str], line: str) -> float:
    found = pattern.search(line)
    return float(found[1]) if found else float("nan")


def mesh_figures(check_mesh_log: str) -> dict[str, float]:
    """Parse checkMesh's output: num_cells, max_non_orthogonality (degrees), failed_checks, …"""
    figures = {"failed_checks": 0.0}
    for name, pattern in {
        "num_cells": r"^\s*cells:\s+(\d+)",
        "max_non_orthogonality": r"non-orthogonality Max: ([\d.eE+-]+)",
        "max_skewness": r"Max skewness = ([\d.eE+-]+)",
        "max_aspect_ratio": r"Max aspect ratio = ([\d.eE+-]+)",
        "failed_checks": r"Failed (\d+) mesh checks",
    }.items():
        if found := re.search(pattern, check_mesh_log, re.MULTILINE):
            figures[name] = float(found[1])
    return figures


#: Iterations over which a monitor must stay the same; at most this share of a run that ended early.
SETTLED_OVER, SETTLED_SHARE = 200, 0.2
#: A residual has stalled if its mean over the last tenth of the run is not below this share of its
#: mean over the tenth before.
STALLED_SHARE = 0.9
Rows = list[list[str]]
_AGAIN = re.compile(r"(.+)_(\d+\.?\d*(?:e[+-]\d+)?)\.dat")


def series_files(directory: Path, name: str) -> dict[str, dict[float, Path]]:
    """List what the function object `name` wrote: each file's parts by the time they begin at.

    A run that begins beside an earlier one's `force.dat` leaves that, and writes `force_0.dat`.
    """
    found: dict[str, dict[float, Path]] = {}
    for path in sorted(directory.glob(f"postProcessing/{name}/*/*.dat")):
        start, of = time_of(path.parent.name), path.name
        if (again := _AGAIN.fullmatch(of)) and path.with_name(f"{again[1]}.dat").exists():
            start, of = float(again[2]), f"{again[1]}.dat"
        if start is not None:
            found.setdefault(of, {})[start] = path
    return found


def _read_rows(
    directory: Path, name: str, file: str, parse: Callable[[Rows], np.ndarray]
) -> np.ndarray:
    """Parse the rows that the function object `name` wrote, in order of time, without brackets.

    Those that a restart from an earlier time replaced are left out.
    """
    monitor = f"monitor {name} below {directory}/postProcessing"
    parts = series_files(directory, name).items()
    begun = {time: path for of, times in parts if fnmatch(of, file) for time, path in times.items()}
    begin = sorted(begun)
    try:
        rows = [
            row
            for start, end in zip(begin, [*begin[1:], np.inf], strict=False)
            for line in begun[start].read_text().splitlines()
            if line.strip() and not line.startswith("#")
            if float((row := re.sub("[()]", " ", line).split())[0]) <= end
        ]
        if not rows:
            raise CaseError(f"{monitor} wrote nothing")
        return parse(rows)
    except ValueError as error:
        raise CaseError(f"{monitor} has a damaged row") from error


def read_series(directory: Path, name: str, last: float, file: str = "*.dat") -> np.ndarray:
    """Read what the function object `name` wrote: (T, 1 + C), time (or iteration) and values.

    `file` names one of its files where it writes several. CaseError where it wrote none, where a
    row is damaged, and where the rows end before `last`, the solver's last time: a disk that was
    full for a while cuts them off.
    """
    rows = _read_rows(directory, name, file, lambda rows: np.array(rows, dtype=float))
    if rows[-1, 0] < last * (1 - 1e-6):
        raise CaseError(
            f"monitor {name} below {directory}/postProcessing ends at {rows[-1, 0]:g}, the solver"
            f" at {last:g}"
        )
    return rows


def y_plus_figures(directory: Path) -> dict[str, float]:
    """Return y_plus_min and y_plus_max over all walls, and y_plus_mean over the walls' means.

    They are the function object yPlus's last values; CaseError as of `read_series`.
    """

    def last_of_each(rows: Rows) -> np.ndarray:
        of_patch = {patch: (least, greatest, mean) for _, patch, least, greatest, mean in rows}
        return np.array(list(of_patch.values()), dtype=float)

    least, greatest, mean = _read_rows(directory, "yPlus", "*.dat", last_of_each).T
    return {
        "y_plus_min": float(np.min(least)),
        "y_plus_max": float(np.max(greatest)),
        "y_plus_mean": float(np.mean(mean)),
    }


def residual_figures(log: SolverLog) -> dict[str, float]:
    """Return the greatest initial residual of the last iteration, and how many no longer fall."""
    return {
        # NaN stays, where max() would depend on the order.
        "max_residual": float(np.max([*log.last_residuals.values()] or [np.nan])),
        "residuals_stalled": float(sum(stalled(history) for history in log.residuals.values())),
    }


def settling_window(num_iterations: int, max_iterations: float) -> int:
    """Return over how many iterations at its end a run's monitors must stay the same.

    In a run that ended early they may still be settling 200 iterations before; that is not drift.
    """
    ended_early = num_iterations < max_iterations
    return min(SETTLED_OVER, int(SETTLED_SHARE * num_iterations)) if ended_early else SETTLED_OVER


def drift(values: Sequence[float] | np.ndarray, last: int = SETTLED_OVER) -> float:
    """Return (greatest - least) / |mean| of a monitor's last values; NaN for fewer than two."""
    tail = np.asarray(values, dtype=float)[-last:]
    return float(np.ptp(tail) / max(abs(tail.mean()), 1e-300)) if len(tail) > 1 else float("nan")


def stalled(history: Sequence[tuple[float, float]]) -> bool:
    """Return whether a residual's history of (iteration, residual) no longer falls at its end."""
    residuals = np.log(np.maximum([residual for _, residual in history], 1e-300))
    tenth = len(residuals) // 10
    if tenth == 0:
        return False
    fall = residuals[-tenth:].mean() - residuals[-2 * tenth : -tenth].mean()
    return bool(np.exp(fall) > STALLED_SHARE)
