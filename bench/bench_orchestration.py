"""What orchestration costs: generating cases through the stage beside a bare shell loop over the
same solver runs.

The shell loop runs icoFoam alone, two at a time, in case directories that were meshed before its
clock starts. The stage's clock holds everything that it does for the same designs: meshing,
solving, checking, converting, writing, committing and publishing, and the start of its processes.
The loop runs before and after the stage, so that a machine that changes its speed shows. Beside the
wall times are the core-seconds of all processes that took part, which other work hardly touches.

How busy the flow keeps the cores are the solvers' core-seconds over cores x wall time of the flow.
They are what the kernel counts for each icoFoam process, read every quarter of a second: up to a
quarter second short for each case.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path

from bench.measure import ProgramWatch, core_seconds, spent
from bench.report import publish
from simgen.cases import get_family
from simgen.foam.run import find_openfoam

CASES, SHORT_CASES, AT_ONCE = 24, 4, 2
#: The flow over the loop, and the solvers' share of the cores.
BAR, SHARE_BAR = 1.10, 0.93
INTERVAL_S = 0.25
Cost = tuple[float, float]
"""Seconds and core-seconds"""


def main(out: Path, short: bool) -> None:
    """Print the table, write orchestration.json."""
    settings, cases = ({"end_time": 60.0}, SHORT_CASES) if short else (None, CASES)
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        os.environ["COURANT_SCRATCH"] = f"{folder}/scratch"
        before = _shell_loop(Path(folder) / "before", cases, settings)
        with ProgramWatch("icoFoam", INTERVAL_S) as solvers:
            flow, flow_cores = _flow(folder, cases, settings)
        after = _shell_loop(Path(folder) / "after", cases, settings)
    bare, bare_cores = ((one + other) / 2 for one, other in zip(before, after, strict=True))
    works = {
        "bare shell loop of icoFoam, before": before,
        "bare shell loop of icoFoam, after": after,
        "flow: mesh, solve, check, convert, write, publish": (flow, flow_cores),
    }
    rows = [
        {
            "": name,
            "seconds": seconds,
            "over the loop": seconds / bare,
            "core-seconds": used,
            "core-seconds over the loop": used / bare_cores,
        }
        for name, (seconds, used) in works.items()
    ]
    publish(
        out,
        "orchestration",
        rows,
        f"{cases} trial cases of the cylinder, {AT_ONCE} at a time",
        aim_over_the_loop=BAR,
        share_of_the_cores_that_solvers_keep_busy=solvers.core_seconds / (cores * flow),
        aim_for_this_share=SHARE_BAR,
        share_with_everything_around_them=flow_cores / (cores * flow),
        core_seconds_of_a_case_beside_its_solver=(flow_cores - solvers.core_seconds) / cases,
    )


def _shell_loop(folder: Path, cases: int, settings: dict[str, float] | None) -> Cost:
    """`xargs -P 2` over the prepared case directories."""
    find_openfoam().activate()
    family = get_family("cylinder-flow")
    values = family.settings("trial", settings)
    directories = []
    for parameters in family.design_space.sample(cases):
        point = family.point(parameters, values)
        directory = folder / point.id
        directory.mkdir(parents=True)
        family.write_case(point, directory)
        directories.append(str(directory))
    cores, began = core_seconds(), time.perf_counter()
    subprocess.run(
        ["xargs", "-P", str(AT_ONCE), "-I", "{}", "sh", "-c", "cd {} && icoFoam > log 2>&1"],
        input="\n".join(directories),
        text=True,
        check=True,
    )
    return time.perf_counter() - began, spent(cores)


def _flow(folder: str, cases: int, settings: dict[str, float] | None) -> Cost:
    """The stage, its processes' start included."""
    from flows.stages.generation import Generation

    cores, began = core_seconds(), time.perf_counter()
    Generation(cases=cases, preset="trial", settings=settings, store=f"{folder}/store").execute()
    return time.perf_counter() - began, spent(cores)
