"""Streamed batches are those of trajectories in memory: each window once, to the bit, from any
state on, wherever the store is.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from courant.data.batch import BatchOrder
from courant.data_config import TransientData
from courant.problems.transient import TrajectorySet, WindowBatches, WindowReader
from simgen.store.read import Dataset, StoredCase
from tests.data.conftest import assert_same, problem_on

CONFIG = TransientData(
    window_steps=3,
    step_s=4.0,
    start_s=5.0,
    stride_s=1.0,
    points_per_sample=20,
    queries_per_sample=12,
)
ORDER = BatchOrder(batch_size=6, samples_per_epoch=None, seed=7)
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, for the cache of decoded arrays."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def batches(
    dataset: Dataset, streamed: bool, config: TransientData = CONFIG, order: BatchOrder = ORDER
) -> WindowBatches:
    problem = problem_on(dataset, config)
    reader = WindowReader(dataset, dataset.cases("train"), problem, config.mirror_y)
    return WindowBatches(reader if streamed else reader.read_all(), config, order, CPU)


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
def test_batches_are_those_of_trajectories_in_memory(dataset: Any, change: dict[str, Any]) -> None:
    config = CONFIG.model_copy(update=change)
    expected, found = (batches(dataset, streamed, config) for streamed in (False, True))
    assert torch.equal(found.samples, expected.samples)
    assert found.source.ids == expected.source.ids
    for epoch in (1, 2):
        for (windows, batch), (same_windows, same_batch) in zip(
            expected.epoch(epoch), found.epoch(epoch), strict=True
        ):
            assert torch.equal(windows, same_windows)
            assert_same(batch, same_batch)


def test_every_window_comes_exactly_once_an_epoch_over_all_ranks(dataset: Any) -> None:
    batch_size = 6
    whole = batches(dataset, streamed=True)
    seen, targets = [], []
    for rank in range(3):
        part = batches(dataset, True, order=BatchOrder(batch_size, None, 7, rank, 3))
        for windows, batch in part.epoch(1):
            seen += [tuple(window) for window in windows[rank::3].tolist()]
            targets.append(batch.targets)
            assert len(batch.targets) == batch_size // 3
    assert len(seen) == len(set(seen)) == whole.num_batches * batch_size
    assert len(whole.samples) - len(seen) < batch_size, "only a short last batch is dropped"
    of_all = torch.cat([batch.targets for _, batch in whole.epoch(1)])
    assert sorted(torch.cat(targets).sum((1, 2, 3)).tolist()) == pytest.approx(
        sorted(of_all.sum((1, 2, 3)).tolist())
    )


def test_each_case_is_decoded_once_while_the_cache_has_room(
    dataset: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[str] = []
    read = StoredCase.read

    def counting(self: StoredCase, *names: str) -> dict[str, np.ndarray]:
        decoded.append(self.id)
        return read(self, *names)

    monkeypatch.setattr(StoredCase, "read", counting)
    monkeypatch.setattr("courant.data.batch.READERS", 1)
    stream = batches(dataset, streamed=True)
    for epoch in (1, 2, 3):
        list(stream.epoch(epoch))
    assert sorted(decoded) == sorted(dataset.cases("train"))


def test_cases_that_the_cache_has_no_room_for_come_from_the_store(
    dataset: Any, cache: Path
) -> None:
    small = CONFIG.model_copy(update={"cache_gb": 25_000 / 1e9})  # two of three cases' velocities
    found = list(batches(dataset, True, small).epoch(1))
    cached = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
    assert 0 < cached <= 30_000
    for (_, one), (_, other) in zip(found, batches(dataset, False).epoch(1), strict=True):
        assert_same(one, other)


def test_a_split_beyond_the_budget_is_streamed_and_any_other_is_not(dataset: Any) -> None:
    reader = batches(dataset, streamed=True).source
    assert isinstance(reader, WindowReader)
    for budget, kind in ((1.0, TrajectorySet), (0.99, WindowReader)):
        config = CONFIG.model_copy(update={"resident_gb": budget * reader.all_bytes / 1e9})
        made = problem_on(dataset, config).training(dataset, ORDER, CPU)
        assert type(made.source) is kind and made.streamed == (kind is WindowReader)
        assert_same(next(made.epoch(1))[1], next(batches(dataset, False).epoch(1))[1])
    held, read = (
        problem_on(dataset, CONFIG.model_copy(update={"resident_gb": budget}))
        for budget in (8.0, 0.0)
    )
    for one, other in zip(
        held.validation(dataset, 4, CPU)(), read.validation(dataset, 4, CPU)(), strict=True
    ):
        assert_same(one, other)
