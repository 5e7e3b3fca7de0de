"""Wall time and peak memory of a call, on the CPU or the current CUDA device."""

from __future__ import annotations

import gc
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(call: Callable[[], object], device: torch.device) -> float:
    synchronise(device)
    began = time.perf_counter()
    call()
    synchronise(device)
    return time.perf_counter() - began


def processor_seconds(call: Callable[[], object], device: torch.device) -> float:
    """CPU seconds of this process, all its threads together; wall seconds where a GPU works."""
    if device.type == "cuda":
        return seconds(call, device)
    began = time.process_time()
    call()
    return time.process_time() - began


def race(
    contenders: dict[str, Callable[[], object]], device: torch.device, repeats: int
) -> dict[str, float]:
    """Least seconds of each: other work on the machine only ever adds. They take turns, so that a
    busy spell weighs on all.
    """
    for call in contenders.values():
        call()
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, call in contenders.items():
            taken[name].append(seconds(call, device))
    return {name: min(values) for name, values in taken.items()}


def peak_bytes(call: Callable[[], object], device: torch.device) -> int:
    """Most memory held during the call beyond what was held before it."""
    gc.collect()
    if device.type == "cuda":
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        call()
        synchronise(device)
        return torch.cuda.max_memory_allocated(device) - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        call()
    held = peak = 0
    for change in _allocations(record):
        held += change
        peak = max(peak, held)
    return peak


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Slope of log(value) over log(size), least squares."""
    x, y = [math.log(size) for size in sizes], [math.log(max(value, 1e-12)) for value in values]
    return statistics.linear_regression(x, y).slope


def matmul_peak(device: torch.device, size: int) -> float:
    """FLOP/s of a square float32 matrix product."""
    a, b = torch.randn(size, size, device=device), torch.randn(size, size, device=device)
    call = lambda: a @ b  # noqa: E731
    call()
    return 2 * size**3 / min(seconds(call, device) for _ in range(5))


def _allocations(record: profile) -> list[int]:
    """Bytes that torch's CPU allocator took (or gave back, negative), in order: exact, where the
    resident size of the process depends on what malloc keeps back.
    """
    assert record.profiler is not None and record.profiler.kineto_results is not None
    events = [
        event for event in record.profiler.kineto_results.events() if event.name() == "[memory]"
    ]
    ordered = sorted(events, key=lambda event: event.start_ns())
    return [event.nbytes() for event in ordered]  # type: ignore[attr-defined]


def show_and_write(rows: Sequence[dict[str, Any]], path: Path, width: int) -> None:
    """Print rows of the same columns as a table so wide, and write them with torch's version."""
    table = Table(*rows[0])
    for row in rows:
        table.add_row(
            *(f"{each:.2f}" if isinstance(each, float) else str(each) for each in row.values())
        )
    Console(width=width).print(table)
    path.write_text(json.dumps({"torch": torch.__version__, "rows": rows}, indent=2))
