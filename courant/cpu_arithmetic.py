"""How a process that trains computes on a CPU."""

from __future__ import annotations

import torch


def use_threads(num: int) -> None:
    """Compute on so many threads, and take numbers too small for full precision as zero.

    Call it before anything is computed: threads that torch has started already keep their way.

    Far from an anchor, a Gaussian window's weight and its gradient are below 1e-38 (in float32).
    A CPU computes with such subnormal numbers so slowly that a training step with windows takes
    three times as long as one without; as zeros they cost nothing.
    """
    torch.set_num_threads(num)
    torch.set_flush_denormal(True)
