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

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.core_seconds import ProgramWatch, core_seconds, spent
from simgen.cases import get_family
from simgen.design_space import DesignPoint
from simgen.foam.environment import find_openfoam

CASES, SHORT_CASES, AT_ONCE = 24, 4, 2
#: The flow over the loop, and the solvers' share of the cores.
BAR, SHARE_BAR = 1.10, 0.93
INTERVAL_S = 0.25


def main(out: Path, short: bool) -> None:
    """Print the table, write orchestration.json."""
    settings, cases = ({"end_time": 60.0}, SHORT_CASES) if short else (None, CASES)
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        os.environ["COURANT_SCRATCH"] = f"{folder}/scratch"
        before, loop_cores = _shell_loop(Path(folder) / "before", cases, settings)
        with ProgramWatch("icoFoam", INTERVAL_S) as solvers:
            flow, flow_cores = _flow(folder, cases, settings)
        after, loop_cores_after = _shell_loop(Path(folder) / "after", cases, settings)
    bare, loop_cores = (before + after) / 2, (loop_cores + loop_cores_after) / 2
    record = {
        "cases": cases,
        "at_once": AT_ONCE,
        "end_time_s": (settings or get_family("cylinder-flow").presets["trial"])["end_time"],
        "shell_loop_s": [before, after],
        "flow_s": flow,
        "ratio": flow / bare,
        "loop_core_s": loop_cores,
        "flow_core_s": flow_cores,
        "core_ratio": flow_cores / loop_cores,
        "bar": BAR,
        "cores": cores,
        "solver_core_s": solvers.core_seconds,
        "solver_share": solvers.core_seconds / (cores * flow),
        "all_share": flow_cores / (cores * flow),
        "share_bar": SHARE_BAR,
    }
    (out / "orchestration.json").write_text(json.dumps(record, indent=2))
    table = Table(
        "",
        "seconds",
        "over the loop",
        "core-seconds",
        "over the loop",
        title=f"{cases} trial cases, {AT_ONCE} at a time, {record['end_time_s']:g} s of flow each",
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
        f"{record['ratio']:.3f} (aim {BAR:.2f})",
        f"{flow_cores:.1f}",
        f"{record['core_ratio']:.3f}",
    )
    Console().print(table)
    Console().print(
        f"solvers keep {cores} cores busy for {record['solver_share']:.3f} of the flow's time"
        f" (aim {SHARE_BAR}), with everything around them {record['all_share']:.3f};"
        f" beside its solver a case costs {(flow_cores - solvers.core_seconds) / cases:.2f}"
        " core-seconds"
    )


def _points(cases: int, settings: dict[str, float] | None) -> list[DesignPoint]:
    family = get_family("cylinder-flow")
    values = family.settings("trial", settings)
    return [family.point(parameters, values) for parameters in family.design_space.sample(cases)]


def _shell_loop(folder: Path, cases: int, settings: dict[str, float] | None) -> tuple[float, float]:
    """Seconds and core-seconds of `xargs -P 2` over the prepared case directories."""
    find_openfoam().activate()
    directories = []
    for point in _points(cases, settings):
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


def _flow(folder: str, cases: int, settings: dict[str, float] | None) -> tuple[float, float]:
    """Seconds and core-seconds of the stage, its processes' start included."""
    from flows.stages.generation import Generation

    cores, began = core_seconds(), time.perf_counter()
    Generation(cases=cases, preset="trial", settings=settings, store=f"{folder}/store").execute()
    return time.perf_counter() - began, spent(cores)
