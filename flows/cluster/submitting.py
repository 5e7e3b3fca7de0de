"""Submit tasks as room for them comes free: of ten thousand, a bounded number at a time."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Protocol, TypeVar

from pydantic_core import PydanticSerializationError

Item = TypeVar("Item")


class Future(Protocol):
    """Declare what is needed of a future here."""

    def add_done_callback(self, fn: Callable[[Any], Any]) -> None: ...


Waited = TypeVar("Waited", bound=Future)


def as_they_end(
    items: Iterable[Item],
    submit: Callable[[Item], Waited],
    at_once: Callable[[], int],
    on_wait: Callable[[], float | None] = lambda: None,
) -> Iterator[Waited]:
    """Yield the items' futures, each as its task ends.

    No more than `at_once` are under way, a number that may change meanwhile. `on_wait` is called
    before each wait, and again after the seconds that it returns, if any.
    """
    ended: queue.SimpleQueue[Waited] = queue.SimpleQueue()
    left = iter(items)
    under_way: dict[int, Waited] = {}  # a task whose last reference goes may be given up
    while True:
        submitted = 0
        for item in islice(left, int(len(under_way) < at_once())):
            future = submit(item)
            under_way[id(future)] = future
            future.add_done_callback(ended.put)
            submitted += 1
        if not under_way:
            return
        if not submitted or not ended.empty():
            yield under_way.pop(id(_next(ended, on_wait)))


def _next(ended: queue.SimpleQueue[Waited], on_wait: Callable[[], float | None]) -> Waited:
    while True:
        try:
            return ended.get(timeout=on_wait())
        except queue.Empty:
            continue


def longest_first_at_the_end(
    items: Sequence[Item], effort: Callable[[Item], float], num: int
) -> list[Item]:
    """Sort the last `num` items by falling effort, so that no machine is left with a long one.

    The others stay in their order: a run that is stopped early has solved the first designs.
    """
    begin = max(0, len(items) - num)
    return [*items[:begin], *sorted(items[begin:], key=effort, reverse=True)]


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt where pydantic wraps one.

    Prefect serialises its settings with each task.
    """
    try:
        yield
    except PydanticSerializationError as error:
        if KeyboardInterrupt.__name__ in str(error):
            raise KeyboardInterrupt from error
        raise
