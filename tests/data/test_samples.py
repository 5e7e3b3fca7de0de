"""Windows and batches: what the model is shown is what is stored, from memory or streamed: each
window once, to the bit, from any state on.
"""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from courant.data.batch import BatchOrder, seeded, spread
from courant.data.normalisation import Channel, Normaliser
from courant.experiment import TransientData
from courant.problems.transient import (
    TrajectorySet,
    WindowBatches,
    WindowReader,
    common_interval,
    draw_batch,
    even_times,
    gather,
    list_windows,
    mirror_sign,
    snapshots_per_step,
    times_between,
)
from simgen.errors import InputError
from simgen.store.read import Dataset, StoredCase
from tests.data.conftest import assert_drawn, assert_same, problem_on

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


@pytest.fixture
def normaliser(dataset: Any) -> Normaliser:
    return Normaliser.of(dataset, ("velocity",))


@pytest.fixture
def trajectories(dataset: Any) -> TrajectorySet:
    return WindowReader(dataset, dataset.cases("train"), problem_on(dataset, CONFIG)).read_all()


def test_windows_begin_at_every_snapshot_that_leaves_room_for_the_last_step(
    trajectories: TrajectorySet, caplog: pytest.LogCaptureFixture
) -> None:
    windows = list_windows(trajectories, CONFIG)
    starts = windows[windows[:, 0] == 0, 1] + trajectories.start_s[0]
    assert starts.tolist() == list(range(5, 30 - 12 + 1)), "snapshots end at 30 s"
    assert set(windows[:, 0].tolist()) == set(range(len(trajectories.ids)))
    later = CONFIG.model_copy(update={"start_s": 10.0, "stride_s": 3.0})
    windows = list_windows(trajectories, later)
    assert (windows[windows[:, 0] == 1, 1] + trajectories.start_s[1]).tolist() == [10, 13, 16]
    num_frames = torch.tensor([20, 3, *trajectories.num_frames[2:].tolist()])
    with caplog.at_level("WARNING", "courant.training"):
        windows = list_windows(replace(trajectories, num_frames=num_frames), CONFIG)
    assert set(windows[:, 0].tolist()) == {0, 2}
    assert (windows[windows[:, 0] == 0, 1]).max() == 20 - 12 - 1
    assert "1 of 3 cases are too short for a window of 3 x 4 s" in caplog.text


def test_a_full_batch_holds_the_stored_snapshots(
    dataset: Any, normaliser: Normaliser, trajectories: TrajectorySet
) -> None:
    windows = torch.tensor([[1, 2], [0, 7]])
    batch = gather(trajectories, windows, CONFIG)
    for row, (number, first) in enumerate(windows.tolist()):
        case = dataset[trajectories.ids[number]]
        n, start = case.num_points, 4 + first  # the first snapshot is at 1 s, windows begin at 5 s
        expected = normaliser.standardise(np.asarray(case["velocity"][:]))
        distance = normaliser.distance_channels((case.distance, case.direction), n)
        same = np.testing.assert_array_equal
        same(batch.features[row, :n, :2], expected[start])
        same(batch.targets[row, :, :n], expected[[start + 4, start + 8, start + 12]])
        same(batch.query_points[row, :n], normaliser.points(case.points))
        same(batch.query_features[row, :n], distance)
        assert batch.query_mask is not None
        same(batch.query_mask[row], np.arange(batch.query_points.shape[1]) < n)


def test_a_window_may_begin_with_several_known_states_the_oldest_first(
    dataset: Any, normaliser: Normaliser, trajectories: TrajectorySet
) -> None:
    config = CONFIG.model_copy(update={"input_steps": 3, "window_steps": 2})
    windows = list_windows(trajectories, config)
    starts = windows[windows[:, 0] == 0, 1] + trajectories.start_s[0]
    assert starts.tolist() == list(range(5, 30 - 16 + 1)), "a window spans 2 + 2 steps of 4 s"
    batch = gather(trajectories, torch.tensor([[1, 2]]), config)
    case = dataset[trajectories.ids[1]]
    n, first = case.num_points, 4 + 2
    expected = normaliser.standardise(np.asarray(case["velocity"][:]))
    distance = normaliser.distance_channels((case.distance, case.direction), n)
    known = np.concatenate([*expected[[first, first + 4, first + 8]], distance], axis=-1)
    np.testing.assert_array_equal(batch.features[0, :n], known)
    np.testing.assert_array_equal(batch.targets[0, :, :n], expected[[first + 12, first + 16]])
    assert problem_on(dataset, config).start(case) == 5 + 2 * 4
    assert times_between(np.arange(5.0), 1.0, 3.0).tolist() == [1, 2, 3]


def test_drawn_points_are_points_of_the_case_with_its_values(trajectories: TrajectorySet) -> None:
    windows = torch.tensor([[1, 2], [0, 7], [0, 3]])
    full = gather(trajectories, windows, CONFIG)
    drawn = draw_batch(trajectories, windows, CONFIG, seeded(1))
    assert (drawn.points.shape, drawn.targets.shape) == ((3, 20, 3), (3, 3, 12, 2))
    assert drawn.mask is None
    assert_drawn(drawn, full)


def test_a_case_with_fewer_points_than_are_drawn_is_masked(trajectories: TrajectorySet) -> None:
    fewest, most = int(trajectories.num_points.min()), int(trajectories.num_points.max())
    config = CONFIG.model_copy(update={"points_per_sample": most - 1})
    short, long = int(trajectories.num_points.argmin()), int(trajectories.num_points.argmax())
    batch = draw_batch(trajectories, torch.tensor([[short, 0], [long, 0]]), config, seeded(1))
    assert batch.mask is not None
    assert batch.mask.sum(1).tolist() == [fewest, most - 1]


def test_epochs_differ_and_repeat_for_the_same_seed() -> None:
    order = BatchOrder(8, 24, seed=1)
    first, second, again = (torch.cat(list(order.epoch(40, epoch))) for epoch in (1, 2, 1))
    assert torch.equal(first, again) and not torch.equal(first, second)
    assert len(first.unique()) == 24
    drawn = torch.bincount(torch.cat(list(BatchOrder(4, 12, seed=1).epoch(5, 1))))
    assert drawn.sum() == 12 and drawn.min() == 2, "few samples are drawn again and again"


def test_validation_windows_are_spread_over_cases_and_times() -> None:
    windows = torch.stack([torch.arange(20) // 10, torch.arange(20) % 10], dim=1)
    assert spread(windows, 4).tolist() == [[0, 0], [0, 6], [1, 3], [1, 9]]
    assert torch.equal(spread(windows, 100), windows)


def test_a_shift_moves_points_anchors_and_queries_as_one(trajectories: TrajectorySet) -> None:
    windows = list_windows(trajectories, CONFIG)[:4]
    still = draw_batch(trajectories, windows, CONFIG, seeded(1))
    moved = draw_batch(trajectories, windows, CONFIG.model_copy(update={"shift": 0.3}), seeded(1))
    shift = moved.points - still.points
    assert 0 < shift.abs().max() <= 0.3
    assert not shift[..., 2].any(), "a 2D case stays in its plane"
    for name in ("points", "anchors", "query_points"):
        apart = getattr(moved, name) - getattr(still, name)
        torch.testing.assert_close(apart, shift[:, :1].expand_as(apart))
    assert torch.equal(moved.features, still.features)


def test_mirrored_cases_are_the_image_in_y(
    dataset: Any, normaliser: Normaliser, trajectories: TrajectorySet
) -> None:
    problem = problem_on(dataset, CONFIG)
    both = WindowReader(dataset, dataset.cases("train"), problem, mirror_y=True).read_all()
    assert len(both.ids) == 2 * len(trajectories.ids)
    assert both.ids[1] == f"{both.ids[0]} mirrored"
    n = int(both.num_points[0])
    points, image = (normaliser.restore_points(both.points[i, :n].numpy()) for i in (0, 1))
    np.testing.assert_allclose(image, points * (1, -1, 1), atol=1e-5)
    batch = gather(both, torch.tensor([[0, 4], [1, 4]]), CONFIG)
    for states in (batch.features[:, :n, :2], batch.targets[:, -1, :n]):
        velocity, reflected = (normaliser.restore(state.numpy()) for state in states)
        np.testing.assert_allclose(reflected, velocity * (1, -1), atol=1e-6)
    np.testing.assert_array_equal(both.distance[1, :n, ::4], both.distance[0, :n, ::4])
    np.testing.assert_array_equal(both.distance[1, :n, 2::4], -both.distance[0, :n, 2::4])
    names = ("x", "y", "z", "xx", "xy", "yy", "yz", "p", "temperature", "y_plus")
    turned = [name for name in names if mirror_sign(Channel("field", name, 0, "1")) < 0]
    assert turned == ["y", "xy", "yz"]


def test_a_batch_is_made_without_asking_its_device(trajectories: TrajectorySet) -> None:
    """A meta tensor has no values: to look at one fails, where on a GPU the host would wait."""
    windows = torch.tensor([[1, 2], [0, 7], [0, 3]])
    for config in (CONFIG, CONFIG.model_copy(update={"shift": 0.1, "points_per_sample": None})):
        batch = draw_batch(trajectories.to("meta"), windows, config, seeded(1))
        expected = draw_batch(trajectories, windows, config, seeded(1)).tensors
        shapes = {name: (value.shape, "meta") for name, value in expected.items()}
        found = batch.tensors.items()
        assert {name: (value.shape, value.device.type) for name, value in found} == shapes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step_s": 2.5}, r"data\.step_s = 2\.5 s is no multiple of the snapshot interval, 1 s"),
        ({"stride_s": 0.5}, r"data\.stride_s = 0\.5 s is no multiple"),
        ({"window_steps": 7}, "no window of 7 x 4 s fits from 5 s to the last snapshot at 30 s"),
    ],
)
def test_windows_that_do_not_fit_are_explained(
    trajectories: TrajectorySet, change: dict, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        list_windows(trajectories, CONFIG.model_copy(update=change))


@pytest.mark.parametrize("interval", [8e-7, 1.25e-5, 0.05, 1.0])
def test_snapshots_of_any_interval_are_told_apart(interval: float) -> None:
    """Shock tubes and sound have microseconds between their snapshots."""
    time = interval * np.arange(1, 41)
    case: Any = SimpleNamespace(id="a", num_points=9, time=time)
    dataset: Any = SimpleNamespace(url="store/d", version="v1")
    late, apart = even_times(case, 10 * interval)
    assert late.tolist() == time[9:].tolist()
    found = common_interval(dataset, [apart, even_times(case, 0.0)[1]])
    assert found == pytest.approx(interval, rel=1e-8)
    held: Any = SimpleNamespace(snapshot_interval_s=found)
    of_ten = CONFIG.model_copy(update={"step_s": 10 * interval})
    assert snapshots_per_step(held, of_ten) == 10
    with pytest.raises(InputError, match=r"data\.step_s = .* is no multiple of the snapshot"):
        snapshots_per_step(held, CONFIG.model_copy(update={"step_s": 10.5 * interval}))
    case.time = time + 0.2 * interval * (time > time[20])
    with pytest.raises(InputError, match="expected one interval"):
        even_times(case, 0.0)
    case.time = 1.1 * time
    with pytest.raises(InputError, match="train on cases with one snapshot interval"):
        common_interval(dataset, [apart, even_times(case, 0.0)[1]])


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
    sums = [sorted(each.sum((1, 2, 3)).tolist()) for each in (torch.cat(targets), of_all)]
    assert sums[0] == pytest.approx(sums[1])


def test_each_case_is_decoded_once_while_the_cache_has_room(
    dataset: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded, read = list[str](), StoredCase.read
    monkeypatch.setattr(
        StoredCase, "read", lambda case, *names: decoded.append(case.id) or read(case, *names)
    )
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
