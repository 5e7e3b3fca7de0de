"""What thousands of cases cost beside their solving: the stage `generate`, a solver that sleeps.

Everything else is the real thing: designs, worker processes, arrays in the store, commits, the
publication. Clouds are small, since their size is a matter of the workers. The
dataset is grown to each size at once (`grown_dataset`), and then the flow adds some cases, so that
the costs of a case are those at that size. The workers are as many as this machine carries; they
sleep so shortly that the driver is as busy as it can be. Costs are core-seconds,
which other work on the machine hardly touches.

The second table extrapolates them to 10,000 cases by straight lines, and simulates a campaign of so
many on 500 workers with them (`campaign_simulation`).

python -m bench.bench_campaign --sizes 500 1000 2000 4000 --measured 200 --workers 24
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.campaign_simulation import Costs, simulate
from bench.grown_dataset import grow
from bench.synthetic_cases import FAMILY, SCHEMA, synthetic_cloud, synthetic_result
from flows.solving import SolvedFork
from simgen.design_space import DesignPoint
from simgen.store.write import CaseFork

SIZES, MEASURED, WORKERS = (500, 1_000, 2_000, 4_000), 200, 24
SNAPSHOTS = 6
SLEEP_S = 0.5
ALL_CASES, SIMULATED_WORKERS = 10_000, 500
#: Time of a case: trial cylinders take 16 s to 30 s, trial pipes and pumps up to 80 s, cases of the
#: paper's size minutes to an hour.
CASE_S = (8.0, 16.0, 30.0, 80.0, 300.0, 3_600.0)
BAR, MEMORY_BAR_GB = 0.95, 2.0


def solve_by_sleeping(point: DesignPoint, fork: CaseFork, *_: object) -> SolvedFork:
    """Write a made-up case after a while, in place of `flows.solving.solve`."""
    time.sleep(SLEEP_S * np.random.default_rng().uniform(0.5, 1.5))
    result = replace(synthetic_result(0, SNAPSHOTS), point=point)
    fork.write(result, synthetic_cloud(40, 12, SNAPSHOTS))
    return SolvedFork(fork, point.id, result.status, "", SLEEP_S)


def main(out: Path, short: bool) -> None:
    """Print both tables, write campaign.json."""
    run(out, (30, 60), 16, 4) if short else run(out, SIZES, MEASURED, WORKERS)


def run(out: Path, sizes: tuple[int, ...], measured: int, workers: int) -> None:
    """Measure `measured` cases at each size of the dataset."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        os.environ["COURANT_SCRATCH"] = f"{folder}/scratch"
        rows = _measure(f"{folder}/store", sizes, measured, workers)
    record = {"workers": workers, "sleep_s": SLEEP_S, "rows": rows, **_extrapolated(rows)}
    (out / "campaign.json").write_text(json.dumps(record, indent=2))
    _print(record)


def _measure(
    store: str, sizes: tuple[int, ...], measured: int, workers: int
) -> list[dict[str, Any]]:
    from flows import solving
    from flows.stages.generation import Generation
    from simgen.store.write import DatasetWriter

    settings = {"end_time": float(SNAPSHOTS)}
    values = FAMILY.settings("trial", settings)
    points = [FAMILY.point(each, values) for each in FAMILY.design_space.sample(max(sizes))]
    rows = []
    # As many processes as there are workers, whatever the machine's cores.
    with patch("flows.executor.usable_cores", lambda: workers):
        for size in sizes:
            grow(f"{store}/{SCHEMA.family}", points[: size - measured], SNAPSHOTS)
            commits, solved = _Watch(), _Watch()
            began = time.process_time()
            with (
                patch.object(DatasetWriter, "commit", commits.around(DatasetWriter.commit)),
                patch.object(solving, "solve", solve_by_sleeping),
                patch.object(solving, "solve_cases", solved.around(solving.solve_cases)),
            ):
                Generation(cases=size, settings=settings, store=store).execute()
            rest_s = time.process_time() - began - solved.seconds
            row = {
                "cases": size,
                "measured": measured,
                "cases_per_s": measured / solved.wall_s,
                "commits": commits.calls,
                "commit_s": commits.seconds / commits.calls,
                "driver_s": (solved.seconds - commits.seconds) / measured,
                "before_and_after_s": rest_s,
                "driver_gb": _resident_gb(),
            }
            rows.append(row)
            print(json.dumps(row), flush=True)
    return rows


class _Watch:
    """Core-seconds of this process that pass within calls of a function."""

    def __init__(self) -> None:
        self.calls, self.seconds, self.wall_s = 0, 0.0, 0.0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*given: Any, **named: Any) -> Any:
            began, at = time.process_time(), time.perf_counter()
            try:
                return function(*given, **named)
            finally:
                self.calls += 1
                self.seconds += time.process_time() - began
                self.wall_s += time.perf_counter() - at

        return watched


def _resident_gb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e9


def _extrapolated(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Fit straight lines over the size of the dataset; simulate with their values."""
    sizes = [row["cases"] for row in rows]

    def line(value: Callable[[dict[str, Any]], float]) -> tuple[float, float]:
        slope, base = statistics.linear_regression(sizes, [value(row) for row in rows])
        return slope, base

    def at_the_end(value: Callable[[dict[str, Any]], float]) -> float:
        """By the line, and no less than at any size measured."""
        slope, base = line(value)
        return max(base + slope * ALL_CASES, *(value(row) for row in rows))

    slope, base = line(lambda row: row["commit_s"])
    costs = Costs(
        submit_s=at_the_end(lambda row: row["driver_s"]),
        commit_base_s=max(base, 0.0),
        commit_slope_s=slope,
    )
    simulated = [
        {"case_s": case_s, **asdict(simulate(costs, ALL_CASES, SIMULATED_WORKERS, case_s))}
        for case_s in CASE_S
    ]
    return {
        "costs": asdict(costs),
        "commit_s_at_the_end": costs.commit_s(ALL_CASES),
        "before_and_after_s_at_the_end": at_the_end(lambda row: row["before_and_after_s"]),
        "driver_gb_at_the_end": at_the_end(lambda row: row["driver_gb"]),
        "simulated": simulated,
    }


def _print(record: dict[str, Any]) -> None:
    title = f"{record['workers']} workers, cases of {record['sleep_s']:g} s; core-milliseconds"
    table = Table("cases on record", "driver, a case", "driver, a commit", title=title)
    for column in ("before and after, s", "driver, GB"):
        table.add_column(column)
    for row in record["rows"]:
        table.add_row(
            f"{row['cases']:,}",
            f"{1e3 * row['driver_s']:.1f}",
            f"{1e3 * row['commit_s']:.0f}",
            f"{row['before_and_after_s']:.1f}",
            f"{row['driver_gb']:.2f}",
        )
    table.add_row(
        f"{ALL_CASES:,} (lines)",
        f"{1e3 * record['costs']['submit_s']:.1f}",
        f"{1e3 * record['commit_s_at_the_end']:.0f}",
        f"{record['before_and_after_s_at_the_end']:.1f}",
        f"{record['driver_gb_at_the_end']:.2f} (aim {MEMORY_BAR_GB:g})",
    )
    Console(width=140).print(table)
    title = f"{ALL_CASES:,} cases on {SIMULATED_WORKERS} workers, simulated"
    model = Table("a case takes", "utilisation", "driver busy", "commits", "hours")
    model.title = title
    for row in record["simulated"]:
        model.add_row(
            f"{row['case_s']:g} s",
            f"{row['utilisation']:.3f} (aim {BAR})",
            f"{row['driver_busy']:.2f}",
            f"{row['num_commits']:,}",
            f"{row['wall_s'] / 3600:.2f}",
        )
    Console(width=100).print(model)


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    asked.add_argument("--measured", type=int, default=MEASURED)
    asked.add_argument("--workers", type=int, default=WORKERS)
    asked.add_argument("--out", type=Path, default=Path("bench-out"))
    given = asked.parse_args()
    given.out.mkdir(exist_ok=True)
    run(given.out, tuple(given.sizes), given.measured, given.workers)
