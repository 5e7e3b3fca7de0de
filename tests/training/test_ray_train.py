"""Training in this process, in several, and on Ray: the same weights, whoever dies on the way."""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from courant.ray_session import connect_ray
from courant.runs.directory import RunDirectory
from courant.runs.record import EpochRecord, read_records
from courant.training import ray_train, workers
from courant.training.train import TrainingError, fit
from simgen.errors import InputError
from simgen.store.read import Dataset
from tests.world import tiny_experiment

pytestmark = pytest.mark.end_to_end


@pytest.fixture(scope="module")
def on_ray() -> Iterator[None]:
    import ray

    connect_ray()
    yield
    ray.shutdown()


def test_a_training_is_that_of_the_plain_loop_and_a_finished_run_returns_at_once(
    dataset: Dataset, tmp_path: Path
) -> None:
    experiment, seen = tiny_experiment(), list[EpochRecord]()
    runs = str(tmp_path / "runs")
    url = workers.train(experiment, dataset.url, None, runs, on_epoch=seen.append)
    run, plain = RunDirectory(url), RunDirectory(tmp_path / "plain")
    fit(experiment, dataset, plain)
    assert [record.epoch for record in seen] == [1, 2, 3, 4]
    assert seen == read_records(run)
    for ours, theirs in zip(read_records(run), read_records(plain), strict=True):
        assert ours.train_loss == pytest.approx(theirs.train_loss, rel=1e-4)
    assert run.read_json("dataset.json")["version"] == dataset.version
    before = run.read_json("status.json"), read_records(run)
    assert workers.train(experiment, dataset.url, None, runs) == url
    assert (run.read_json("status.json"), read_records(run)) == before


@pytest.mark.parametrize("where", [workers.train, ray_train.train], ids=["here", "on Ray"])
def test_a_killed_worker_comes_back_and_two_follow_the_curve_of_the_plain_loop(
    where, dataset: Dataset, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if where is ray_train.train:
        request.getfixturevalue("on_ray")
    experiment = tiny_experiment(workers=2, epochs=30, checkpoint_every=5)
    runs = tmp_path / "runs"
    run = RunDirectory(runs) / experiment.run_id(dataset.snapshot_id)
    killed: list[int] = []

    def kill_once(record: EpochRecord) -> None:
        if not killed and record.epoch >= 6:
            killed.append(run.read_json("environment.json")["process"])
            os.kill(killed[0], signal.SIGKILL)

    assert where(experiment, dataset.url, None, str(runs), on_epoch=kill_once) == run.url
    assert killed
    assert run.read_json("environment.json")["process"] != killed[0], "another process went on"
    records = read_records(run)
    assert [record.epoch for record in records] == list(range(1, 31))
    plain = RunDirectory(tmp_path / "plain")
    fit(experiment, dataset, plain)
    for ours, theirs in zip(records, read_records(plain), strict=True):
        assert ours.train_loss == pytest.approx(theirs.train_loss, abs=1e-3)
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("number", [1, 2])
def test_a_diverged_run_is_not_tried_again(number: int, dataset: Dataset, tmp_path: Path) -> None:
    experiment = tiny_experiment(learning_rate=1e30, epochs=20, workers=number)
    with pytest.raises(TrainingError, match="training diverged") as caught:
        workers.train(experiment, dataset.url, None, str(tmp_path))
    assert "\n" not in str(caught.value)
    (name,) = RunDirectory(tmp_path).names()
    assert (RunDirectory(tmp_path) / name).read_json("status.json")["state"] == "failed"


def test_bad_requests_are_errors_before_any_worker_starts(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no version v7"):
        workers.train(tiny_experiment(), dataset.url, "v7", str(tmp_path))
    wrong = tiny_experiment().derive(model={"num_outputs": 5})
    with pytest.raises(InputError, match=r"model\.num_outputs = 5, expected 2"):
        workers.train(wrong, dataset.url, None, str(tmp_path))
    with pytest.raises(InputError, match="asks for 1 GPUs, this machine has 0"):
        workers.train(tiny_experiment(use_gpu=True), dataset.url, None, str(tmp_path))
