"""Stream training batches from the store, for splits that are too large for the device.

Notable properties:
- The same windows, points and numbers in the same order as `ResidentBatches` gives them, to the
  bit, however many threads read.
- Shuffled over cases and windows anew each epoch, sharded by rank, each window of an epoch once.
- Threads read ahead; on a GPU they hand over pinned memory, which is copied while the device
  computes.
- The state is the number of batches handed over: an iteration resumed from it gives exactly the
  rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from courant.data.batch import Batch
from courant.data.batches import BatchOrder, WindowBatches
from courant.data.samples import draw_batch, snapshots_per_step
from courant.data.window_reader import WindowReader
from courant.data_config import TransientData
from simgen.errors import InputError

THREADS = 4
AHEAD = 8
"""Batches read ahead of the one in use"""
T = TypeVar("T")


class StreamingBatches(WindowBatches[WindowReader]):
    """Iterate over the batches of an epoch, and of the next one when iterated again.

    Picklable with its state.
    """

    def __init__(
        self,
        reader: WindowReader,
        config: TransientData,
        order: BatchOrder,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(reader, config, order)
        self.device = torch.device(device)
        self._epoch, self._batch = 1, 0

    def __iter__(self) -> Iterator[Batch]:
        """Yield the rest of the current epoch."""
        for _, batch in self.epoch(self._epoch, self._batch):
            self._batch += 1
            yield batch
        self._epoch, self._batch = self._epoch + 1, 0

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the iteration, with what its order depends on."""
        return {"epoch": self._epoch, "batch": self._batch, **self._identity()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a position; raise InputError for the state of another order."""
        for name, value in self._identity().items():
            if state.get(name) != value:
                raise InputError(
                    f"stream: its state is of {name} = {state.get(name)}, this stream has {value}"
                )
        self._epoch, self._batch = state["epoch"], state["batch"]

    def epoch(self, epoch: int, begin: int = 0) -> Iterator[tuple[Tensor, Batch]]:
        """Yield the batches of an epoch from batch `begin` on.

        Each comes with the windows (B, 2) of the whole batch, and this worker's part on its device.
        """
        chosen = enumerate(self.order.epoch(len(self.windows), epoch))
        jobs = (
            partial(self._read, epoch, index, self.windows[of])
            for index, of in chosen
            if index >= begin
        )
        for windows, batch in read_ahead(jobs):
            yield windows, batch.map(lambda value: value.to(self.device, non_blocking=True))

    def _read(self, epoch: int, index: int, windows: Tensor) -> tuple[Tensor, Batch]:
        """Read this worker's windows and draw the batch from them; runs in a thread."""
        shard = self.order.shard
        stride = snapshots_per_step(self.trajectories, self.config)
        read = self.trajectories.read(windows[shard], self.config.num_states, stride)
        # Points are drawn for the whole batch; the windows of other workers are never read.
        numbered = torch.zeros_like(windows)
        numbered[shard, 0] = torch.arange(len(read.ids))
        batch = draw_batch(read, numbered, self.config, self.order.points(epoch, index), shard)
        return windows, batch.map(Tensor.pin_memory) if self.device.type == "cuda" else batch

    def _identity(self) -> dict[str, Any]:
        order = self.order
        return {
            "seed": order.seed,
            "batch_size": order.batch_size,
            "samples_per_epoch": order.samples_per_epoch,
            "windows": len(self.windows),
        }


def read_ahead(jobs: Iterable[Callable[[], T]]) -> Iterator[T]:
    """Yield the jobs' results in order, computed ahead in threads."""
    with ThreadPoolExecutor(THREADS, thread_name_prefix="stream") as threads:
        pending: deque[Future[T]] = deque()
        try:
            for job in jobs:
                pending.append(threads.submit(job))
                if len(pending) > AHEAD:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
