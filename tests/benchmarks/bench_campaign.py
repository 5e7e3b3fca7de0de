"""What thousands of cases cost beside their solving: the flow `generate`, a solver that sleeps.

Everything else is the real thing: designs, Prefect's tasks, Ray's workers, locks, arrays in the
store, commits, the publication. Clouds are small, since their size is a matter of the workers. The
workers are as many as this machine carries; they sleep so shortly that the driver and the servers
are as busy as they can be. Each tenth of the cases is measured on its own: a step that takes longer
with every case would show.

The second table is a model, fitted to these figures: a process that cannot be divided among
machines handles at most one case in its core-seconds for each; 500 workers ask for 500 cases in the
time that one takes.
"""

from __future__ import annotations

import itertools
import json
import os
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from rich.console import Console
from rich.table import Table

from flows.settings import embedded_defaults
from simgen.case import CaseResult
from simgen.design_space import DesignPoint
from tests.benchmarks.synthetic_cases import SCHEMA, synthetic_cloud, synthetic_result

CASES, WORKERS = 2_000, 24
SNAPSHOTS = 6
SLEEP_S = 0.5
#: The time of a case: a trial cylinder, a trial pump, a case of the paper's size.
CASE_S = (12.0, 90.0, 900.0)
SIMULATED_WORKERS, BAR = 500, 0.95
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
#: Words of a command line, and whose process it is; the first that fits.
PARTS = {"gcs_server": "Ray's GCS", "raylet/raylet": "Ray's raylet", "uvicorn": "Prefect's server"}
UNDIVIDED = ("driver", "Prefect's server", "Ray's GCS")


def sleep_in_place_of_solving() -> None:
    """For a worker as it starts."""
    from flows import solve_cases

    cloud = synthetic_cloud(40, 12, SNAPSHOTS)

    def solved(
        point: DesignPoint, fork: Any, own: Any, _: str, execution: Any, report: Any
    ) -> CaseResult:
        time.sleep(SLEEP_S * np.random.default_rng().uniform(0.5, 1.5))
        result = replace(synthetic_result(0, SNAPSHOTS), point=point, split=execution.split)
        fork.write(result, cloud)
        return result

    solve_cases._solve_and_write = solved  # type: ignore[assignment]


def main(out: Path, short: bool) -> None:
    """Print both tables, write campaign.json."""
    cases, workers = (40, 4) if short else (CASES, WORKERS)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        os.environ["COURANT_SCRATCH"] = f"{folder}/scratch"
        record = _measure(Path(folder), cases, workers)
    (out / "campaign.json").write_text(json.dumps(record, indent=2))
    _print(record)


def _measure(folder: Path, cases: int, workers: int) -> dict[str, Any]:
    embedded_defaults()
    from courant.ray_embedded import start_embedded_ray
    from flows.cluster.prefect_api import prefect_api
    from flows.display import CaseBars
    from flows.generate_dataset import generate

    hook = {"worker_process_setup_hook": sleep_in_place_of_solving}

    def start() -> None:
        start_embedded_ray(num_cpus=workers, log_to_driver=False, runtime_env=hook)

    rows: list[dict[str, Any]] = []
    done = 0
    every = max(1, cases // 10)
    finished = CaseBars.finished
    lock = threading.Lock()

    def count(self: CaseBars, *case: Any) -> None:
        nonlocal done
        finished(self, *case)
        with lock:
            done += 1
            if done % every == 0:
                rows.append({"cases": done, "at_s": time.perf_counter() - began, **_parts()})

    with prefect_api(start), patch.object(CaseBars, "finished", count):
        began = time.perf_counter()
        before: dict[str, Any] = {"cases": 0, "at_s": 0.0, **_parts()}
        version = generate(
            family=SCHEMA.family,
            cases=cases,
            settings={"end_time": float(SNAPSHOTS)},
            store=f"{folder}/store",
        )
        wall = time.perf_counter() - began
        published = wall - rows[-1]["at_s"]
        after = _parts()
    total = {part: of - before["core_s"].get(part, 0.0) for part, of in after["core_s"].items()}
    return {
        "cases": cases,
        "workers": workers,
        "sleep_s": SLEEP_S,
        "wall_s": wall,
        "publication_s": published,
        "version": version.line(),
        "rows": _differences([before, *rows]),
        "core_s_per_case": {part: seconds / cases for part, seconds in total.items()},
        "memory_gb": after["memory_gb"],
    }


def _parts() -> dict[str, dict[str, float]]:
    """Core-seconds and resident memory of this process and those below it, by what they are."""
    core_s: defaultdict[str, float] = defaultdict(float)
    memory: defaultdict[str, float] = defaultdict(float)
    parents, found = {}, {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        number = int(process.name)
        parents[number] = int(fields[1])
        ticks = sum(int(each) for each in fields[11:13])
        found[number] = (line, ticks / TICKS, int(fields[21]) * PAGE / 1e9)
    own = {os.getpid()}
    while below := {process for process, parent in parents.items() if parent in own} - own:
        own |= below
    for number in own & set(found):
        line, seconds, resident = found[number]
        part = next((part for word, part in PARTS.items() if word in line), "workers")
        part = "driver" if number == os.getpid() else part
        core_s[part] += seconds
        memory[part] += resident
    return {"core_s": dict(core_s), "memory_gb": dict(memory)}


def _differences(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each part of the run on its own."""
    found = []
    for before, row in itertools.pairwise(rows):
        number = row["cases"] - before["cases"]
        core_s = {
            part: (seconds - before["core_s"].get(part, 0.0)) / number
            for part, seconds in row["core_s"].items()
        }
        took = row["at_s"] - before["at_s"]
        found.append(
            {
                "cases": row["cases"],
                "cases_per_s": number / took,
                "core_s_per_case": core_s,
                "memory_gb": row["memory_gb"],
            }
        )
    return found


def utilisation(core_s_per_case: dict[str, float], case_s: float) -> float:
    """Share of the time in which simulated workers have a case."""
    most = min(1 / core_s_per_case[part] for part in UNDIVIDED if core_s_per_case.get(part))
    return min(1.0, most * case_s / SIMULATED_WORKERS)


def _print(record: dict[str, Any]) -> None:
    parts = ["driver", "Prefect's server", "Ray's GCS", "Ray's raylet", "workers"]
    title = (
        f"{record['cases']} cases of {record['sleep_s']:g} s on {record['workers']} workers:"
        f" {record['wall_s']:.0f} s, of which publication {record['publication_s']:.1f} s"
    )
    table = Table("cases", "a second", *(f"{part}, ms a case" for part in parts), title=title)
    for column in ("driver, GB", "Prefect's server, GB"):
        table.add_column(column)
    for row in record["rows"]:
        table.add_row(
            str(row["cases"]),
            f"{row['cases_per_s']:.1f}",
            *(f"{1e3 * row['core_s_per_case'].get(part, 0.0):.0f}" for part in parts),
            f"{row['memory_gb']['driver']:.2f}",
            f"{row['memory_gb'].get(parts[1], 0.0):.2f}",
        )
    Console(width=140).print(table)
    per_case = record["core_s_per_case"]
    slowest = max(UNDIVIDED, key=lambda part: per_case.get(part, 0.0))
    title = f"{SIMULATED_WORKERS} workers, by the model; the bottleneck is {slowest}"
    model = Table("a case takes", "asked for, a second", "utilisation", title=title)
    for case_s in CASE_S:
        model.add_row(
            f"{case_s:g} s",
            f"{SIMULATED_WORKERS / case_s:.1f}",
            f"{utilisation(per_case, case_s):.2f} (bar {BAR})",
        )
    Console().print(model)
