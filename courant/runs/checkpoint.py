"""Write and read checkpoints, such as checkpoints/epoch-000010.pt: complete or absent.

A checkpoint has everything that the next epoch depends on. Sampler, learning rate and random draws
are functions of the seed and the step and need no state.
"""

import io
import math
import re
import time
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from courant.runs.directory import MAX_READ_BYTES, RunDirectory
from courant.runs.weights import write_weights
from simgen.errors import StoreError

FOLDER = "checkpoints"
_ARCHIVE_BYTES = 16 * 2**20
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

    @classmethod
    def before_training(cls, weights: dict[str, Tensor], parts: Iterable[str]) -> Self:
        """Make the state of a run that begins with `weights`; `parts` are the parts of its time."""
        return cls(0, {}, {}, _copy(weights), 0, math.inf, dict.fromkeys(parts, 0.0))

    def keep_best(self, weights: dict[str, Tensor], loss: float) -> None:
        """Keep a copy of this epoch's weights if their loss is the lowest so far."""
        if loss < self.best_loss:
            self.keep(weights)
            self.best_loss = loss

    def keep(self, weights: dict[str, Tensor]) -> None:
        """Keep a copy of this epoch's weights as the best."""
        self.best, self.best_epoch = _copy(weights), self.epoch

    def write_best(self, run: RunDirectory) -> None:
        """Write the best weights; none before the first validation, when they are untrained."""
        if self.best_epoch:
            write_weights(run, self.best)

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Add the seconds spent inside to a part of the run's time."""
        began = time.perf_counter()
        yield
        self.seconds[part] += time.perf_counter() - began


def write_checkpoint(run: RunDirectory, checkpoint: Checkpoint, keep: int) -> None:
    """Store it with the best weights beside it, then delete all but the last `keep`."""
    buffer = io.BytesIO()
    torch.save(vars(checkpoint), buffer)
    run.write_bytes(f"{FOLDER}/epoch-{checkpoint.epoch:06d}.pt", buffer.getvalue())
    checkpoint.write_best(run)
    for epoch in checkpoint_epochs(run)[:-keep]:
        run.remove(f"{FOLDER}/epoch-{epoch:06d}.pt")


def checkpoint_epochs(run: RunDirectory) -> list[int]:
    """The epochs that have a checkpoint, in order."""
    return sorted(int(match.group(1)) for match in map(_NAME.fullmatch, run.names(FOLDER)) if match)


def read_latest_checkpoint(
    run: RunDirectory, device: torch.device | str = "cpu", model: nn.Module | None = None
) -> Checkpoint | None:
    """Read the newest checkpoint; None before the first.

    StoreError for one that cannot be read, or whose weights are not those of `model`. Only tensors
    and plain containers are unpickled, from a file no larger than a checkpoint of `model` can be.
    """
    epochs = checkpoint_epochs(run)
    if not epochs:
        return None
    name, weights = f"{FOLDER}/epoch-{epochs[-1]:06d}.pt", model.state_dict() if model else {}
    # Weights, the best ones, two moments each, and the archive around them.
    most = 8 * sum(value.nbytes for value in weights.values()) + _ARCHIVE_BYTES
    content = run.read_bytes(name, limit=most if model else MAX_READ_BYTES)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:  # torch itself checks no checksum
            damaged = archive.testzip()
        if damaged is not None:
            raise ValueError(f"the checksum of {damaged} does not match")
        checkpoint = Checkpoint(**torch.load(io.BytesIO(content), device, weights_only=True))
        shapes = {key: value.shape for key, value in weights.items()}
        parts = (checkpoint.model, checkpoint.best)
        if model and any({k: v.shape for k, v in part.items()} != shapes for part in parts):
            raise ValueError("its tensors are not those of the experiment's model")
    except Exception as error:  # whatever the damage leads zipfile and the unpickler to
        # torch's own message ends in the advice to load the file without any protection.
        reason = str(error) if type(error) is ValueError else type(error).__name__
        raise StoreError(
            f"{run.url}/{name} is damaged ({reason}); remove it to go on from the checkpoint"
            " before it"
        ) from error
    return checkpoint


def load_optimiser(optimiser: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Load the saved state of an optimiser, but not its way to compute steps."""
    groups = [
        {**own, "params": group["params"]}
        for own, group in zip(optimiser.param_groups, saved["param_groups"], strict=True)
    ]
    optimiser.load_state_dict({"state": saved["state"], "param_groups": groups})


def _copy(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in weights.items()}
