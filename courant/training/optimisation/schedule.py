"""Compute the learning rate from the step alone, so that a resumed run needs no schedule state.

`two-phase` is that of the paper's table of the cylinder's hyperparameters (tab:cf-hparams):
constant over the first half of training, then linear to 0.1x. `cosine` and `step` are those of its
table of the public benchmarks' training (tab:courant-training).
"""

from __future__ import annotations

import math

from courant.experiment import TrainingConfig

FINAL_FACTOR = 0.1


def two_phase(progress: float) -> float:
    """Return 1 up to half of training, then fall linearly to 0.1 at its end."""
    return 1.0 - (1.0 - FINAL_FACTOR) * max(0.0, 2.0 * progress - 1.0)


def cosine(progress: float) -> float:
    """Return half a cosine from 1 to 0."""
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
    """Return the rate of optimiser step `step` (from 0) out of `total_steps`.

    The schedule `step` drops it by a factor every so many steps.
    """
    warmup = min(1.0, (step + 1) / warmup_steps) if warmup_steps else 1.0
    if schedule == "step":
        return initial * warmup * drop_factor ** (step // drop_every)
    return initial * warmup * SCHEDULES[schedule](step / max(1, total_steps))


def learning_rate_of(training: TrainingConfig, step: int, steps_per_epoch: int) -> float:
    """Return the rate of optimiser step `step` (from 0) of a training run."""
    return learning_rate(
        training.schedule,
        training.learning_rate,
        step,
        training.epochs * steps_per_epoch,
        training.warmup_steps,
        drop_every=training.step_epochs * steps_per_epoch,
        drop_factor=training.step_factor,
    )
