"""What compressors and chunk sizes cost: size on disk, writing, reading whole, and a window of
snapshots.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zarr
from rich.console import Console
from rich.table import Table
from zarr.codecs import BloscCodec

from bench.synthetic_cases import REAL_FACES, REAL_POINTS, synthetic_cloud

SNAPSHOTS = 580  # 16 MB of fields
WINDOW = slice(100, 111)
COMPRESSORS = (
    ("lz4", 5, "shuffle"),
    ("zstd", 1, "shuffle"),
    ("zstd", 3, "shuffle"),
    ("zstd", 3, "noshuffle"),
    ("zstd", 7, "shuffle"),
)


def measure_compressors(folder: Path) -> list[dict[str, Any]]:
    """A transient velocity by compressor and chunk size, in plain Zarr on the local disk; print the
    table.
    """
    values = synthetic_cloud(REAL_POINTS, REAL_FACES, SNAPSHOTS).fields["velocity"]
    rows = []
    columns = (
        "compressor",
        "chunk, MiB",
        "stored / raw",
        "write, MB/s",
        "read, MB/s",
        "11 snapshots, ms",
    )
    table = Table(*columns, title="A transient field by compressor and chunk size")
    for cname, level, shuffle in COMPRESSORS:
        for mebibytes in (1, 2, 4):
            array = zarr.create_array(
                folder / f"{cname}-{level}-{shuffle}-{mebibytes}",
                shape=values.shape,
                dtype=values.dtype,
                chunks=((mebibytes << 20) // values[0].nbytes, *values.shape[1:]),
                compressors=[BloscCodec(cname=cname, clevel=level, shuffle=shuffle)],  # type: ignore[arg-type]
            )
            written = _median_s(lambda: array.__setitem__(..., values), 3)  # noqa: B023
            read = _median_s(lambda: array[...], 5)  # noqa: B023
            row = {
                "compressor": f"{cname} {level} {shuffle}",
                "chunk_MiB": mebibytes,
                "stored": array.nbytes_stored() / values.nbytes,
                "write_MB_s": values.nbytes / 1e6 / written,
                "read_MB_s": values.nbytes / 1e6 / read,
                "window_ms": 1e3 * _median_s(lambda: array[WINDOW], 15),  # noqa: B023
            }
            rows.append(row)
            table.add_row(
                *(
                    f"{value:.3g}" if isinstance(value, float) else str(value)
                    for value in row.values()
                )
            )
    Console().print(table)
    return rows


def _median_s(call: Callable[[], object], repeats: int) -> float:
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)
