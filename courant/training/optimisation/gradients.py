"""Compute loss and gradients of one batch, whole or in parts that save memory."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
import torch.distributed as distributed
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from courant.data.batch import Batch
from courant.field_model import TrainsApart
from courant.models import build
from courant.training.throughput import count_flops

if TYPE_CHECKING:
    from courant.training.task import Task


def backward(task: Task, model: nn.Module, batch: Batch, num_parts: int = 1) -> Tensor:
    """Add the gradients of the batch's loss to the model's; return this worker's share of the loss.

    The loss is detached. It is a mean over the points of the whole batch. Workers average their
    gradients, so each weighs its part by its share of the points: padded clouds give them different
    numbers.
    """
    parts = [batch] if num_parts == 1 else split(batch, num_parts)
    weights = _shares(torch.stack([task.loss.weight(part) for part in parts]))
    total = torch.zeros((), device=batch.targets.device)
    for number, (part, weight) in enumerate(zip(parts, weights, strict=True), start=1):
        # Workers exchange gradients once, when all parts are done.
        is_last = number == len(parts)
        alone = (
            model.no_sync()
            if isinstance(model, DistributedDataParallel) and not is_last
            else nullcontext()
        )
        with alone:
            loss = task.training_loss(model, part) * weight
            loss.backward()
        total += loss.detach()
    return total


def clip(model: nn.Module, most: float) -> Tensor:
    """Shorten gradients whose norm is above `most`; return the norm that they had.

    Each member of an ensemble is clipped as if it were trained alone, and the norm is the largest
    one's: the loss is the mean over members, so a gradient is as many times smaller than their own.
    """
    if not isinstance(model, TrainsApart):
        return nn.utils.clip_grad_norm_(model.parameters(), most)
    members = model.trained_apart()
    norms = [
        nn.utils.clip_grad_norm_(member.parameters(), most / len(members)) for member in members
    ]
    return len(members) * torch.stack(norms).max()


def _shares(weights: Tensor) -> Tensor:
    """Weigh this worker's parts over the mean of all workers' totals.

    The weights sum to one over the parts of a single worker.
    """
    total = weights.sum()
    if distributed.is_available() and distributed.is_initialized():
        distributed.all_reduce(total)
        total = total / distributed.get_world_size()
    return weights / total


def split(batch: Batch, num_parts: int) -> list[Batch]:
    """Split the batch's samples into parts of almost equal size."""
    numbers = torch.arange(len(batch.targets), device=batch.targets.device)
    return [batch.map(lambda value, of=part: value[of]) for part in numbers.tensor_split(num_parts)]  # type: ignore[misc]


def flops_per_sample(task: Task, batch: Batch) -> float:
    """Count the floating-point operations of a training step for one sample of this batch.

    Touches no weight and no random state. Counted on the first sample alone, so that it takes no
    more memory than a step in parts does.
    """
    with torch.random.fork_rng(devices=[]):
        model = task.trained(build(task.experiment.model).to(batch.points.device))
        first = batch.map(lambda value: value[:1])
        return float(count_flops(lambda: task.training_loss(model, first).backward()))
