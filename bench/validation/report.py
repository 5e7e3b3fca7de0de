"""A study's table on the screen and its record as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from simgen.provenance import host_class, source_revision


def publish(out: Path, study: str, rows: Sequence[Mapping[str, Any]], **summary: Any) -> None:
    """Print the rows, then the summary a line each; write both to <out>/<study>.json."""
    table = Table(*rows[0], box=None, header_style="bold")
    for row in rows:
        table.add_row(
            *(f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values())
        )
    screen = Console()
    screen.print(table)
    for name, value in summary.items():
        screen.print(
            f"{name.replace('_', ' ')}: {value:.4g}"
            if isinstance(value, float)
            else f"{name}: {value}"
        )
    record = {
        "study": study,
        "rows": list(rows),
        **summary,
        "revision": source_revision(),
        "host": host_class(),
    }
    (out / f"{study}.json").write_text(json.dumps(record, indent=1))
