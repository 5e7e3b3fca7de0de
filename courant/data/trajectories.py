"""Dataset version -> TrajectorySet: every trajectory of a split in memory, normalised, geometry worked out once.

Cases differ in their number of points: points are padded to the longest case and `num_points` says where the padding
starts. Snapshots of all cases lie behind one another in `frames`, so a batch is one gather on whatever device holds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from courant.data.normalisation import Channel, Normaliser
from courant.model.anchors import farthest_point_sampling, gather_points
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.reader import Dataset, StoredCase

READERS = 4
TIME_TOLERANCE_S = 1e-6


@dataclass(frozen=True)
class TrajectorySet:
    """Trajectories of K cases, N = the most points of any; D distance channels, C modelled channels, L anchors."""

    ids: tuple[str, ...]
    snapshot_interval_s: float
    points: Tensor
    """(K, N, 3)"""
    distance: Tensor
    """(K, N, D)"""
    anchors: Tensor
    """(K, L, 3), farthest point sampling of each case's points"""
    num_points: Tensor
    """(K,)"""
    frames: Tensor
    """(F, N, C): the snapshots of all cases, one case after another"""
    first_frame: Tensor
    """(K,): where each case begins in `frames`"""
    start_s: Tensor
    """(K,) float64: the time of its first frame"""
    num_frames: Tensor
    """(K,)"""

    def to(self, device: torch.device | str) -> TrajectorySet:
        moved: dict[str, Any] = {
            name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        return replace(self, **moved)

    @property
    def num_bytes(self) -> int:
        return sum(value.numel() * value.element_size() for value in vars(self).values() if isinstance(value, Tensor))


def load_trajectories(
    dataset: Dataset,
    ids: Sequence[str],
    normaliser: Normaliser,
    *,
    num_anchors: int,
    start_s: float = 0.0,
    mirror_y: bool = False,
) -> TrajectorySet:
    """Read the cases' snapshots from `start_s` on, with `mirror_y` each case's image in the plane y = 0 after it.

    InputError for cases whose snapshots are not evenly spaced, or not alike.
    """
    if not ids:
        raise InputError(f"dataset {dataset.url} {dataset.version}: no cases to read")
    with ThreadPoolExecutor(READERS) as readers:
        clouds = list(readers.map(lambda case_id: _Cloud.read(dataset[case_id], normaliser.channels, start_s), ids))
    if mirror_y:
        clouds = [image for cloud in clouds for image in (cloud, cloud.mirrored(normaliser.channels))]
    intervals = {round(cloud.interval_s, 6) for cloud in clouds}
    if len(intervals) > 1:
        raise InputError(
            f"dataset {dataset.url} {dataset.version}: snapshots lie {', '.join(f'{value:g} s' for value in sorted(intervals))} apart; "
            "train on cases with one snapshot interval"
        )
    most = max(len(cloud.points) for cloud in clouds)
    points = torch.stack([_pad(normaliser.points(cloud.points), most) for cloud in clouds])
    num_points = torch.tensor([len(cloud.points) for cloud in clouds])
    num_frames = torch.tensor([len(cloud.states) for cloud in clouds])
    return TrajectorySet(
        ids=tuple(cloud.id for cloud in clouds),
        snapshot_interval_s=intervals.pop(),
        points=points,
        distance=torch.stack([_pad(normaliser.distance(cloud.distance, cloud.direction), most) for cloud in clouds]),
        anchors=select_anchors(points, num_anchors, torch.arange(most) < num_points[:, None]),
        num_points=num_points,
        frames=torch.cat([_pad(normaliser.standardise(cloud.states), most, axis=1) for cloud in clouds]),
        first_frame=torch.cumsum(num_frames, 0) - num_frames,
        start_s=torch.tensor([cloud.start_s for cloud in clouds], dtype=torch.float64),
        num_frames=num_frames,
    )


def select_anchors(points: Tensor, num_anchors: int, mask: Tensor | None = None) -> Tensor:
    """(B, N, 3) normalised points -> (B, L, 3) anchors, farthest point sampling from the point nearest the centroid."""
    return gather_points(points, farthest_point_sampling(points, num_anchors, mask))


def read_states(case: StoredCase, channels: Sequence[Channel], frames: slice) -> np.ndarray:
    """The modelled channels of the case's snapshots, in their units: (T, N, C)."""
    stored = {name: np.asarray(case[name][frames]) for name in {channel.field for channel in channels}}
    return np.stack([stored[channel.field][..., channel.column] for channel in channels], axis=-1)


@dataclass(frozen=True)
class _Cloud:
    """One case before normalisation and padding, in physical units."""

    id: str
    points: np.ndarray
    distance: np.ndarray
    direction: np.ndarray
    states: np.ndarray
    start_s: float
    interval_s: float

    @classmethod
    def read(cls, case: StoredCase, channels: Sequence[Channel], start_s: float) -> _Cloud:
        time = np.asarray(case.time, dtype=np.float64)
        first = int(np.searchsorted(time, start_s - TIME_TOLERANCE_S))
        if len(time) - first < 2:
            raise InputError(
                f"case {case.id} has {len(time) - first} snapshots from {start_s:g} s on; lower data.start_s or solve longer"
            )
        steps = np.diff(time[first:])
        if np.ptp(steps) > TIME_TOLERANCE_S:
            raise InputError(
                f"case {case.id}: snapshots lie {steps.min():g} to {steps.max():g} s apart; expected one interval"
            )
        return cls(
            id=case.id,
            points=np.asarray(case.points),
            distance=np.asarray(case.distance),
            direction=np.asarray(case.direction),
            states=read_states(case, channels, slice(first, None)),
            start_s=float(time[first]),
            interval_s=float(steps.mean()),
        )

    def mirrored(self, channels: Sequence[Channel]) -> _Cloud:
        """The image in the plane y = 0: y and every component along it change sign."""
        flip = np.array([1, -1, 1], self.points.dtype)
        signs = np.array([-1 if channel.component == "y" else 1 for channel in channels], self.states.dtype)
        return replace(
            self,
            id=f"{self.id} mirrored",
            points=self.points * flip,
            direction=self.direction * flip,
            states=self.states * signs,
        )


def _pad(values: np.ndarray, length: int, axis: int = 0) -> Tensor:
    padding = [(0, 0)] * values.ndim
    padding[axis] = (0, length - values.shape[axis])
    return torch.from_numpy(np.pad(values, padding))
