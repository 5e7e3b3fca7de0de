"""Tasks are submitted as others end: every one, and never more at a time than asked for."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from prefect_ray.context import remote_options

from flows.cluster import ray_many_tasks
from flows.cluster.submitting import as_they_end, longest_first_at_the_end


class Machines:
    """Room for so many tasks, one of which ends whenever they are full."""

    def __init__(self, room: int, takes: int) -> None:
        self.room, self.takes = room, takes
        self.running: list[Task] = []
        self.most = 0

    def submit(self, item: int) -> "Task":
        return Task(item, self)

    def end_one(self) -> None:
        task = self.running.pop(self.takes if len(self.running) > 1 else 0)
        task.tell(task)


class Task:
    """A future that runs from when somebody waits for it."""

    def __init__(self, item: int, machines: Machines) -> None:
        self.item, self.machines = item, machines
        self.tell: Callable[[Any], Any] = lambda future: None

    def add_done_callback(self, fn: Callable[[Any], Any]) -> None:
        self.tell = fn
        self.machines.running.append(self)
        self.machines.most = max(self.machines.most, len(self.machines.running))
        if len(self.machines.running) == self.machines.room:
            self.machines.end_one()


@pytest.mark.parametrize("takes", [0, -1, 1], ids=["oldest", "newest", "second"])
def test_ten_thousand_tasks_are_submitted_a_bounded_number_at_a_time(takes: int) -> None:
    machines = Machines(66, takes)
    ended = []
    for task in as_they_end(range(10_000), machines.submit, lambda: 66):
        ended.append(task.item)
        if len(ended) > 10_000 - 66 and machines.running:
            machines.end_one()
    assert sorted(ended) == list(range(10_000))
    assert machines.most <= 66


def test_the_last_tasks_begin_with_the_longest_and_the_others_stay_in_order() -> None:
    efforts = [3.0, 1.0, 2.0, 5.0, 4.0, 6.0]
    assert longest_first_at_the_end(efforts, float, 4) == [3.0, 1.0, 6.0, 5.0, 4.0, 2.0]
    assert longest_first_at_the_end(efforts, float, 99) == sorted(efforts, reverse=True)
    assert longest_first_at_the_end(efforts, lambda _: 1.0, 4) == efforts


def test_who_waits_is_called_again_when_it_asked_to_be() -> None:
    machines = Machines(2, 0)
    waits: list[int] = []

    def wait() -> float | None:
        waits.append(len(waits))
        if len(waits) < 3:
            return 0.01
        machines.end_one()
        return None

    assert [task.item for task in as_they_end([7], machines.submit, lambda: 2, wait)] == [7]
    assert len(waits) == 3


def test_nothing_to_do_ends_at_once() -> None:
    assert list(as_they_end([], Machines(1, 0).submit, lambda: 4)) == []


def test_tasks_of_a_flow_run_share_functions_and_one_context(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exported: list[dict[str, Any]] = []
    sent: list[dict[str, Any]] = []

    class Exported:
        def options(self, name: str) -> "Exported":
            return self

        def remote(self, **parameters: Any) -> str:
            sent.append(parameters)
            return "reference"

    def remote(**options: Any) -> Callable[[Any], Exported]:
        exported.append(options)
        return lambda _: Exported()

    contexts: list[object] = []
    monkeypatch.setattr(ray_many_tasks, "ray", SimpleNamespace(remote=remote, put=lambda of: of))
    monkeypatch.setattr(ray_many_tasks, "serialize_context", lambda: contexts.append(1) or "all")
    runner = ray_many_tasks.ManyTasksRunner()
    task = SimpleNamespace(name="solve")
    for number in range(5):
        with remote_options(num_cpus=1 + number // 3):
            future = runner.submit(task, {"number": number})
        assert future.task_run_id == sent[-1]["task_run_id"]
    assert exported == [{"num_cpus": 1}, {"num_cpus": 2}]
    assert len(contexts) == 1
    assert [each["context"] for each in sent] == ["all"] * 5
    assert [each["parameters"]["number"] for each in sent] == [0, 1, 2, 3, 4]
    assert len({each["task_run_id"] for each in sent}) == 5
    with pytest.raises(RuntimeError, match="wait for no others"):
        runner.submit(task, {}, wait_for=[future])
