"""Replay CUDA graphs, for work so small that launching kernels takes longer than running them.

    step = Replayed(take_step)                 # take_step(inputs) -> Tensor
    outcome = step({"points": points, "targets": targets})

A graph reads the addresses that it was recorded with, so inputs are copied there before each
replay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping

import torch
from torch import Tensor

logger = logging.getLogger("courant.model")

WARM_UPS = 2
"""Plain calls with new shapes before recording, in which kernels are compiled and moments allocated
"""
MOST_GRAPHS = 512
"""Combinations of shapes that are recorded, with their inputs; further ones are computed plainly"""

Inputs = Mapping[str, Tensor]
Record = Callable[[Callable[[], Tensor]], Callable[[], Tensor]]


class Replayed:
    """A function of named tensors, recorded once for each combination of shapes, then replayed.

    Every call does the work once, plainly or from a graph, so the function may change its state:
    weights, an optimiser's moments. It must not wait for the device (`.item()`, `bool(tensor)`) nor
    copy to it from the host. Outputs are fresh tensors.
    """

    def __init__(self, function: Callable[[Inputs], Tensor], record: Record | None = None) -> None:
        self._function, self._record = function, record or _Recorder()
        self._calls: dict[Hashable, int] = {}
        self._replays: dict[Hashable, Callable[[Inputs], Tensor]] = {}

    def __call__(self, inputs: Inputs) -> Tensor:
        key = tuple((name, tuple(tensor.shape), tensor.dtype) for name, tensor in inputs.items())
        replay = self._replays.get(key)
        if replay is not None:
            return replay(inputs)
        self._calls[key] = self._calls.get(key, 0) + 1
        if self._calls[key] <= WARM_UPS or len(self._replays) == MOST_GRAPHS:
            return self._function(inputs)
        self._replays[key] = replay = self._capture(inputs)
        if len(self._replays) == MOST_GRAPHS:
            logger.warning(
                "%d CUDA graphs recorded; other shapes are computed plainly", MOST_GRAPHS
            )
        return replay(inputs)

    def _capture(self, inputs: Inputs) -> Callable[[Inputs], Tensor]:
        kept = {name: tensor.clone() for name, tensor in inputs.items()}
        run = self._record(lambda: self._function(kept))

        def replay(given: Inputs) -> Tensor:
            for name, tensor in given.items():
                kept[name].copy_(tensor, non_blocking=True)
            return run().clone()

        return replay


class _Recorder:
    """Record on the current CUDA device.

    All graphs share one pool of memory: they run one after another, and nothing outlives a replay
    except its output, which is copied at once.
    """

    def __init__(self) -> None:
        self._pool, self._stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()

    def __call__(self, call: Callable[[], Tensor]) -> Callable[[], Tensor]:
        graph = torch.cuda.CUDAGraph()
        # Other threads may read ahead and pin memory while this one records: "thread_local".
        with torch.cuda.graph(graph, self._pool, self._stream, "thread_local"):
            output = call()

        def replay() -> Tensor:
            graph.replay()
            return output

        return replay
