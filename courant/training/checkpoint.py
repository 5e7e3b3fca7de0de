"""Checkpoints: one file holds all that the next epoch depends on, so it is whole or absent, on disk and on S3 alike.

    checkpoints/epoch-000010.pt     model, its average, optimiser, best weights so far, their loss, epochs done, seconds spent

Sampler, learning rate and random draws are functions of the seed and the step and need no state.
"""

from __future__ import annotations

import io
import pickle
import re
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from courant.run_directory import RunDirectory
from simgen.errors import StoreError

FOLDER = "checkpoints"
WEIGHTS = "model.safetensors"
_NAME = re.compile(r"epoch-(\d{6})\.pt")


@dataclass
class Checkpoint:
    """The state of a run after `epoch` epochs (0: before the first)."""

    epoch: int
    model: dict[str, Tensor]
    optimiser: dict[str, Any]
    best: dict[str, Tensor]
    best_epoch: int
    best_loss: float
    seconds: dict[str, float]
    average: dict[str, Tensor] = field(default_factory=dict)
    """Moving average of the weights, where there is one"""


def write_checkpoint(run: RunDirectory, checkpoint: Checkpoint, keep: int) -> None:
    """Store it with the best weights beside it, then drop all but the last `keep`."""
    buffer = io.BytesIO()
    torch.save({each.name: getattr(checkpoint, each.name) for each in fields(Checkpoint)}, buffer)
    run.write_bytes(f"{FOLDER}/epoch-{checkpoint.epoch:06d}.pt", buffer.getvalue())
    write_weights(run, checkpoint.best)
    for epoch in checkpoint_epochs(run)[:-keep]:
        run.remove(f"{FOLDER}/epoch-{epoch:06d}.pt")


def checkpoint_epochs(run: RunDirectory) -> list[int]:
    """The epochs that have a checkpoint, in order."""
    return sorted(int(match.group(1)) for match in map(_NAME.fullmatch, run.names(FOLDER)) if match)


def read_latest_checkpoint(run: RunDirectory, device: torch.device | str = "cpu") -> Checkpoint | None:
    """The newest checkpoint; None before the first; StoreError for one that cannot be read."""
    epochs = checkpoint_epochs(run)
    if not epochs:
        return None
    name = f"{FOLDER}/epoch-{epochs[-1]:06d}.pt"
    try:
        return Checkpoint(**torch.load(io.BytesIO(run.read_bytes(name)), map_location=device, weights_only=True))
    except (RuntimeError, EOFError, pickle.UnpicklingError, TypeError, ValueError, KeyError) as error:
        raise StoreError(
            f"{run.url}/{name} is damaged ({error}); remove it to go on from the checkpoint before it"
        ) from error


def write_weights(run: RunDirectory, weights: dict[str, Tensor]) -> None:
    """model.safetensors: plain weights, readable without this project."""
    run.write_bytes(WEIGHTS, save({name: value.detach().cpu().contiguous() for name, value in weights.items()}))
