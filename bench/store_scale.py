"""How opening, listing and committing grow with the number of cases: 10,000 tiny ones through the
real writer.
"""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import simgen
from bench.synthetic_cases import SCHEMA, write_cases
from simgen.store.write import CaseFork, DatasetWriter

SIZES, SHORT_SIZES = (100, 1000, 3000, 10000), (100, 300)
TINY = (40, 12, 6)
BATCH, WORKERS, PER_FORK = 100, 2, 50
BARS = {"open_s": 1.0, "design_s": 2.0, "commit_s": 5.0}


def measure_scale(folder: Path, out: Path, short: bool) -> dict[str, Any]:
    """Grow a dataset under `folder`; print the table, draw store-scale.png, return the record."""
    sizes = SHORT_SIZES if short else SIZES
    url = str(folder / "scale")
    rows: list[dict[str, float]] = []
    written = 0
    spawn = multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(WORKERS, mp_context=spawn) as workers,
        Progress(transient=True) as progress,
    ):
        bar = progress.add_task("writing cases", total=sizes[-1])
        for size in sizes:
            while written < size:
                count = min(5 * BATCH, size - written)
                _commit(url, workers, range(written, written + count))
                written += count
                progress.update(bar, completed=written)
            row = {"cases": float(size), **_read(url)}
            row["commit_s"] = _commit(url, workers, range(written, written + BATCH))
            written += BATCH
            row["snapshot_bytes"] = float(
                max(path.stat().st_size for path in Path(url, "snapshots").iterdir())
            )
            rows.append(row)
    _print(rows)
    _plot(rows, out / "store-scale.png")
    return {"rows": rows, "bars": BARS}


def _commit(url: str, workers: ProcessPoolExecutor, numbers: range) -> float:
    """Write cases in worker processes, then commit them all at once; seconds of the commit."""
    writer = DatasetWriter.open(url, SCHEMA)
    parts = [numbers[begin : begin + PER_FORK] for begin in range(0, len(numbers), PER_FORK)]
    forks: list[CaseFork] = list(
        workers.map(write_cases, [writer.fork() for _ in parts], parts, [TINY] * len(parts))
    )
    began = time.perf_counter()
    writer.commit(forks)
    return time.perf_counter() - began


def _read(url: str) -> dict[str, float]:
    """Publish; then, median of three, open the version and list its designs."""
    began = time.perf_counter()
    DatasetWriter.open(url, SCHEMA).publish()
    published = time.perf_counter()
    opened, listed = [], []
    for _ in range(3):
        began_open = time.perf_counter()
        dataset = simgen.open_dataset(url)
        opened.append(time.perf_counter() - began_open)
        began_design = time.perf_counter()
        assert len(dataset.design) == len(dataset)
        listed.append(time.perf_counter() - began_design)
    return {
        "publish_s": published - began,
        "open_s": sorted(opened)[1],
        "design_s": sorted(listed)[1],
    }


def _print(rows: list[dict[str, float]]) -> None:
    names = {
        "open_s": "open, s",
        "design_s": "list designs, s",
        "commit_s": f"commit {BATCH} more, s",
        "publish_s": "publish, s",
        "snapshot_bytes": "snapshot, MB",
    }
    table = Table(title="Growth with the number of cases")
    table.add_column("cases", justify="right")
    for name, title in names.items():
        table.add_column(
            f"{title} (bar {BARS[name]:g})" if name in BARS else title, justify="right"
        )
    for row in rows:
        figures = [
            f"{row[name] / 1e6:.2f}" if name == "snapshot_bytes" else f"{row[name]:.3f}"
            for name in names
        ]
        table.add_row(f"{row['cases']:.0f}", *figures)
    Console().print(table)


def _plot(rows: list[dict[str, float]], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    cases = [row["cases"] for row in rows]
    for (name, bar), label in zip(
        BARS.items(), ("open", "list designs", f"commit {BATCH} more"), strict=True
    ):
        (line,) = axes.loglog(
            cases, [row[name] for row in rows], marker="o", label=f"{label} (bar {bar:g} s)"
        )
        axes.axhline(bar, color=line.get_color(), linestyle=":", linewidth=1)
    axes.set_xlabel("cases")
    axes.set_ylabel("seconds")
    axes.legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)
