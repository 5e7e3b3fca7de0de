"""What orchestration costs: generating cases through the flow beside a bare shell loop over the
same solver runs.

The shell loop runs icoFoam alone, two at a time, in case directories that were meshed before its
clock starts. The flow's clock holds everything that it does for the same designs: meshing, solving,
checking, converting, writing, committing and publishing, with Prefect and Ray's workers already up,
as they are on a cluster; their start is stated beside it. The loop runs before and after the flow,
so that a machine that changes its speed shows. Beside the wall times stand the core-seconds of all
processes that took part, which other work on the machine hardly touches.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from flows.cluster.prefect_api import prefect_api
from flows.settings import embedded_defaults
from simgen.cases import get_family
from simgen.foam.environment import find_openfoam
from tests.benchmarks.core_seconds import core_seconds, spent

CASES, AT_ONCE = 8, 2
BAR = 1.10


def main(out: Path, short: bool) -> None:
    """Print the table, write orchestration.json."""
    settings = {"end_time": 60.0} if short else None
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        os.environ["COURANT_SCRATCH"] = f"{folder}/scratch"
        before, loop_cores = _shell_loop(Path(folder) / "before", settings)
        startup, flow, flow_cores = _flow(folder, settings)
        after, loop_cores_after = _shell_loop(Path(folder) / "after", settings)
    bare, loop_cores = (before + after) / 2, (loop_cores + loop_cores_after) / 2
    record = {
        "cases": CASES,
        "at_once": AT_ONCE,
        "end_time_s": (settings or get_family("cylinder-flow").presets["trial"])["end_time"],
        "shell_loop_s": [before, after],
        "flow_s": flow,
        "startup_s": startup,
        "ratio": flow / bare,
        "ratio_with_startup": (flow + startup) / bare,
        "loop_core_s": loop_cores,
        "flow_core_s": flow_cores,
        "core_ratio": flow_cores / loop_cores,
        "bar": BAR,
    }
    (out / "orchestration.json").write_text(json.dumps(record, indent=2))
    table = Table(
        "",
        "seconds",
        "over the loop",
        "core-seconds",
        "over the loop",
        title=f"{CASES} trial cases, {AT_ONCE} at a time, {record['end_time_s']:g} s of flow each",
    )
    table.add_row(
        "bare shell loop of icoFoam, before / after",
        f"{before:.1f} / {after:.1f}",
        "1.00",
        f"{loop_cores:.1f}",
        "1.00",
    )
    table.add_row(
        "flow: mesh, solve, check, convert, write, publish",
        f"{flow:.1f}",
        f"{record['ratio']:.3f} (bar {BAR:.2f})",
        f"{flow_cores:.1f}",
        f"{record['core_ratio']:.3f}",
    )
    table.add_row(
        "start of Prefect's API and of Ray",
        f"{startup:.1f}",
        f"{record['ratio_with_startup']:.3f} with it",
    )
    Console().print(table)


def _points(settings: dict[str, float] | None) -> list:
    family = get_family("cylinder-flow")
    values = family.settings("trial", settings)
    return [family.point(parameters, values) for parameters in family.design_space.sample(CASES)]


def _shell_loop(folder: Path, settings: dict[str, float] | None) -> tuple[float, float]:
    """Seconds and core-seconds of `xargs -P 2` over the prepared case directories."""
    find_openfoam().activate()
    directories = []
    for point in _points(settings):
        directory = folder / point.id
        directory.mkdir(parents=True)
        get_family(point.family).write_case(point, directory)
        directories.append(str(directory))
    cores, began = core_seconds(), time.perf_counter()
    subprocess.run(
        ["xargs", "-P", str(AT_ONCE), "-I", "{}", "sh", "-c", "cd {} && icoFoam > log 2>&1"],
        input="\n".join(directories),
        text=True,
        check=True,
    )
    return time.perf_counter() - began, spent(cores)


def _flow(folder: str, settings: dict[str, float] | None) -> tuple[float, float, float]:
    """Seconds of start-up, seconds and core-seconds of the flow."""
    embedded_defaults()
    began = time.perf_counter()
    from flows.cluster.ray_cluster import ensure_ray, warm_workers
    from flows.generate_dataset import generate

    with prefect_api(ensure_ray):
        warm_workers()
        startup = time.perf_counter() - began
        cores, began = core_seconds(), time.perf_counter()
        generate(
            family="cylinder-flow",
            cases=CASES,
            preset="trial",
            settings=settings,
            store=f"{folder}/store",
        )
        return startup, time.perf_counter() - began, spent(cores)
