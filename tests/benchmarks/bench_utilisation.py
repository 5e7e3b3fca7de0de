"""How busy generation keeps the cores: the solvers' core-seconds over cores x wall time, for 24
cylinder cases.

The clock runs from the flow's call to the published version, with Prefect's API and Ray's workers
up. The solvers' core-seconds are what the kernel counts for each icoFoam process, read every
quarter of a second: up to a quarter second short for each case.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
import time
from pathlib import Path

from rich.console import Console

from flows.cluster.prefect_api import prefect_api
from flows.settings import embedded_defaults
from tests.benchmarks.core_seconds import TICKS, core_seconds, spent

CASES, BAR = 24, 0.93
INTERVAL_S = 0.25


def main(out: Path, short: bool) -> None:
    """Print the shares, write utilisation.json."""
    cases = 4 if short else CASES
    embedded_defaults()
    from flows.cluster.ray_cluster import ensure_ray, warm_workers
    from flows.generate_dataset import generate

    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
        os.environ["COURANT_SCRATCH"] = f"{folder}/scratch"
        stack.enter_context(prefect_api(ensure_ray))
        warm_workers()
        with _Watch("icoFoam") as solvers:
            before, began = core_seconds(), time.perf_counter()
            generate(family="cylinder-flow", cases=cases, preset="trial", store=f"{folder}/store")
            wall, everything = time.perf_counter() - began, spent(before)
    cores = len(os.sched_getaffinity(0))
    record = {
        "cases": cases,
        "cores": cores,
        "wall_s": wall,
        "solver_core_s": solvers.core_seconds,
        "all_core_s": everything,
        "solver_share": solvers.core_seconds / (cores * wall),
        "all_share": everything / (cores * wall),
        "bar": BAR,
    }
    (out / "utilisation.json").write_text(json.dumps(record, indent=2))
    Console().print(
        f"{cases} cases in {wall:.1f} s on {cores} cores: solvers {solvers.core_seconds:.1f}"
        f" core-seconds, {record['solver_share']:.3f} of all (bar {BAR}); with everything around"
        f" them {record['all_share']:.3f}"
    )


class _Watch:
    """Core-seconds of all processes of a name that run while the block does."""

    def __init__(self, name: str) -> None:
        self._name, self._used = name, dict[int, float]()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    @property
    def core_seconds(self) -> float:
        return sum(self._used.values())

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._done.wait(INTERVAL_S):
            for stat in Path("/proc").glob("[0-9]*/stat"):
                try:
                    text = stat.read_text()
                except OSError:
                    continue
                if f"({self._name})" in text:
                    fields = text.rpartition(")")[2].split()
                    self._used[int(stat.parent.name)] = (int(fields[11]) + int(fields[12])) / TICKS
