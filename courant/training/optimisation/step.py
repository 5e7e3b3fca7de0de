"""Take one optimiser step on the device: loss, gradients, clipping, new weights, their average.

Notable properties:
- The host never waits for a GPU: it runs ahead, and a CUDA graph can hold the whole step.
- The GPU decides whether loss and gradient are finite. Where they are not, the optimiser and the
  average leave everything unchanged.
- On a CPU the host decides, and AdamW is PyTorch's plain one: runs of older releases resume to the
  same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as distributed
from torch import Tensor, nn
from torch.optim import Optimizer

from courant.data.batch import Batch
from courant.experiment import Experiment, TrainingConfig
from courant.training.optimisation.averaging import WeightAverage
from courant.training.optimisation.cuda_graphs import Inputs, Replayed
from courant.training.optimisation.gradients import backward, clip
from simgen.errors import InputError

if TYPE_CHECKING:
    from courant.training.task import Task


class OptimiserStep:
    """Trains `model`, which is `bare` itself or a wrapper of it, batch by batch."""

    def __init__(
        self,
        task: Task,
        model: nn.Module,
        bare: nn.Module,
        optimiser: Optimizer,
        average: WeightAverage | None,
        world: int,
    ) -> None:
        self.task, self.model, self.bare = task, model, bare
        self.optimiser, self.average, self.world = optimiser, average, world
        device = next(bare.parameters()).device
        self._fused = bool(optimiser.defaults.get("fused"))
        self._share: Tensor | float = torch.zeros((), device=device) if self._fused else 0.0
        # Optimisers leave weights and moments unchanged where this is one, as GradScaler sets it.
        self._left_out = torch.zeros((), device=device)
        if self._fused:
            optimiser.found_inf = self._left_out  # type: ignore[attr-defined]
        self._run = Replayed(self._take) if task.experiment.training.cuda_graphs else self._take

    def __call__(self, batch: Batch, number: int, learning_rate: float) -> Tensor:
        """Take step `number` (from 0); return loss, gradient norm, and 1 if it was taken."""
        for group in self.optimiser.param_groups:
            if self._fused:
                group["lr"].fill_(learning_rate)
            else:
                group["lr"] = learning_rate
        if self.average is not None:
            share = self.average.share(number)
            if isinstance(self._share, Tensor):
                self._share.fill_(share)
            else:
                self._share = share
        return self._run(batch.tensors)

    def _take(self, inputs: Inputs) -> Tensor:
        training = self.task.experiment.training
        self.optimiser.zero_grad(set_to_none=True)
        loss = backward(self.task, self.model, Batch.of(inputs), training.accumulate)
        norm = clip(self.bare, training.clip_norm)
        taken = (torch.isfinite(loss) & torch.isfinite(norm)).float()
        if self.world > 1 and training.nonfinite == "skip":
            # Workers skip a step together, whichever of them had the bad loss.
            distributed.all_reduce(taken, op=distributed.ReduceOp.MIN)
        if self._fused:
            self._left_out.copy_(1 - taken)
            self._move(self._share * taken)
        elif bool(taken):
            self._move(self._share)
        return torch.stack([loss.float(), norm, taken])

    def _move(self, share: Tensor | float) -> None:
        """Update the weights, and move the average towards them."""
        self.optimiser.step()
        if self.average is not None:
            self.average.take_in(self.bare, share)


def check_graphs(experiment: Experiment, device: torch.device, world: int) -> None:
    """Raise InputError where steps should be replayed from CUDA graphs but cannot."""
    obstacles = [f"training runs on {device.type}"] * (device.type != "cuda")
    obstacles += [f"{world} workers exchange gradients"] * (world > 1)
    _refuse_graphs(experiment, obstacles)


def check_graphs_of_its_own(experiment: Experiment) -> None:
    """Raise InputError where CUDA graphs are asked for that no device could record."""
    _refuse_graphs(experiment, [])


def _refuse_graphs(experiment: Experiment, obstacles: list[str]) -> None:
    waits = experiment.model.waits_for_device
    obstacles = obstacles + [f"{waits} waits for the device"] * (waits is not None)
    if experiment.training.cuda_graphs and obstacles:
        because = " and ".join(obstacles)
        raise InputError(f"training.cuda_graphs = true, but {because}; leave it out")


def check_batch_divides(training: TrainingConfig, world: int) -> None:
    """Raise InputError where a batch does not divide over the workers, or a part over steps."""
    if training.batch_size % world:
        raise InputError(
            f"training.batch_size = {training.batch_size} does not divide over {world} workers"
        )
    if training.batch_size // world < training.accumulate:
        raise InputError(
            f"training.accumulate = {training.accumulate}: a worker's batch has"
            f" {training.batch_size // world} samples, no more parts than that"
        )


def rank_and_world() -> tuple[int, int]:
    """Return this process's rank, and the number of processes."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1
