"""Learning rate as a function of the step alone, so that a resumed run needs no schedule state.

`two-phase` is the paper's (Table tab:cf-hparams): constant over the first half of training, then linear to 0.1x. `cosine` and
`step` are those of the community benchmarks (Table tab:courant-training).
"""

from __future__ import annotations

import math

FINAL_FACTOR = 0.1


def two_phase(progress: float) -> float:
    """1 up to half of training, then linear to 0.1 at its end."""
    return 1.0 - (1.0 - FINAL_FACTOR) * max(0.0, 2.0 * progress - 1.0)


def cosine(progress: float) -> float:
    """Half a cosine from 1 to 0."""
    return 0.5 * (1.0 + math.cos(math.pi * progress))


SCHEDULES = {"two-phase": two_phase, "cosine": cosine}


def learning_rate(
    schedule: str,
    initial: float,
    step: int,
    total_steps: int,
    warmup_steps: int = 0,
    *,
    drop_every: int = 1,
    drop_factor: float = 1.0,
) -> float:
    """The rate of optimiser step `step` (from 0) out of `total_steps`; `step` drops it by a factor every so many steps."""
    warmup = min(1.0, (step + 1) / warmup_steps) if warmup_steps else 1.0
    if schedule == "step":
        return initial * warmup * drop_factor ** (step // drop_every)
    return initial * warmup * SCHEDULES[schedule](step / max(1, total_steps))
