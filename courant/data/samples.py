"""Draw batches of windows from a TrajectorySet.

A window is (case, first frame). Windows of all cases are numbered, a seeded permutation orders them
anew each epoch, and each batch draws its encoder and query points with a generator made from (seed,
epoch, step). Nothing is carried from batch to batch, so a run that resumes in any epoch sees
exactly the samples that it would have seen.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from courant.data.batch import Batch
from courant.data.trajectories import TIME_TOLERANCE, TrajectorySet
from courant.data_config import TransientData
from simgen.errors import InputError

logger = logging.getLogger("courant.training")


class TrajectoryIndex(Protocol):
    """The snapshots of each case, as a TrajectorySet lists them."""

    @property
    def ids(self) -> tuple[str, ...]: ...

    @property
    def snapshot_interval_s(self) -> float: ...

    @property
    def start_s(self) -> Tensor: ...

    @property
    def num_frames(self) -> Tensor: ...

    @property
    def num_bytes(self) -> int:
        """Bytes held in memory."""


def list_windows(trajectories: TrajectoryIndex, config: TransientData) -> Tensor:
    """(W, 2) int64 rows (case, first frame within the case), all cases' windows in order."""
    step = snapshots_per_step(trajectories, config)
    stride = _multiple(config.stride_s, trajectories.snapshot_interval_s, "stride_s")
    reach = (config.num_states - 1) * step
    rows = []
    for case in range(len(trajectories.ids)):
        late = (
            config.start_s - float(trajectories.start_s[case])
        ) / trajectories.snapshot_interval_s
        first = max(0, math.ceil(late - TIME_TOLERANCE))
        starts = torch.arange(first, max(first, int(trajectories.num_frames[case]) - reach), stride)
        rows.append(torch.stack([torch.full_like(starts, case), starts], dim=1))
    windows = torch.cat(rows)
    if lacking := [trajectories.ids[n] for n, row in enumerate(rows) if not len(row)]:
        logger.warning(
            "%d of %d cases are too short for a window of %d x %g s, such as %s: nothing is"
            " learned from them",
            len(lacking),
            len(rows),
            config.num_states - 1,
            config.step_s,
            lacking[0],
        )
    if len(windows) == 0:
        longest = float(
            (
                trajectories.start_s
                + (trajectories.num_frames - 1) * trajectories.snapshot_interval_s
            ).max()
        )
        raise InputError(
            f"no window of {config.num_states - 1} x {config.step_s:g} s fits from"
            f" {config.start_s:g} s to the last snapshot at {longest:g} s; lower data.start_s or"
            " data.window_steps, or solve longer"
        )
    return windows


def snapshots_per_step(trajectories: TrajectoryIndex, config: TransientData) -> int:
    """Return the snapshots from one step of a window to the next."""
    return _multiple(config.step_s, trajectories.snapshot_interval_s, "step_s")


def spread(windows: Tensor, num: int) -> Tensor:
    """Choose at most `num` windows, spread evenly over cases and times."""
    num = min(num, len(windows))
    return windows[torch.linspace(0, len(windows) - 1, num).round().long()]


def epoch_batches(
    num_windows: int, batch_size: int, samples: int | None, seed: int, epoch: int
) -> Iterator[Tensor]:
    """Return the epoch's batches of window numbers.

    Permutations are concatenated and cut to `samples`; a short last batch is dropped.
    """
    wanted = samples or num_windows
    rounds = math.ceil(max(wanted, batch_size) / num_windows)
    generator = seeded(seed, "windows", epoch)
    order = torch.cat([torch.randperm(num_windows, generator=generator) for _ in range(rounds)])
    for batch in range(max(1, wanted // batch_size)):
        yield order[batch * batch_size : (batch + 1) * batch_size]


def draw_batch(
    trajectories: TrajectorySet,
    windows: Tensor,
    config: TransientData,
    generator: torch.Generator,
    shard: slice = slice(None),
) -> Batch:
    """Draw the batch of `windows` (B, 2); encoder and query points are drawn separately.

    `shard` is a worker's part of the batch: points are drawn for the whole batch first, so that a
    window gets the same points however many workers share it.
    """
    points = _draw(trajectories, windows, config.points_per_sample, generator, shard)
    queries = _draw(trajectories, windows, config.queries_per_sample, generator, shard)
    batch = _gather(trajectories, windows[shard], config, points, queries)
    if not config.shift:
        return batch
    drawn = torch.rand(len(windows), 1, 3, generator=generator)[shard]
    shift = config.shift * (2 * drawn.to(batch.points.device, non_blocking=True) - 1)
    shift = shift * (batch.points != 0).any(dim=1, keepdim=True)  # a 2D case stays at z = 0
    return replace(
        batch,
        points=batch.points + shift,
        anchors=batch.anchors + shift,
        query_points=batch.query_points + shift,
    )


def full_batch(trajectories: TrajectorySet, windows: Tensor, config: TransientData) -> Batch:
    """Return the batch of `windows` with every mesh point, in the encoder and as a query.

    This is what the predictor sees.
    """
    return _gather(trajectories, windows, config, None, None)


def seeded(*key: object) -> torch.Generator:
    """Return a CPU generator that depends on the key alone."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def _draw(
    trajectories: TrajectorySet,
    windows: Tensor,
    num: int | None,
    generator: torch.Generator,
    shard: slice,
) -> Tensor | None:
    """Draw (B, num) distinct random point numbers of each window's case; None = all.

    Where a case has fewer points, padding comes last.
    """
    most = trajectories.points.shape[1]
    if num is None or num >= most:
        return None
    keys = torch.rand(len(windows), most, generator=generator)[shard]
    num_points = trajectories.num_points[windows[shard, 0]]
    keys.masked_fill_(torch.arange(most) >= num_points[:, None], 2.0)
    return _to(trajectories, keys).topk(num, dim=1, largest=False, sorted=False).indices


def _gather(
    trajectories: TrajectorySet,
    windows: Tensor,
    config: TransientData,
    points: Tensor | None,
    queries: Tensor | None,
) -> Batch:
    case, start = windows.unbind(1)
    step = snapshots_per_step(trajectories, config)
    begin = trajectories.first_frame[case] + start
    times = begin[:, None] + step * torch.arange(config.num_states)
    num_points = trajectories.num_points[case]
    case, times = (_to(trajectories, index) for index in (case, times))
    positions, distance, mask = _geometry(trajectories, case, points, num_points)
    query_positions, query_distance, query_mask = _geometry(trajectories, case, queries, num_points)
    past, future = times.split([config.input_steps, config.window_steps], dim=1)
    states = _states(trajectories, case, past, points)
    targets = _states(trajectories, case, future, queries)
    modelled = targets.shape[-1] - trajectories.num_given
    # (B, I, N, C) becomes (B, N, I C).
    known = states[..., :modelled].transpose(1, 2).flatten(2)
    if trajectories.num_given:
        # Given fields are known only at the start, whatever the time of the prediction.
        known = torch.cat([known, states[:, -1, :, modelled:]], dim=-1)
        targets = targets[..., :modelled]
        given = _states(trajectories, case, past[:, -1:], queries)[:, 0, :, modelled:]
        query_distance = torch.cat([given, query_distance], dim=-1)
    return Batch(
        points=positions,
        features=torch.cat([known, distance], dim=-1),
        mask=mask,
        anchors=trajectories.anchors[case],
        query_points=query_positions,
        query_features=query_distance,
        query_mask=query_mask,
        targets=targets,
        parameters=trajectories.parameters[case],
        # A part of the points has no edges of the whole.
        neighbours=(
            None
            if points is not None or trajectories.neighbours is None
            else trajectories.neighbours[case]
        ),
    )


def _geometry(
    trajectories: TrajectorySet, case: Tensor, chosen: Tensor | None, num_points: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gather positions, distance field and mask of the chosen points of each window's case.

    num_points (B,) are the cases', on the CPU.
    """
    if chosen is None:
        numbers = torch.arange(trajectories.points.shape[1], device=case.device)
        positions, distance = trajectories.points[case], trajectories.distance[case]
    else:
        numbers = chosen
        positions = trajectories.points[case[:, None], chosen]
        distance = trajectories.distance[case[:, None], chosen]
    # Padding is chosen last, so the number chosen tells whether it is included; looking at the mask
    # itself would wait for the device.
    if numbers.shape[-1] <= int(num_points.min()):
        return positions, distance, None
    return positions, distance, numbers < _to(trajectories, num_points)[:, None]


def _to(trajectories: TrajectorySet, index: Tensor) -> Tensor:
    """Copy the index to the snapshots' device without waiting for the copy."""
    return index.to(trajectories.points.device, non_blocking=True)


def _states(
    trajectories: TrajectorySet, case: Tensor, times: Tensor, chosen: Tensor | None
) -> Tensor:
    """Gather (B, T) frames of (B,) cases at the chosen points as (B, T, M, C)."""
    if chosen is None:
        frames = trajectories.frames[times]
    else:
        frames = trajectories.frames[times[:, :, None], chosen[:, None, :]]
    return (
        frames * trajectories.sign[case][:, None, None] + trajectories.offset[case][:, None, None]
    )


def _multiple(duration: float, interval: float, name: str) -> int:
    """Return how many snapshot intervals a duration spans; InputError unless a whole number."""
    count = round(duration / interval)
    if count < 1 or abs(duration / interval - count) > TIME_TOLERANCE:
        raise InputError(
            f"data.{name} = {duration:g} s is no multiple of the snapshot interval, {interval:g} s"
        )
    return count
