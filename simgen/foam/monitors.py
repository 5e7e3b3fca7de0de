"""Read what OpenFOAM's function objects wrote, and judge whether a steady run has settled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from simgen.errors import CaseError
from simgen.foam.log import SolverLog

#: Iterations at the end of a steady run over which a monitor must stand still; in a run that
#: reached its residual targets, at most this share of all.
SETTLED_OVER, SETTLED_SHARE = 200, 0.2
#: A residual has stalled if its mean over the last tenth of the run is not below this share of its
#: mean over the tenth before.
STALLED_SHARE = 0.9


def read_series(directory: Path, name: str, last: float, file: str = "*.dat") -> np.ndarray:
    """Read what the function object `name` wrote: (T, 1 + C), time (or iteration) and values.

    `file` names one of its files where it writes several, such as force.dat and moment.dat. Raises
    CaseError where it wrote none, where a row is damaged, and where the rows end before `last`, the
    solver's last time: a disk that was full for a while cuts them off.
    """
    files = sorted(
        directory.glob(f"postProcessing/{name}/*/{file}"), key=lambda path: float(path.parent.name)
    )
    try:
        rows = np.array(
            [
                [float(entry) for entry in line.replace("(", " ").replace(")", " ").split()]
                for path in files
                for line in path.read_text().splitlines()
                if line and not line.startswith("#")
            ]
        )
    except ValueError as error:
        raise CaseError(
            f"monitor {name} below {directory}/postProcessing has a damaged row"
        ) from error
    if not len(rows):
        raise CaseError(f"monitor {name} wrote nothing below {directory}/postProcessing")
    if rows[-1, 0] < last * (1 - 1e-6):
        raise CaseError(
            f"monitor {name} below {directory}/postProcessing ends at {rows[-1, 0]:g}, the solver"
            f" at {last:g}"
        )
    return rows


def read_patch_ranges(
    directory: Path, name: str = "yPlus"
) -> dict[str, tuple[float, float, float]]:
    """Read patch -> (least, greatest, mean), as a function object such as yPlus wrote them last.

    CaseError where a row is damaged.
    """
    ranges: dict[str, tuple[float, float, float]] = {}
    for path in sorted(
        directory.glob(f"postProcessing/{name}/*/*.dat"), key=lambda path: float(path.parent.name)
    ):
        for line in path.read_text().splitlines():
            if line and not line.startswith("#"):
                try:
                    _, patch, least, greatest, mean = line.split()
                    ranges[patch] = (float(least), float(greatest), float(mean))
                except ValueError as error:
                    raise CaseError(f"monitor {name}, {path}, has a damaged row") from error
    return ranges


def y_plus_figures(directory: Path) -> dict[str, float]:
    """Return y_plus_min and y_plus_max over all walls, and y_plus_mean over the walls' means.

    They are the function object yPlus's last values; CaseError where it wrote none.
    """
    ranges = read_patch_ranges(directory)
    if not ranges:
        raise CaseError(f"monitor yPlus wrote nothing below {directory}/postProcessing")
    least, greatest, mean = zip(*ranges.values(), strict=True)
    return {
        "y_plus_min": float(np.min(least)),
        "y_plus_max": float(np.max(greatest)),
        "y_plus_mean": float(np.mean(mean)),
    }


def residual_figures(log: SolverLog) -> dict[str, float]:
    """Return max_residual and residuals_stalled.

    The first is the greatest initial residual of the last iteration; the second counts the
    residuals that no longer fall.
    """
    return {
        # NaN stays, where max() would depend on the order.
        "max_residual": float(np.max([*log.last_residuals.values()] or [np.nan])),
        "residuals_stalled": float(sum(stalled(history) for history in log.residuals.values())),
    }


def settling_window(num_iterations: int, max_iterations: float) -> int:
    """Return the iterations at the end of a run over which its monitors must stand still.

    If a run reaches its residual targets early, its monitors may still be settling 200 iterations
    before the end; that is not drift.
    """
    ended_early = num_iterations < max_iterations
    return min(SETTLED_OVER, int(SETTLED_SHARE * num_iterations)) if ended_early else SETTLED_OVER


def drift(values: Sequence[float] | np.ndarray, last: int = SETTLED_OVER) -> float:
    """Return (greatest - least) / |mean| of a monitor's last values; NaN for fewer than two."""
    tail = np.asarray(values, dtype=float)[-last:]
    if len(tail) < 2:
        return float("nan")
    return float(np.ptp(tail) / max(abs(tail.mean()), 1e-300))


def stalled(history: Sequence[tuple[float, float]]) -> bool:
    """Tell whether a residual's history of (iteration, residual) no longer falls at its end."""
    residuals = np.log(np.maximum([residual for _, residual in history], 1e-300))
    tenth = len(residuals) // 10
    if tenth == 0:
        return False
    return bool(
        np.exp(residuals[-tenth:].mean() - residuals[-2 * tenth : -tenth].mean()) > STALLED_SHARE
    )
