"""Streamed batches are those of trajectories in memory: each window once, to the bit, from any
state on, wherever the store is.
"""

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import simgen
from courant.data.batch import Batch
from courant.data.batches import BatchOrder
from courant.data.geometry import AnchorChoice
from courant.data.normalisation import Normaliser
from courant.data_config import TransientData
from courant.problems import transient
from courant.problems.transient import (
    ResidentBatches,
    StreamingBatches,
    WindowReader,
    full_batch,
    load_batches,
    load_trajectories,
    load_windows,
    resident_bytes,
)
from courant.runs.directory import RunDirectory
from courant.runs.record import read_records
from courant.training.loop import fit
from simgen.store.read import Dataset, LocalCache, StoredCase
from tests.training.waves import publish_waves, tiny_experiment

CONFIG = TransientData(
    window_steps=3,
    step_s=4.0,
    start_s=5.0,
    stride_s=1.0,
    points_per_sample=20,
    queries_per_sample=12,
)
ORDER = BatchOrder(batch_size=6, samples_per_epoch=None, seed=7)
ANCHORS = 6


@pytest.fixture
def cache(tmp_path: Path) -> LocalCache:
    return LocalCache(tmp_path / "cache", 1 << 30)


def streamed(
    dataset: Dataset, cache: LocalCache, config: TransientData = CONFIG, order: BatchOrder = ORDER
) -> StreamingBatches:
    normaliser = Normaliser.of(dataset, config.fields)
    reader = WindowReader(
        dataset,
        dataset.cases("train"),
        normaliser,
        cache,
        anchors=AnchorChoice(ANCHORS),
        start_s=config.start_s,
        mirror_y=config.mirror_y,
    )
    return StreamingBatches(reader, config, order)


def resident(
    dataset: Dataset, config: TransientData = CONFIG, order: BatchOrder = ORDER
) -> ResidentBatches:
    normaliser = Normaliser.of(dataset, config.fields)
    trajectories = load_trajectories(
        dataset,
        dataset.cases("train"),
        normaliser,
        anchors=AnchorChoice(ANCHORS),
        start_s=config.start_s,
        mirror_y=config.mirror_y,
    )
    return ResidentBatches(trajectories, config, order)


def same(first: Batch, second: Batch) -> None:
    for field in fields(Batch):
        one, other = getattr(first, field.name), getattr(second, field.name)
        assert (one is None) == (other is None), field.name
        assert one is None or torch.equal(one, other), field.name


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"mirror_y": True, "shift": 0.3},
        {"points_per_sample": None, "queries_per_sample": None},
        {"fields": ("velocity.y",), "stride_s": 2.0},
        {"input_steps": 3, "mirror_y": True},
    ],
)
def test_batches_are_those_of_trajectories_in_memory(
    dataset: Any, cache: LocalCache, change: dict[str, Any]
) -> None:
    config = CONFIG.model_copy(update=change)
    expected, found = resident(dataset, config), streamed(dataset, cache, config)
    assert torch.equal(found.windows, expected.windows)
    assert found.trajectories.ids == expected.trajectories.ids
    for epoch in (1, 2):
        for (windows, batch), (same_windows, same_batch) in zip(
            expected.epoch(epoch), found.epoch(epoch), strict=True
        ):
            assert torch.equal(windows, same_windows)
            same(batch, same_batch)


def test_every_window_comes_exactly_once_an_epoch_over_all_ranks(
    dataset: Any, cache: LocalCache
) -> None:
    batch_size = 6
    whole = streamed(dataset, cache)
    seen, targets = [], []
    for rank in range(3):
        part = streamed(dataset, cache, order=BatchOrder(batch_size, None, 7, rank, 3))
        for windows, batch in part.epoch(1):
            seen += [tuple(window) for window in windows[rank::3].tolist()]
            targets.append(batch.targets)
            assert len(batch.targets) == batch_size // 3
    assert len(seen) == len(set(seen)) == whole.num_batches * batch_size
    assert len(whole.windows) - len(seen) < batch_size, "only a short last batch is dropped"
    of_all = torch.cat([batch.targets for _, batch in whole.epoch(1)])
    assert sorted(torch.cat(targets).sum((1, 2, 3)).tolist()) == pytest.approx(
        sorted(of_all.sum((1, 2, 3)).tolist())
    )


def test_each_case_is_decoded_once_while_the_cache_has_room(
    dataset: Any, cache: LocalCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[str] = []
    read = StoredCase.read

    def counting(self: StoredCase, *names: str) -> dict[str, np.ndarray]:
        decoded.append(self.id)
        return read(self, *names)

    monkeypatch.setattr(StoredCase, "read", counting)
    monkeypatch.setattr("courant.data.batches.READERS", 1)
    stream = streamed(dataset, cache)
    for epoch in (1, 2, 3):
        list(stream.epoch(epoch))
    assert sorted(decoded) == sorted(dataset.cases("train"))


def test_cases_that_the_cache_has_no_room_for_come_from_the_store(
    dataset: Any, tmp_path: Path
) -> None:
    small = LocalCache(tmp_path / "cache", 25_000)  # two of three cases' velocities
    found = list(streamed(dataset, small).epoch(1))
    assert 0 < small.num_bytes <= small.max_bytes
    for (_, one), (_, other) in zip(found, resident(dataset).epoch(1), strict=True):
        same(one, other)


def test_geometries_beyond_their_budget_are_prepared_anew(
    dataset: Any, cache: LocalCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transient, "GEOMETRY_BYTES", 10_000)
    stream = streamed(dataset, cache)
    for (_, one), (_, other) in zip(stream.epoch(1), resident(dataset).epoch(1), strict=True):
        same(one, other)
    assert stream.num_bytes <= 10_000


def test_a_split_beyond_the_budget_is_streamed_and_any_other_is_not(
    dataset: Any, tmp_path: Path
) -> None:
    normaliser = Normaliser.of(dataset, CONFIG.fields)
    size = resident_bytes(dataset, "train", normaliser)
    for budget, kind in ((size / 1e9, ResidentBatches), (0.99 * size / 1e9, StreamingBatches)):
        config = CONFIG.model_copy(update={"resident_gb": budget, "cache_folder": str(tmp_path)})
        batches = load_batches(dataset, normaliser, config, ORDER, AnchorChoice(ANCHORS))
        assert type(batches) is kind
        same(next(batches.epoch(1))[1], next(resident(dataset).epoch(1))[1])


def test_validation_windows_are_the_same_either_way(dataset: Any, tmp_path: Path) -> None:
    normaliser = Normaliser.of(dataset, CONFIG.fields)
    found = []
    for budget in (8.0, 0.0):
        config = CONFIG.model_copy(update={"resident_gb": budget, "cache_folder": str(tmp_path)})
        trajectories, windows = load_windows(
            dataset, "validation", normaliser, config, 4, AnchorChoice(ANCHORS)
        )
        found.append(full_batch(trajectories, windows, config))
    same(*found)


def test_training_from_a_stream_gives_the_same_losses(dataset: Any, tmp_path: Path) -> None:
    runs = {}
    for budget in (8.0, 0.0):
        runs[budget] = RunDirectory(tmp_path / str(budget))
        settings = {"resident_gb": budget, "cache_folder": str(tmp_path / "cache")}
        fit(tiny_experiment(epochs=2).derive(data=settings), dataset, runs[budget])
    losses = [
        [(r.train_loss, r.validation_loss) for r in read_records(run)] for run in runs.values()
    ]
    assert losses[0] == losses[1]


def test_where_the_data_lies_is_no_part_of_a_runs_identity() -> None:
    experiment = tiny_experiment()
    assert experiment.derive(data={"resident_gb": 0.0}).run_id("x") == experiment.run_id("x")
    assert experiment.derive(data={"shift": 0.1}).run_id("x") != experiment.run_id("x")


@pytest.mark.end_to_end
def test_batches_stream_from_s3(s3: Any, dataset: Any, cache: LocalCache) -> None:
    remote = simgen.open_dataset(publish_waves(f"{s3.url}/stream/cylinder-flow"))
    found = streamed(remote, cache).epoch(1)
    for (_, one), (_, other) in zip(found, resident(dataset).epoch(1), strict=True):
        same(one, other)
