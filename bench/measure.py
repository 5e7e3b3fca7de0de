"""Wall time, processor time and memory of a call, on the CPU or the current CUDA device; and the
core-seconds of processes: what a piece of work costs, however busy the machine is.
"""

from __future__ import annotations

import gc
import math
import os
import statistics
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch
from torch.profiler import ProfilerActivity, profile

CPU = torch.device("cpu")
TICKS = os.sysconf("SC_CLK_TCK")
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


class Process(NamedTuple):
    """A process as the kernel shows it."""

    parent: int
    name: str
    own_s: float
    """Core-seconds"""
    waited_s: float
    """Core-seconds of ended children that it has waited for"""


def _processes() -> dict[int, Process]:
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:  # it has ended
            continue
        # The name in brackets may hold spaces; what follows it does not.
        name, fields = text[text.find("(") + 1 : text.rfind(")")], text.rpartition(")")[2].split()
        own, waited = (sum(map(int, fields[at : at + 2])) / TICKS for at in (11, 13))
        found[int(stat.parent.name)] = Process(int(fields[1]), name, own, waited)
    return found


def _tree(processes: Mapping[int, Process], members: set[int]) -> set[int]:
    while below := {
        pid for pid, each in processes.items() if each.parent in members and pid not in members
    }:
        members = members | below
    return members


def core_seconds() -> dict[int, float]:
    """Of this process and each living descendant, with the ended children that it waited for."""
    found = _processes()
    members = _tree(found, {os.getpid()}) & found.keys()
    return {pid: found[pid].own_s + found[pid].waited_s for pid in members}


def spent(before: Mapping[int, float]) -> float:
    """Core-seconds since `before`."""
    return sum(seconds - before.get(pid, 0.0) for pid, seconds in core_seconds().items())


class Tree:
    """Core-seconds of a process and all below it, by looks at them while they run.

    What a process used after the last look at it is missing: take short intervals.
    """

    def __init__(self, process: int) -> None:
        self._members = {process}
        self._seen: dict[int, Process] = {}

    def look(self) -> None:
        found = _processes()
        # One that has lost its parent stays: members are never dropped.
        self._members = _tree(found, self._members)
        self._seen.update({pid: found[pid] for pid in self._members & found.keys()})

    def core_seconds(self, name: str | None = None) -> float:
        """Of all that were seen, or those of a name."""
        return sum(each.own_s for each in self._seen.values() if name in (None, each.name))

    def has(self, name: str) -> bool:
        """Whether such a program was seen."""
        return any(each.name == name for each in self._seen.values())


class ProgramWatch:
    """Core-seconds of this process's programs of a name that run while the block does."""

    def __init__(self, name: str, interval_s: float) -> None:
        self._name, self._interval_s, self._tree = name, interval_s, Tree(os.getpid())
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    @property
    def core_seconds(self) -> float:
        return self._tree.core_seconds(self._name)

    def __enter__(self) -> ProgramWatch:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._done.wait(self._interval_s):
            self._tree.look()
