"""What thousands of cases cost beside their solving: the stage `generate`, a solver that sleeps.

Everything else is the real thing: designs, worker processes, arrays in the store, commits, the
publication. Clouds are small, since their size is a matter of the workers. The dataset is grown to
each size at once, by copies of one case that was written by the real writer, and then the flow adds
some cases, so that the costs of a case are those at that size. The workers are as many as this
machine can run; they sleep so shortly that the driver is as busy as it can be. Costs are
core-seconds, which other work on the machine hardly touches.

The second table extrapolates them to 10,000 cases by straight lines, and simulates a campaign of so
many on 500 workers with them: one driver submits cases, takes their results and commits them, one
thing at a time and in the order of `flows.solving`, where cases that end shortly after a commit
share the next one.

    python -m bench.bench_campaign --sizes 500 1000 2000 4000 --measured 200 --workers 24
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import icechunk
import numpy as np
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from bench.report import publish, show
from bench.synthetic_cases import FAMILY, SCHEMA, synthetic_cloud, synthetic_result
from flows.solving import COMMIT_SHARE as SHARE
from flows.solving import LAST_OF_EACH, SolvedFork, longest_first_at_the_end
from simgen.design_space import DesignPoint
from simgen.store.versions import BRANCH, open_repository
from simgen.store.write import CaseFork, CaseRecord, DatasetWriter, append_cases

#: Seconds of a family's cases differ by about as much: of the cylinder's trial cases, the shortest
#: takes half as long as the longest.
SPREAD = 1 / 3


@dataclass(frozen=True)
class Costs:
    """Core-seconds; those that depend on the number of cases on record are `base + slope * N`."""

    submit_s: float
    """Driver: submitting a case, and taking its result"""
    commit_base_s: float
    commit_slope_s: float
    """Driver: a commit"""

    def commit_s(self, num_on_record: int) -> float:
        """Time of a commit."""
        return self.commit_base_s + self.commit_slope_s * num_on_record


@dataclass(frozen=True)
class Simulated:
    """What came out."""

    utilisation: float
    """The cases' own time over that of all workers, from the first submission to the last commit"""
    wall_s: float
    num_commits: int
    driver_busy: float


def simulate(costs: Costs, cases: int, workers: int, case_s: float, seed: int = 0) -> Simulated:
    """Simulate a campaign of cases of `case_s` on average."""
    drawn = np.random.default_rng(seed).uniform(1 - SPREAD, 1 + SPREAD, cases) * case_s
    left = iter(longest_first_at_the_end(list(drawn), float, LAST_OF_EACH * workers))
    ends: list[float] = []  # of running cases
    queue: deque[tuple[float, float]] = deque()  # submitted cases, and when; no worker is free
    now = busy = not_before = 0.0
    free, waiting, on_record, commits = workers, 0, 0, 0
    upcoming = next(left, None)

    def begin(at: float) -> None:
        nonlocal free
        while free and queue:
            submitted, takes = queue.popleft()
            free -= 1
            heapq.heappush(ends, max(at, submitted) + takes)

    while on_record < cases:
        room = len(ends) + len(queue) < 2 * workers
        over = upcoming is None and not ends and not queue
        if waiting and (now >= not_before or over):
            took = costs.commit_s(on_record)
            on_record, waiting, commits = on_record + waiting, 0, commits + 1
            not_before = now + took / SHARE
        elif upcoming is not None and room:
            took = costs.submit_s
            queue.append((now + took, upcoming))
            upcoming = next(left, None)
        else:
            took = 0.0
            now = max(now, min(ends[0], not_before) if waiting else ends[0])
        now, busy = now + took, busy + took
        begin(now)
        # Workers take the next case by themselves, while the driver does something else.
        while ends and ends[0] <= now:
            at = heapq.heappop(ends)
            free, waiting = free + 1, waiting + 1
            begin(at)
    share = float(drawn.sum()) / (workers * now)
    return Simulated(share, float(now), commits, float(busy / now))


BATCH = 2_500


def grow(url: str, points: Sequence[DesignPoint], num_snapshots: int) -> None:
    """Put the points on record at `url` as accepted cases, if they are not there yet."""
    writer = DatasetWriter.open(url, SCHEMA)
    known = writer.known()
    new = [point for point in points if point.id not in known]
    if not new:
        return
    fork, result = writer.fork(), synthetic_result(0, num_snapshots)
    fork.write(result, synthetic_cloud(40, 12, num_snapshots))
    record = fork.records[result.id]
    objects = sync(_objects(fork.session.store, f"cases/{result.id}/"))
    repository = open_repository(url)
    for begin in range(0, len(new), BATCH):
        batch = new[begin : begin + BATCH]
        session = repository.writable_session(BRANCH)
        sync(_copy(session.store, objects, [f"cases/{point.id}/" for point in batch]))
        records = {point.id: _of(record, point) for point in batch}
        append_cases(zarr.open_group(session.store, mode="r+"), records)
        session.commit(f"{len(batch)} cases")


def _of(record: CaseRecord, point: DesignPoint) -> CaseRecord:
    design = {**record.design, "parameters": dict(point.parameters)}
    return CaseRecord(design, record.details, record.moments)


async def _objects(store: icechunk.IcechunkStore, prefix: str) -> dict[str, bytes]:
    """The objects below a prefix; groups and arrays before their chunks."""
    found = {}
    async for key in store.list_prefix(prefix):
        buffer = await store.get(key, default_buffer_prototype())
        assert buffer is not None
        found[key.removeprefix(prefix)] = buffer.to_bytes()
    return dict(sorted(found.items(), key=lambda item: not item[0].endswith("zarr.json")))


async def _copy(
    store: icechunk.IcechunkStore, objects: dict[str, bytes], prefixes: Sequence[str]
) -> None:
    of_bytes = default_buffer_prototype().buffer.from_bytes
    for prefix in prefixes:
        for key, content in objects.items():
            await store.set(prefix + key, of_bytes(content))


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
    slope, base = _line(rows, "driver, a commit, s")
    driver_s = _at_the_end(rows, "driver, a case, s")
    costs = Costs(submit_s=driver_s, commit_base_s=max(base, 0.0), commit_slope_s=slope)
    rows.append(
        {
            "cases on record": ALL_CASES,
            **{name: _at_the_end(rows, name) for name in rows[0] if name != "cases on record"},
            "driver, a commit, s": costs.commit_s(ALL_CASES),
        }
    )
    simulated = [
        {"a case takes, s": case_s, **asdict(simulate(costs, ALL_CASES, SIMULATED_WORKERS, case_s))}
        for case_s in CASE_S
    ]
    show(simulated, f"{ALL_CASES:,} cases on {SIMULATED_WORKERS} workers, simulated")
    publish(
        out,
        "campaign",
        rows,
        f"{workers} workers, cases of {SLEEP_S:g} s; core-seconds; the last row by lines",
        simulated=simulated,
        aim_for_the_utilisation=BAR,
        aim_for_the_drivers_gb=MEMORY_BAR_GB,
    )


def _line(rows: Sequence[dict[str, Any]], name: str) -> tuple[float, float]:
    """Slope and value at zero of a straight line over the size of the dataset."""
    sizes = [row["cases on record"] for row in rows]
    slope, base = statistics.linear_regression(sizes, [row[name] for row in rows])
    return slope, base


def _at_the_end(rows: Sequence[dict[str, Any]], name: str) -> float:
    """By the line, and no less than at any size measured."""
    slope, base = _line(rows, name)
    return max(base + slope * ALL_CASES, *(row[name] for row in rows))


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
            ):
                stage = Generation(cases=size, settings=settings, store=store)
                stage.execute(solved.around(solving.solve_cases))
            rest_s = time.process_time() - began - solved.seconds
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            row = {
                "cases on record": size,
                "driver, a case, s": (solved.seconds - commits.seconds) / measured,
                "driver, a commit, s": commits.seconds / commits.calls,
                "before and after, s": rest_s,
                "driver, GB": pages * os.sysconf("SC_PAGE_SIZE") / 1e9,
                "cases a second": measured / solved.wall_s,
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


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    asked.add_argument("--measured", type=int, default=MEASURED)
    asked.add_argument("--workers", type=int, default=WORKERS)
    asked.add_argument("--out", type=Path, default=Path("bench-out"))
    given = asked.parse_args()
    given.out.mkdir(exist_ok=True)
    run(given.out, tuple(given.sizes), given.measured, given.workers)
