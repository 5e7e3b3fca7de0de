"""Training on Ray: the same weights as the plain loop, whoever dies on the way."""

import contextlib
import os
import signal
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import ray

from courant.ray_embedded import start_embedded_ray
from courant.runs.directory import RunDirectory
from courant.runs.record import EpochRecord, read_records
from courant.training.loop import TrainingError, fit
from courant.training.ray_train import train
from simgen.errors import InputError
from simgen.store.access.reader import Dataset
from tests.end_to_end.processes import command_line, parent, tree
from tests.training.waves import tiny_experiment

pytestmark = pytest.mark.end_to_end


@pytest.fixture(scope="module", autouse=True)
def ray_on_two_cores() -> object:
    start_embedded_ray(num_cpus=2, log_to_driver=False)
    yield
    ray.shutdown()


def test_one_worker_trains_to_the_weights_of_the_plain_loop_and_a_finished_run_returns_at_once(
    dataset: Dataset, tmp_path: Path
) -> None:
    experiment, seen = tiny_experiment(), []
    processes: defaultdict[int, list[str]] = defaultdict(list)
    parents: dict[int, int] = {}
    over = threading.Event()

    def watch() -> None:
        # A Ray process has the name of the call that it is in, another one when it waits, and none
        # once it has ended: ask which processes there were, by all names that they had. A fork has
        # its parent's until it becomes another program or ends: it is told by its parent.
        while not over.wait(0.1):
            for process in tree(os.getpid()):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    parents.setdefault(process, parent(process))
                    if name := command_line(process):
                        processes[process].append(name)

    with ThreadPoolExecutor(1) as watcher:
        watching = watcher.submit(watch)
        try:
            url = train(experiment, dataset.url, None, str(tmp_path / "runs"), on_epoch=seen.append)
        finally:
            over.set()
        watching.result()
    run, plain = RunDirectory(url), RunDirectory(tmp_path / "plain")
    fit(experiment, dataset, plain)
    assert [record.epoch for record in seen] == [1, 2, 3, 4]
    assert seen == read_records(run)
    # Each process more takes seconds of a core to start.
    for needful in ("fit_alone", "raylet/raylet"):
        doing = {
            process
            for process, names in processes.items()
            if any(needful in name.split()[0] for name in names)
            and (needful in names[-1] or names[-1] == "ray::IDLE")
        }
        assert len([one for one in doing if parents[one] not in doing]) == 1, needful
    names = [name for each in processes.values() for name in each]
    clusters = (
        "TrainController",
        "DatasetManager",
        "Cleaner",
        "PreemptionWatcher",
        "Autoscaling",
        "monitor.py",
    )
    for needless in (*clusters, "dashboard.py"):
        assert not [name for name in names if needless in name]
    for ours, theirs in zip(read_records(run), read_records(plain), strict=True):
        assert ours.train_loss == pytest.approx(theirs.train_loss, rel=1e-4)
    assert run.read_json("dataset.json")["version"] == dataset.version
    before = run.read_json("status.json"), read_records(run)
    assert train(experiment, dataset.url, None, str(tmp_path / "runs")) == url
    assert (run.read_json("status.json"), read_records(run)) == before


@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_worker_comes_back_and_any_number_follows_the_curve_of_the_plain_loop(
    workers: int, dataset: Dataset, tmp_path: Path
) -> None:
    experiment = tiny_experiment(workers=workers, epochs=30, checkpoint_every=5)
    runs = tmp_path / "runs"
    run = RunDirectory(runs) / experiment.run_id(dataset.snapshot_id)
    killed: list[int] = []

    def kill_once(record: EpochRecord) -> None:
        if not killed and record.epoch >= 6:
            killed.append(run.read_json("environment.json")["process"])
            os.kill(killed[0], signal.SIGKILL)

    assert train(experiment, dataset.url, None, str(runs), on_epoch=kill_once) == run.url
    assert killed
    assert run.read_json("environment.json")["process"] != killed[0], "another process went on"
    records = read_records(run)
    assert [record.epoch for record in records] == list(range(1, 31))
    plain = RunDirectory(tmp_path / "plain")
    fit(experiment, dataset, plain)
    for ours, theirs in zip(records, read_records(plain), strict=True):
        assert ours.train_loss == pytest.approx(theirs.train_loss, abs=1e-3)


def test_a_diverged_run_is_not_tried_again(dataset: Dataset, tmp_path: Path) -> None:
    experiment = tiny_experiment(learning_rate=1e30, epochs=20)
    with pytest.raises(TrainingError, match="training diverged") as caught:
        train(experiment, dataset.url, None, str(tmp_path))
    assert "\n" not in str(caught.value)


def test_bad_requests_are_refused_before_any_worker_starts(
    dataset: Dataset, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="has no version v7"):
        train(tiny_experiment(), dataset.url, "v7", str(tmp_path))
    with pytest.raises(InputError, match=r"model\.num_outputs = 5, expected 2"):
        train(tiny_experiment().derive(model={"num_outputs": 5}), dataset.url, None, str(tmp_path))
    with pytest.raises(InputError, match="asks for 1 GPUs, Ray has 0"):
        train(tiny_experiment(use_gpu=True), dataset.url, None, str(tmp_path))
