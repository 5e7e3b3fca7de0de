"""Write and read checkpoints: one file, complete or absent, on disk and on S3 alike.

It holds everything that the next epoch depends on:

    checkpoints/epoch-000010.pt     model, its average, optimiser, best weights so far, their loss,
                                    epochs done, seconds spent

Sampler, learning rate and random draws are functions of the seed and the step and need no state.
"""

from __future__ import annotations

import io
import math
import re
import time
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

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
    average: dict[str, Tensor] = field(default_factory=dict)
    """Moving average of the weights, if there is one"""

    @classmethod
    def before_training(cls, weights: dict[str, Tensor], parts: Iterable[str]) -> Checkpoint:
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
    torch.save({each.name: getattr(checkpoint, each.name) for each in fields(Checkpoint)}, buffer)
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

    StoreError for one that cannot be read, or is not of `model`. Only tensors and plain containers
    are unpickled, from a file no larger than a checkpoint of `model` can be.
    """
    epochs = checkpoint_epochs(run)
    if not epochs:
        return None
    name, limit = f"{FOLDER}/epoch-{epochs[-1]:06d}.pt", MAX_READ_BYTES
    if model is not None:
        # Weights, their average, the best ones, two moments each, and the archive around them.
        weights = sum(value.numel() * value.element_size() for value in model.state_dict().values())
        limit = 8 * weights + _ARCHIVE_BYTES
    content = run.read_bytes(name, limit=limit)
    try:
        checkpoint = Checkpoint(**_unpickle(content, device))
        _check_content(checkpoint, model)
    except (_DamageError, TypeError) as error:
        raise StoreError(
            f"{run.url}/{name} is damaged ({error}); remove it to go on from the checkpoint"
            " before it"
        ) from error
    return checkpoint


def load_optimiser(
    optimiser: torch.optim.Optimizer, checkpoint: Checkpoint, run: RunDirectory
) -> None:
    """Load the optimiser's state; StoreError where its groups do not match the model's parameters.

    How steps are computed (fused, capturable, the learning rate's place) depends on this process
    alone.
    """
    saved = checkpoint.optimiser
    try:
        groups = [
            {**own, "params": group["params"]}
            for own, group in zip(optimiser.param_groups, saved["param_groups"], strict=True)
        ]
        optimiser.load_state_dict({"state": saved["state"], "param_groups": groups})
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise StoreError(
            f"{run.url}/{FOLDER}: the optimiser's state of epoch {checkpoint.epoch} does not fit"
            " the model; remove that checkpoint to go on from the one before it"
        ) from error


class _DamageError(Exception):
    """A problem of a checkpoint's content."""


def _unpickle(content: bytes, device: torch.device | str) -> dict[str, Any]:
    """Unpickle a checkpoint's file, which has to be a plain zip archive of torch's."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            is_plain = all(entry.compress_type == zipfile.ZIP_STORED for entry in entries)
            # torch itself checks no checksum.
            damaged = archive.testzip() if is_plain else None
    except Exception as error:  # zipfile raises half a dozen kinds on damage
        raise _DamageError("it is no archive of torch") from error
    if not is_plain:
        raise _DamageError("its archive is compressed, which torch never does")
    if damaged is not None:
        raise _DamageError(f"the checksum of {damaged} does not match")
    if sum(entry.file_size for entry in entries) > len(content):
        raise _DamageError("its archive announces more than it holds")
    try:
        state = torch.load(io.BytesIO(content), map_location=device, weights_only=True)
    except Exception as error:  # whatever the damage leads the unpickler to
        # torch's own message ends in the advice to load the file without any protection.
        raise _DamageError(f"torch cannot read it: {type(error).__name__}") from error
    if not isinstance(state, dict):
        raise _DamageError("it holds no mapping")
    return state


def _check_content(checkpoint: Checkpoint, model: nn.Module | None) -> None:
    """Raise _DamageError for other types than a checkpoint's, or other tensors than `model`'s."""
    state = checkpoint.optimiser.get("state") if isinstance(checkpoint.optimiser, dict) else None
    if not isinstance(state, dict) or not all(isinstance(each, dict) for each in state.values()):
        raise _DamageError("its optimiser has no state")
    if not isinstance(checkpoint.seconds, dict):
        raise _DamageError("its times are no mapping")
    numbers = [checkpoint.epoch, checkpoint.best_epoch, checkpoint.best_loss]
    if not all(isinstance(each, int | float) for each in [*numbers, *checkpoint.seconds.values()]):
        raise _DamageError("an epoch, a loss or a time is no number")
    expected = {name: value.shape for name, value in model.state_dict().items()} if model else None
    for part in ("model", "best", "average"):
        tensors = getattr(checkpoint, part)
        if not isinstance(tensors, dict) or not all(
            isinstance(value, Tensor) for value in tensors.values()
        ):
            raise _DamageError(f"its {part} holds something else than tensors")
        shapes = {name: value.shape for name, value in tensors.items()}
        is_absent = part == "average" and not shapes
        if expected is not None and shapes != expected and not is_absent:
            raise _DamageError(f"its {part} has other tensors than the experiment's model")
    if expected is not None:
        allowed = {*expected.values(), torch.Size([])}
        for value in (value for each in state.values() for value in each.values()):
            if not isinstance(value, Tensor) or value.shape not in allowed:
                raise _DamageError("its optimiser has other tensors than the experiment's model")


def _copy(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in weights.items()}
