"""The dataset store: reading beside other formats, write amplification, growth with the number of
cases. Bars stand beside the figures.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from bench.store_reads import measure_reads
from bench.store_scale import measure_scale
from bench.store_writes import measure_writes


def main(out: Path, short: bool) -> None:
    """Print the tables, write store.json and store-scale.png."""
    with tempfile.TemporaryDirectory(prefix="bench-store-") as folder:
        record = {
            "reads": measure_reads(Path(folder), short),
            "writes": measure_writes(Path(folder), short),
            "scale": measure_scale(Path(folder), out, short),
        }
    (out / "store.json").write_text(json.dumps(record, indent=2))
