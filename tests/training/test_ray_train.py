"""Training in this process, in several, and on Ray: the same weights, whoever dies on the way, and
what others learn of it."""

import math
import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.train import WorkerGroupError

from courant.ray_session import GPUS_ON_DEMAND, available_gpus, connect_ray
from courant.runs.directory import RunDirectory
from courant.runs.record import EpochRecord, best_record, read_records, write_records
from courant.sweeps import ray_trials
from courant.sweeps.ray_trials import Share
from courant.training import ray_train, workers
from courant.training.train import TrainingError, fit
from simgen.errors import InputError, StoreError
from simgen.store.read import Dataset
from tests.world import tiny_experiment


@pytest.fixture(scope="module")
def on_ray() -> Iterator[None]:
    connect_ray()
    yield
    ray.shutdown()


@pytest.mark.end_to_end
def test_a_training_is_that_of_the_plain_loop_and_a_finished_run_returns_at_once(
    dataset: Dataset, tmp_path: Path
) -> None:
    experiment, seen = tiny_experiment(), list[EpochRecord]()
    runs = str(tmp_path / "runs")
    url = workers.train(experiment, dataset.url, None, runs, on_epoch=seen.append)
    assert float("1e-310") * 1 > 0  # a caller's own subnormal numbers are numbers again
    run, plain = RunDirectory(url), RunDirectory(tmp_path / "plain")
    fit(experiment, dataset, plain)
    assert [record.epoch for record in seen] == [1, 2, 3, 4] and seen == read_records(run)
    for ours, theirs in zip(read_records(run), read_records(plain), strict=True):
        assert ours.train_loss == pytest.approx(theirs.train_loss, rel=1e-4)
    assert run.read_json("dataset.json")["version"] == dataset.version
    before = run.read_json("status.json"), read_records(run)
    assert workers.train(experiment, dataset.url, None, runs) == url
    assert (run.read_json("status.json"), read_records(run)) == before


@pytest.mark.end_to_end
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


@pytest.mark.end_to_end
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


def record(epoch: int, loss: float | None = 1.0, seconds: float = 2.0) -> EpochRecord:
    return EpochRecord(epoch, 6, 1.0, loss, loss, 1e-3, seconds, 10.0, 5.0, 0.0, seconds)


def test_epochs_that_are_trained_again_are_reported_when_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in epoch 6, with a checkpoint after epoch 3: the record still has 4 and 5."""
    run = RunDirectory(tmp_path)
    write_records(run, [record(epoch) for epoch in range(1, 6)])
    monkeypatch.setattr(workers, "checkpoint_epochs", lambda _: [3])
    reported: list[EpochRecord] = []
    with workers.following(run, reported.append):
        pass
    assert reported == []
    with workers.following(run, reported.append):
        again = [record(epoch, seconds=3.0) for epoch in (4, 5, 6)]
        write_records(run, [record(1), record(2), record(3), *again])
    assert reported == again


def test_a_validation_that_is_no_number_is_never_the_best_nor_one_for_tune(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, reported = RunDirectory(tmp_path), list[dict[str, Any]]()
    records = [record(1, math.nan), record(2, 0.5), record(3, None), record(4, 0.3), record(5, 0.4)]
    write_records(run, records)
    assert best_record(read_records(run)) == records[3] and best_record(records[:1]) is None
    monkeypatch.setattr(ray_trials.tune, "report", reported.append)
    ray_trials.report(records[0])
    assert reported[0]["validation_nmae"] == math.inf


@pytest.mark.parametrize("rank", [0, 1])
def test_the_first_worker_alone_looks_for_one_that_was_left(
    rank: int, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heartbeat of the first one would be another process's to the second."""
    context = SimpleNamespace(get_local_world_size=lambda: 2, get_world_rank=lambda: rank)
    asked, fitted = list[object](), list[bool]()
    monkeypatch.setattr(ray.train, "get_context", lambda: context)
    monkeypatch.setattr(ray.train.torch, "get_device", lambda: "cpu")
    monkeypatch.setattr(ray_train, "check_unused", lambda *given: asked.append(given))
    monkeypatch.setattr(workers, "use_threads", lambda _: None)
    monkeypatch.setattr(workers, "fit_on_record", lambda *_, is_first: fitted.append(is_first))
    place, logs = (dataset.url, dataset.version), SimpleNamespace(apply_in_training=lambda: None)
    experiment = tiny_experiment().model_dump_json()
    ray_train._work({"experiment": experiment, "dataset": place, "run": "run", "logs": logs})
    assert fitted == [rank == 0] and len(asked) == (rank == 0)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (WorkerGroupError("errors:", {1: StoreError("RUN/epoch-3.pt is bad")}), "RUN/epoch-3.pt"),
        (RuntimeError('Traceback (most recent call last):\n  File "a"\nOSError: full'), "OSError:"),
        (ValueError("no node\nhas room"), "no node"),
    ],
)
def test_of_a_training_that_failed_on_ray_the_cause_is_reported(
    error: Exception, line: str
) -> None:
    assert ray_train._reason(error).startswith(line)


@pytest.mark.parametrize(
    ("cores", "gpus", "on_demand", "asked", "share"),
    [
        (14.0, 0.0, 2, None, Share(0.0, 1.0)),
        (14.0, 0.0, 0, None, Share(1.0, 0.0)),
        (8.0, 1.0, 2, None, Share(1.0, 1.0)),
        (14.0, 0.0, 2, 4.0, Share(4.0, 1.0)),
    ],
)
def test_gpus_that_come_on_demand_are_asked_for_while_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
    cores: float,
    gpus: float,
    on_demand: int,
    asked: float | None,
    share: Share,
) -> None:
    """Nodes that come with a GPU have no core for others: a trial would wait for ever."""
    there = {"CPU": cores, "GPU": gpus} if gpus else {"CPU": cores}
    monkeypatch.setattr(ray, "cluster_resources", lambda: there)
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": True, "Resources": there}])
    monkeypatch.setenv(GPUS_ON_DEMAND, str(on_demand))
    assert Share.of(tiny_experiment(), asked, None) == share
    most = max(int(gpus), on_demand)
    assert available_gpus() == most
    with pytest.raises(InputError, match=f"{most + 1} GPUs"):
        Share.of(tiny_experiment(), 0, most + 1)
    monkeypatch.setenv(GPUS_ON_DEMAND, "two")
    with pytest.raises(InputError, match="COURANT_GPUS_ON_DEMAND is 'two'"):
        available_gpus()


def test_processes_of_this_machine_train_on_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    training = tiny_experiment().training
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(InputError, match="asks for 1 GPUs, this machine has 0"):
        workers.device_of(training.model_copy(update={"use_gpu": True}))
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    for asked, expected in ((False, "cpu"), (True, "cuda"), ("auto", "cuda")):
        assert workers.device_of(training.model_copy(update={"use_gpu": asked})) == expected
    assert workers.device_of(training.model_copy(update={"workers": 2})) == "cpu"
