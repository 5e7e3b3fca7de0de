"""Measure throughput: samples/s, processor time, data waits, achieved FLOP/s, peak memory."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import torch
from torch.utils.flop_counter import FlopCounterMode

T = TypeVar("T")


class EpochClock:
    """Measure an epoch: its time, the processor's part of it, and the waits for the next batch."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._began, self._processor_began = time.perf_counter(), time.process_time()
        self.seconds = self.processor_s = self.waited_s = 0.0

    def watch(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield the batches, with each one's waiting time counted.

        On a GPU, copies that run beside the computation do not count.
        """
        iterator = iter(batches)
        while True:
            began = time.perf_counter()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            finally:
                self.waited_s += time.perf_counter() - began
            yield batch

    def stop(self) -> None:
        """End the epoch.

        Processor time is that of all threads of this process on a CPU, whoever else uses the
        machine; on a GPU it is the time for which the device was held.
        """
        self.seconds = time.perf_counter() - self._began
        used = time.process_time() - self._processor_began
        self.processor_s = self.seconds if self._device.type == "cuda" else used


def count_flops(step: Callable[[], object]) -> int:
    """Count the floating-point operations of a forward and backward pass.

    Matrix products and attention, two operations for each multiply-add, counted by torch while the
    pass runs. Element-wise operations, softmax and normalisation are left out, which is the custom
    when FLOP/s are compared with a device's peak.
    """
    with FlopCounterMode(display=False) as counter:
        step()
    return int(counter.get_total_flops())


def peak_memory_gb(device: torch.device) -> float | None:
    """Return the peak memory that this process allocated on the GPU; on a CPU its peak size.

    None on a CPU under Windows.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e9
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
