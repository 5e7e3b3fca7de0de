"""What a run makes of its machine: samples/s, the share of time spent waiting for data, achieved FLOP/s, peak memory."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import torch
from torch.utils.flop_counter import FlopCounterMode

T = TypeVar("T")


class DataClock:
    """Adds up the time that a loop waits for its next batch."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def watch(self, batches: Iterable[T]) -> Iterator[T]:
        """The batches, each one's waiting time counted. On a GPU copies that run beside the computation are no waiting."""
        iterator = iter(batches)
        while True:
            began = time.perf_counter()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            finally:
                self.seconds += time.perf_counter() - began
            yield batch


def count_flops(step: Callable[[], object]) -> int:
    """Floating-point operations of a forward and backward pass: matrix products and attention, two for each multiply-add.

    Counted by torch while the pass runs; element-wise operations, softmax and normalisation are left out, which is the custom
    when FLOP/s are compared with a device's peak.
    """
    with FlopCounterMode(display=False) as counter:
        step()
    return int(counter.get_total_flops())


def peak_memory_gb(device: torch.device) -> float:
    """The most that was allocated on the GPU by this process; on a CPU the most that this process ever held."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e9
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
