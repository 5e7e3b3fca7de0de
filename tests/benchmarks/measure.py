"""Wall time and peak memory of a call, on the CPU or the current CUDA device."""

from __future__ import annotations

import ctypes
import gc
import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(call: Callable[[], object], device: torch.device) -> float:
    synchronise(device)
    began = time.perf_counter()
    call()
    synchronise(device)
    return time.perf_counter() - began


def race(contenders: dict[str, Callable[[], object]], device: torch.device, repeats: int) -> dict[str, float]:
    """Median seconds of each; they take turns, so that a busy spell of the machine weighs on all of them."""
    for call in contenders.values():
        call()
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, call in contenders.items():
            taken[name].append(seconds(call, device))
    return {name: statistics.median(values) for name, values in taken.items()}


def peak_bytes(call: Callable[[], object], device: torch.device) -> int:
    """Most memory held during the call beyond what was held before it."""
    gc.collect()
    if device.type == "cuda":
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        call()
        synchronise(device)
        return torch.cuda.max_memory_allocated(device) - before
    ctypes.CDLL(None).malloc_trim(0)  # what earlier calls freed counts as free
    Path("/proc/self/clear_refs").write_text("5")  # sets the high-water mark back to the present
    before = _resident("VmRSS")
    call()
    return max(0, _resident("VmHWM") - before)


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


def _resident(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return 1024 * int(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no {key}")
