"""Load a split onto the device once, or stream it from the store.

The split's size against the experiment's `resident_gb` decides which.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from courant.data.anchor_choice import AnchorChoice
from courant.data.batches import Batches, BatchOrder, ResidentBatches
from courant.data.normalisation import Normaliser
from courant.data.samples import list_windows, snapshots_per_step, spread
from courant.data.streaming import StreamingBatches
from courant.data.trajectories import TrajectorySet, load_trajectories
from courant.data.window_reader import WindowReader
from courant.data_config import TransientData

if TYPE_CHECKING:
    from simgen.store.access.local_cache import LocalCache
    from simgen.store.access.reader import Dataset


def load_batches(
    dataset: Dataset,
    normaliser: Normaliser,
    config: TransientData,
    order: BatchOrder,
    anchors: AnchorChoice,
    device: torch.device | str = "cpu",
    with_edges: bool = False,
) -> Batches:
    """Return training batches on the device, resident or streamed."""
    split = _open_split(dataset, "train", normaliser, config, anchors, with_edges, config.mirror_y)
    if isinstance(split, WindowReader):
        return StreamingBatches(split, config, order, device)
    return ResidentBatches(split.to(device), config, order)


def load_windows(
    dataset: Dataset,
    split: str,
    normaliser: Normaliser,
    config: TransientData,
    num: int,
    anchors: AnchorChoice,
    device: torch.device | str = "cpu",
    with_edges: bool = False,
) -> tuple[TrajectorySet, Tensor]:
    """Load at most `num` windows, spread evenly over a split.

    Returns trajectories on the device that hold the windows, and the windows' places in them.
    If the split is larger than `config.resident_gb`, only these windows are read.
    """
    source = _open_split(dataset, split, normaliser, config, anchors, with_edges)
    windows = spread(list_windows(source, config), num)
    if isinstance(source, TrajectorySet):
        return source.to(device), windows
    read = source.read(windows, config.num_states, snapshots_per_step(source, config))
    num_read = len(windows)
    return read.to(device), torch.stack(
        [torch.arange(num_read), torch.zeros(num_read, dtype=torch.long)], dim=1
    )


def resident_bytes(dataset: Dataset, split: str, normaliser: Normaliser) -> float:
    """Return the memory that a split's snapshots take, with every case padded to the largest."""
    design = dataset.design.loc[dataset.cases(split)]
    values = (
        design["num_snapshots"].sum() * design["num_points"].max() * len(normaliser.read_channels)
    )
    return 4.0 * float(values)


def _open_split(
    dataset: Dataset,
    split: str,
    normaliser: Normaliser,
    config: TransientData,
    anchors: AnchorChoice,
    with_edges: bool,
    mirror_y: bool = False,
) -> TrajectorySet | WindowReader:
    """Load the trajectories of a split that fits into memory; else a reader of its windows."""
    ids = dataset.cases(split)
    if resident_bytes(dataset, split, normaliser) > config.resident_gb * 1e9:
        return WindowReader(
            dataset,
            ids,
            normaliser,
            _cache(config),
            anchors=anchors,
            start_s=config.start_s,
            mirror_y=mirror_y,
            with_edges=with_edges,
        )
    return load_trajectories(
        dataset,
        ids,
        normaliser,
        anchors=anchors,
        start_s=config.start_s,
        mirror_y=mirror_y,
        with_edges=with_edges,
    )


def _cache(config: TransientData) -> LocalCache:
    # Training from memory does without the store's libraries, so they are imported only here.
    from simgen.store.access.local_cache import LocalCache

    # The cache removes files, and an experiment may name any folder: it gets a folder of its own.
    return LocalCache(Path(config.cache_folder) / "courant-arrays", int(config.cache_gb * 1e9))
