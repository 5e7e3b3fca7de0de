"""Write amplification: what an appended tenth of the cases adds on disk, over what these cases
hold.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from zarr.core.sync import sync

import simgen
from bench.synthetic_cases import REAL_FACES, REAL_POINTS, REAL_SNAPSHOTS, SCHEMA, write_cases
from simgen.store.write import DatasetWriter

BAR = 1.1
REAL = (REAL_POINTS, REAL_FACES, REAL_SNAPSHOTS)


def measure_writes(folder: Path, short: bool) -> dict[str, Any]:
    """Append 10 % to a dataset of real-size cases, in one commit and in one commit per case; print
    the table.
    """
    num_cases, appended = (10, 1) if short else (50, 5)
    rows = {}
    table = Table(
        "",
        "added, MB",
        "the cases' chunks, MB",
        f"amplification (bar {BAR})",
        title=f"{appended} cases to {num_cases}",
    )
    for name, per_commit in (("one commit", appended), ("a commit for each case", 1)):
        url = str(folder / f"amplification-{per_commit}")
        writer = DatasetWriter.open(url, SCHEMA)
        _append(writer, range(num_cases), num_cases)
        writer.publish()
        before = _bytes(url)
        _append(writer, range(num_cases, num_cases + appended), per_commit)
        writer.publish()
        added, chunks = _bytes(url) - before, _chunk_bytes(url, appended)
        rows[name] = {"added_bytes": added, "chunk_bytes": chunks, "ratio": added / chunks}
        table.add_row(name, f"{added / 1e6:.2f}", f"{chunks / 1e6:.2f}", f"{added / chunks:.4f}")
    Console().print(table)
    return {"cases": num_cases, "appended": appended, "rows": rows, "bar": BAR}


def _append(writer: DatasetWriter, numbers: range, per_commit: int) -> None:
    for begin in range(0, len(numbers), per_commit):
        writer.commit([write_cases(writer.fork(), numbers[begin : begin + per_commit], REAL)])


def _bytes(url: str) -> int:
    return sum(path.stat().st_size for path in Path(url).rglob("*") if path.is_file())


def _chunk_bytes(url: str, newest: int) -> int:
    """Stored bytes of the chunks of the cases that were published last."""
    dataset = simgen.open_dataset(url)
    store = dataset._root.store
    places = [
        f"cases/{case}/{path}"
        for case in dataset.cases()[-newest:]
        for path in dataset[case].arrays()
    ]
    return sum(sync(store.getsize_prefix(place)) for place in places)
