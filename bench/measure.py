"""Wall time, processor time and memory of a call, on the CPU or the current CUDA device."""

import gc
import math
import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

import torch
from torch.profiler import ProfilerActivity, profile

CPU = torch.device("cpu")
K = TypeVar("K", bound=Hashable)


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(call: Callable[[], object], device: torch.device = CPU) -> float:
    synchronise(device)
    began = time.perf_counter()
    call()
    synchronise(device)
    return time.perf_counter() - began


def processor_seconds(call: Callable[[], object], device: torch.device = CPU) -> float:
    """CPU seconds of this process, all its threads together; wall seconds where a GPU works."""
    if device.type == "cuda":
        return seconds(call, device)
    began = time.process_time()
    call()
    return time.process_time() - began


def race(
    contenders: Mapping[K, Callable[[], object]],
    repeats: int,
    clock: Callable[[Callable[[], object]], float] = seconds,
) -> dict[K, float]:
    """Least seconds of each, after a call that does not count: other work only ever adds.

    They take turns, so that a busy spell weighs on all.
    """
    taken: dict[K, list[float]] = {name: [] for name in contenders}
    for _ in range(1 + repeats):
        for name, call in contenders.items():
            taken[name].append(clock(call))
    return {name: min(values[1:]) for name, values in taken.items()}


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
    # What torch's CPU allocator took (or gave back, negative), in order: exact, where the resident
    # size of the process depends on what malloc keeps back.
    assert record.profiler is not None and record.profiler.kineto_results is not None
    events = [each for each in record.profiler.kineto_results.events() if each.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda each: each.start_ns()):
        held += event.nbytes()  # type: ignore[attr-defined]
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
