"""Whether a split is loaded onto the device once or streamed from the store: by its size against the experiment's budget."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from courant.data.batches import Batches, BatchOrder, ResidentBatches
from courant.data.normalisation import Normaliser
from courant.data.samples import list_windows, snapshots_per_step, spread
from courant.data.streaming import StreamingBatches
from courant.data.trajectories import TrajectorySet, load_trajectories
from courant.data.window_reader import WindowReader
from courant.experiment import TransientData

if TYPE_CHECKING:
    from simgen.store.local_cache import LocalCache
    from simgen.store.reader import Dataset


def load_batches(
    dataset: Dataset,
    normaliser: Normaliser,
    config: TransientData,
    order: BatchOrder,
    num_anchors: int,
    device: torch.device | str = "cpu",
) -> Batches:
    """Training batches on the device, from memory where the training split fits into `config.resident_gb`, else streamed."""
    ids = dataset.cases("train")
    if resident_bytes(dataset, "train", normaliser) > config.resident_gb * 1e9:
        reader = WindowReader(
            dataset, ids, normaliser, _cache(config),
            num_anchors=num_anchors, start_s=config.start_s, mirror_y=config.mirror_y,
        )  # fmt: skip
        return StreamingBatches(reader, config, order, device)
    trajectories = load_trajectories(
        dataset, ids, normaliser, num_anchors=num_anchors, start_s=config.start_s, mirror_y=config.mirror_y
    )
    return ResidentBatches(trajectories.to(device), config, order)


def load_windows(
    dataset: Dataset,
    split: str,
    normaliser: Normaliser,
    config: TransientData,
    num: int,
    num_anchors: int,
    device: torch.device | str = "cpu",
) -> tuple[TrajectorySet, Tensor]:
    """At most `num` windows, evenly spread over a split, on the device: trajectories that hold them, and where they stand in these.

    Of a split beyond `config.resident_gb` these windows alone are read.
    """
    ids = dataset.cases(split)
    if resident_bytes(dataset, split, normaliser) > config.resident_gb * 1e9:
        reader = WindowReader(dataset, ids, normaliser, _cache(config), num_anchors=num_anchors, start_s=config.start_s)
        windows = spread(list_windows(reader, config), num)
        read = reader.read(windows, config.window_steps, snapshots_per_step(reader, config))
        return read.to(device), torch.stack([torch.arange(len(windows)), torch.zeros(len(windows)).long()], dim=1)
    trajectories = load_trajectories(dataset, ids, normaliser, num_anchors=num_anchors, start_s=config.start_s)
    return trajectories.to(device), spread(list_windows(trajectories, config), num)


def resident_bytes(dataset: Dataset, split: str, normaliser: Normaliser) -> float:
    """What the snapshots of a split take in memory, every case padded to the most points of any."""
    design = dataset.design.loc[dataset.cases(split)]
    values = design["num_snapshots"].sum() * design["num_points"].max() * len(normaliser.channels)
    return 4.0 * float(values)


def _cache(config: TransientData) -> LocalCache:
    # What lies in memory is trained on without the store's libraries.
    from simgen.store.local_cache import LocalCache

    # A folder of its own inside: the cache removes files, and an experiment may name any folder.
    return LocalCache(Path(config.cache_folder) / "courant-arrays", int(config.cache_gb * 1e9))
