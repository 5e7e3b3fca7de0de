"""Take one optimiser step on the device: loss, gradients, clipping, new weights, their average.

Notable properties:
- The host never waits for a GPU: it runs ahead, and a CUDA graph can hold the whole step.
- The GPU decides whether loss and gradient are finite. Where they are not, the optimiser and the
  average leave everything unchanged.
- On a CPU the host decides, and AdamW is PyTorch's plain one.
- A step may be replayed from a CUDA graph: one launch in place of thousands. A graph is recorded
  for each set of shapes at its third batch, after two steps that warm up, and reads its inputs from
  tensors of its own.
- `accumulate` parts of a batch are weighted as the whole batch weights them, so that the gradient
  is the same up to rounding.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
import torch.distributed as distributed
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils.flop_counter import FlopCounterMode

from courant.data.batch import Batch
from courant.experiment import Experiment, TrainingConfig
from courant.field_model import TrainsApart
from courant.models import build
from courant.training.optimiser import WeightAverage
from simgen.errors import InputError

if TYPE_CHECKING:
    from courant.training.train import Task


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


def count_flops(step: Callable[[], object]) -> int:
    """Count the floating-point operations of a forward and backward pass.

    Matrix products and attention, two operations for each multiply-add, counted by torch while the
    pass runs. Element-wise operations, softmax and normalisation are left out, which is the custom
    when FLOP/s are compared with a device's peak.
    """
    with FlopCounterMode(display=False) as counter:
        step()
    return int(counter.get_total_flops())
