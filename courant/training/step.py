"""Compute the loss of a batch, and take one optimiser step on the device.

Losses are in standardised space. L2 is the paper's (tab:baseline-arch), relative L2 that of the
public benchmarks (tab:courant-training), where Darcy flow has that of derivatives beside it.

The host never waits for a GPU, which decides itself whether loss and gradient are finite; where
they are not, the optimiser and the average leave everything unchanged. So a CUDA graph can hold the
whole step: one is recorded for each set of shapes, after two steps that warm up.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, cast

import torch
import torch.distributed as distributed
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils.flop_counter import FlopCounterMode

from courant.data.batch import Batch
from courant.ensemble import Ensemble, MembersApart
from courant.experiment import Experiment
from courant.field_model import Inputs, Queries
from courant.models import BASELINES, DEFAULT_KIND, build
from courant.problems import Problem
from simgen.errors import InputError

WARM_UPS = 2
"""Plain calls with new shapes before recording: they compile kernels and allocate moments"""
MOST_GRAPHS = 512  # Combinations of shapes that are recorded; further ones are computed plainly

Tensors = Mapping[str, Tensor]
Record = Callable[[Callable[[], Tensor]], Callable[[], Tensor]]


class Objective:
    """What a training minimises: the loss of an experiment as a function of model and batch."""

    problem: Problem
    grid: tuple[int, ...]
    """The shape of the grid that all cases are; empty where the loss needs none"""

    @property
    def experiment(self) -> Experiment:
        return self.problem.experiment

    def trained(self, model: nn.Module) -> nn.Module:
        """Return what training steps call: the model, or a wrapper with what the loss needs."""
        if isinstance(model, Ensemble):
            return MembersApart([self.trained(member) for member in model.members])
        return WithSpread(model) if self.experiment.training.locality_weight else model

    def training_loss(self, trained: nn.Module, batch: Batch) -> Tensor:
        """Return the loss of a batch, of what `trained` made of a model; the mean over members."""
        weight = self.experiment.training.locality_weight
        inputs, queries = batch.for_model(self.experiment.model)
        mask = (batch.query_mask,) if weight else ()
        with self._precision(batch):
            made = trained(inputs, queries, self.problem.num_steps, *mask)
        losses = []
        for each in made if isinstance(made, list) else [made]:
            field, apart = each if isinstance(each, tuple) else (each, None)
            loss = self.loss(field, batch)
            losses.append(loss if apart is None else loss + weight * apart.float().mean())
        return torch.stack(losses).mean()

    def predict(self, model: nn.Module, batch: Batch) -> Tensor:
        """Predict (B, T, M, C) standardised, in the experiment's precision; T = 1 if steady."""
        inputs, queries = batch.for_model(self.experiment.model)
        with self._precision(batch):
            prediction: Tensor = model(inputs, queries, self.problem.num_steps)
        return prediction

    def _precision(self, batch: Batch) -> torch.autocast:
        bfloat16 = self.experiment.training.precision == "bfloat16"
        return torch.autocast(batch.points.device.type, torch.bfloat16, enabled=bfloat16)

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Return the loss of a prediction (B, T, M, C)."""
        training, targets = self.experiment.training, batch.targets
        if training.loss == "l2":
            loss = prediction_loss(prediction, targets, batch.query_mask)
        else:
            # The physical value of a standardised zero, in standard deviations.
            normaliser = self.problem.normaliser
            offset = [m / s for m, s in zip(normaliser.mean, normaliser.std, strict=True)]
            loss = relative_l2_loss(prediction, targets, batch.query_mask, offset)
        if not training.derivative_weight:
            return loss
        return loss + training.derivative_weight * derivative_loss(prediction, targets, self.grid)

    def weight(self, batch: Batch) -> Tensor:
        """Return the number of points, or samples, over which a part's loss is a mean."""
        targets, mask = batch.targets, batch.query_mask
        is_l2 = self.experiment.training.loss == "l2"
        if is_l2 and mask is not None:
            return mask.sum().to(torch.float64)
        count = len(targets) * targets.shape[2] if is_l2 else len(targets)
        return torch.full((), count, dtype=torch.float64, device=targets.device)


def prediction_loss(prediction: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
    """Mean squared error in standardised space over all steps, points and channels.

    prediction, target (B, T, M, C); mask (B, M), True at real points. Scalar, float32.
    """
    error = (prediction.float() - target).square()
    if mask is None:
        return error.mean()
    return masked_sum(error, mask) / (mask.sum() * error.shape[1] * error.shape[3])


def relative_l2_loss(
    prediction: Tensor, target: Tensor, mask: Tensor | None, offset: Sequence[float]
) -> Tensor:
    """Average |u_hat - u|_2 / |u|_2 over samples, u in standard deviations about zero.

    For one channel that is the relative error in physical units; several have equal weight. The
    paper sums over the batch: the same up to a factor, to which AdamW does not respond.
    """
    # Filled on the device: a copy from the host would wait for it.
    truth = target + torch.stack([target.new_full((), value) for value in offset])
    error, size = (prediction.float() - target).square(), truth.square()
    if mask is not None:
        error, size = (value * mask[:, None, :, None].to(value.dtype) for value in (error, size))
    return _ratio(error.sum((1, 2, 3)), size.sum((1, 2, 3)))


def derivative_loss(prediction: Tensor, target: Tensor, grid: tuple[int, ...]) -> Tensor:
    """Average |D u_hat - D u|_2 / |D u|_2 over samples, summed over the grid's axes.

    D u are central differences along the lines of the grid, at its inner points; their spacing
    cancels. prediction, target (B, T, M, C) on a grid of M points, the last axis fastest. Scalar.
    """
    apart = (prediction.float() - target).unflatten(2, grid)
    truth = target.unflatten(2, grid)
    total = target.new_zeros(())
    for axis in range(2, 2 + len(grid)):
        inner = truth.shape[axis] - 2
        error, size = (
            (values.narrow(axis, 2, inner) - values.narrow(axis, 0, inner)).flatten(1)
            for values in (apart, truth)
        )
        total = total + _ratio(error.square().sum(1), size.square().sum(1))
    return total


def _ratio(error: Tensor, size: Tensor) -> Tensor:
    """Average the square roots of (B,) squared errors over (B,) squared sizes."""
    # The square root has no derivative at zero, where a prediction would be perfect.
    return ((error + 1e-12).sqrt() / size.clamp(min=1e-12).sqrt()).mean()


def masked_sum(values: Tensor, mask: Tensor | None) -> Tensor:
    """Sum (B, T, M, C) values over the real points of a (B, M) mask."""
    return (values if mask is None else values * mask[:, None, :, None].to(values.dtype)).sum()


class WithSpread(nn.Module):
    """A model whose forward returns the spread of its contributions beside its prediction."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model: Any = model

    def forward(
        self, inputs: Inputs, queries: Queries, num_steps: int, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the prediction (B, T, M, C) and the spread (B, L)."""
        return self.model.predict_with_spread(inputs, queries, num_steps, mask)


def backward(objective: Objective, model: nn.Module, batch: Batch, num_parts: int = 1) -> Tensor:
    """Add the gradients of the batch's loss to the model's; return this worker's share of the loss.

    It is a mean over the points of the whole batch. Workers average their gradients, so each weighs
    its part by its share of the points: padded clouds give them different numbers.
    """
    parts = [batch]
    if num_parts > 1:
        numbers = torch.arange(len(batch.targets), device=batch.targets.device)
        tensors = batch.tensors.items()
        chosen = numbers.tensor_split(num_parts)
        parts = [Batch(**{name: each[part] for name, each in tensors}) for part in chosen]
    # Weights sum to one over the parts of a single worker; of several, over the mean of totals.
    weights = torch.stack([objective.weight(part) for part in parts])
    sum_of_all, (_, world) = weights.sum(), rank_and_world()
    if world > 1:
        distributed.all_reduce(sum_of_all)
    weights = weights / (sum_of_all / world)
    total = torch.zeros((), device=batch.targets.device)
    for number, (part, weight) in enumerate(zip(parts, weights, strict=True), start=1):
        # Workers exchange gradients once, when all parts are done.
        alone = isinstance(model, DistributedDataParallel) and number < len(parts)
        with cast(DistributedDataParallel, model).no_sync() if alone else nullcontext():
            loss = objective.training_loss(model, part) * weight
            loss.backward()
        total += loss.detach()
    return total


def clip(model: nn.Module, most: float) -> Tensor:
    """Shorten gradients whose norm is above `most`; return the norm that they had.

    Each member of an ensemble is clipped as if it were trained alone, with the largest one's norm:
    the loss is the mean over members, so a gradient is as many times smaller.
    """
    if not isinstance(model, Ensemble):
        return nn.utils.clip_grad_norm_(model.parameters(), most)
    members = list(model.members)
    norms = [nn.utils.clip_grad_norm_(of.parameters(), most / len(members)) for of in members]
    return len(members) * torch.stack(norms).max()


def flops_per_sample(objective: Objective, batch: Batch) -> float:
    """Count the operations of products and attention in a training step for a batch's first sample.

    Two for each multiply-add, forward and backward. Leaves weights and random state alone.
    """
    with torch.random.fork_rng(devices=[]):
        model = objective.trained(build(objective.experiment.model).to(batch.points.device))
        first = batch.map(lambda value: value[:1])
        with FlopCounterMode(display=False) as counter:
            objective.training_loss(model, first).backward()
    return float(counter.get_total_flops())


class Replayed:
    """A function of named tensors, recorded once for each combination of shapes, then replayed.

    Every call does the work once, so the function may change weights and moments. It must not wait
    for the device (`.item()`, `bool(tensor)`) nor copy to it from the host.
    """

    def __init__(self, function: Callable[[Tensors], Tensor], record: Record | None = None) -> None:
        self._function, self._record = function, record or cuda_recorder()
        self._calls: Counter[Hashable] = Counter()
        self._replays: dict[Hashable, Callable[[Tensors], Tensor]] = {}

    def __call__(self, inputs: Tensors) -> Tensor:
        key = tuple((name, tuple(tensor.shape), tensor.dtype) for name, tensor in inputs.items())
        if key in self._replays:
            return self._replays[key](inputs)
        self._calls[key] += 1
        if self._calls[key] <= WARM_UPS or len(self._replays) == MOST_GRAPHS:
            return self._function(inputs)
        kept = {name: tensor.clone() for name, tensor in inputs.items()}
        run = self._record(lambda: self._function(kept))

        def replay(given: Tensors) -> Tensor:
            for name, tensor in given.items():
                kept[name].copy_(tensor, non_blocking=True)
            return run().clone()

        self._replays[key] = replay
        return replay(inputs)


def cuda_recorder() -> Record:
    """Return what records calls on the current CUDA device, in one pool of memory for all graphs.

    They run one after another, and nothing outlives a replay but its output, which is copied.
    """
    pool, stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()

    def record(call: Callable[[], Tensor]) -> Callable[[], Tensor]:
        graph = torch.cuda.CUDAGraph()
        # Other threads may read ahead and pin memory while this one records: "thread_local".
        with torch.cuda.graph(graph, pool, stream, "thread_local"):
            output = call()

        def replay() -> Tensor:
            graph.replay()
            return output

        return replay

    return record


class OptimiserStep:
    """Trains `model`, which is `bare` itself or a wrapper of it, batch by batch."""

    def __init__(
        self,
        objective: Objective,
        model: nn.Module,
        bare: nn.Module,
        optimiser: Optimizer,
        world: int,
    ) -> None:
        self.objective, self.model, self.bare = objective, model, bare
        self.optimiser, self.world = optimiser, world
        device = next(bare.parameters()).device
        self._fused = bool(optimiser.defaults.get("fused"))
        # Optimisers leave weights and moments unchanged where this is one, as GradScaler sets it.
        self._left_out = torch.zeros((), device=device)
        if self._fused:
            optimiser.found_inf = self._left_out  # type: ignore[attr-defined]
        replays = uses_graphs(objective.experiment, device, world)
        self._run = Replayed(self._take) if replays else self._take

    def __call__(self, batch: Batch, number: int, learning_rate: float) -> Tensor:
        """Take step `number` (from 0); return loss, gradient norm, and 1 if it was taken."""
        for group in self.optimiser.param_groups:
            # In the tensor that holds it where there is one.
            held = group["lr"]
            group["lr"] = held.fill_(learning_rate) if isinstance(held, Tensor) else learning_rate
        return self._run(batch.tensors)

    def _take(self, inputs: Tensors) -> Tensor:
        training = self.objective.experiment.training
        self.optimiser.zero_grad(set_to_none=True)
        loss = backward(self.objective, self.model, Batch(**inputs), training.accumulate)
        norm = clip(self.bare, training.clip_norm)
        taken = (torch.isfinite(loss) & torch.isfinite(norm)).float()
        if self.world > 1 and training.nonfinite == "skip":
            # Workers skip a step together, whichever of them had the bad loss.
            distributed.all_reduce(taken, op=distributed.ReduceOp.MIN)
        if self._fused:
            self._left_out.copy_(1 - taken)
        if self._fused or bool(taken):
            self.optimiser.step()
        return torch.stack([loss.float(), norm, taken])


def uses_graphs(experiment: Experiment, device: torch.device | None = None, world: int = 1) -> bool:
    """Return whether steps are replayed from CUDA graphs, on this device or any GPU.

    Unless the experiment decides, they are where nothing is in the way; a model of one's own might
    wait for the device without saying so. InputError where they are demanded and cannot be.
    """
    asked, model = experiment.training.cuda_graphs, experiment.model
    waits, kind = model.waits_for_device, device.type if device else "cuda"
    obstacles = {
        f"training runs on {kind}": kind != "cuda",
        f"{world} workers exchange gradients": world > 1,
        f"{waits} waits for the device": waits is not None,
    }
    because = " and ".join(name for name, is_there in obstacles.items() if is_there)
    if asked == "auto":
        return not because and model.kind in (DEFAULT_KIND, *BASELINES)
    if asked and because:
        raise InputError(f"training.cuda_graphs = true, but {because}; leave it out")
    return asked


def of_first_worker(value: float, device: torch.device) -> float:
    """Return the first worker's value on all workers."""
    if rank_and_world()[1] == 1:
        return value
    shared = torch.tensor(value, dtype=torch.float64, device=device)
    distributed.broadcast(shared, 0)
    return float(shared)


def rank_and_world() -> tuple[int, int]:
    """Return this process's rank, and the number of processes."""
    if distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1
