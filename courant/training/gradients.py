"""Loss and gradients of one batch: whole, or in parts that together give the same step with less memory."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from courant.data.samples import Batch
from courant.model import Courant
from courant.training.throughput import count_flops

if TYPE_CHECKING:
    from courant.training.task import Task


def backward(task: Task, model: nn.Module, batch: Batch, num_parts: int = 1) -> Tensor:
    """Add the gradients of the batch's loss to those of the model; the loss, detached."""
    if num_parts == 1:
        loss = task.loss(task.predict(model, batch), batch)
        loss.backward()
        return loss.detach()
    parts = split(batch, num_parts)
    weights = [task.loss.weight(part) for part in parts]
    total = torch.zeros((), device=batch.targets.device)
    for number, (part, weight) in enumerate(zip(parts, weights, strict=True), start=1):
        # Workers exchange gradients once, when theirs are complete.
        is_last = number == num_parts
        alone = model.no_sync() if isinstance(model, DistributedDataParallel) and not is_last else nullcontext()
        with alone:
            share = weight / torch.stack(weights).sum()
            loss = task.loss(task.predict(model, part), part) * share
            loss.backward()
        total += loss.detach()
    return total


def split(batch: Batch, num_parts: int) -> list[Batch]:
    """The batch's samples in so many parts of almost equal size."""
    numbers = torch.arange(len(batch.targets), device=batch.targets.device)
    return [batch.map(lambda value, of=part: value[of]) for part in numbers.tensor_split(num_parts)]  # type: ignore[misc]


def flops_per_sample(task: Task, batch: Batch) -> float:
    """Floating-point operations of a training step on this batch, for each of its samples; touches no weight and no random state."""
    with torch.random.fork_rng(devices=[]):
        model = Courant(task.experiment.model).to(batch.points.device)
        return count_flops(lambda: backward(task, model, batch)) / len(batch.targets)
