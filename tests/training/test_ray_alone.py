"""A lone worker is tried again as often as asked for, and no more."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from ray.exceptions import WorkerCrashedError

from courant.training.on_ray import ray_alone


class Task:
    """A task of Ray whose runs end as given, one after the other."""

    def __init__(self, *ends: BaseException | None) -> None:
        self.ends: Iterator[BaseException | None] = iter(ends)
        self.runs = 0
        self.cancelled: list[int] = []

    def remote(self, config: dict) -> int:
        self.runs += 1
        return self.runs

    def get(self, run: int) -> None:
        end = next(self.ends)
        if end is not None:
            raise end

    def cancel(self, run: int, force: bool) -> None:
        assert force
        self.cancelled.append(run)


@pytest.fixture
def with_task(monkeypatch):
    def use(task: Task) -> Task:
        monkeypatch.setattr(ray_alone, "fit_alone", task)
        monkeypatch.setattr(ray_alone, "ray", SimpleNamespace(get=task.get, cancel=task.cancel))
        return task

    return use


def test_a_worker_that_dies_is_started_again(with_task):
    task = with_task(Task(WorkerCrashedError(), WorkerCrashedError(), None))
    ray_alone.train_alone({}, use_gpu=False, num_retries=3)
    assert task.runs == 3


def test_one_that_keeps_dying_is_given_up(with_task):
    task = with_task(Task(*[WorkerCrashedError() for _ in range(9)]))
    with pytest.raises(WorkerCrashedError):
        ray_alone.train_alone({}, use_gpu=False, num_retries=3)
    assert task.runs == 4


def test_an_interrupted_command_leaves_no_worker_at_work(with_task):
    task = with_task(Task(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        ray_alone.train_alone({}, use_gpu=False, num_retries=3)
    assert (task.runs, task.cancelled) == (1, [1])
