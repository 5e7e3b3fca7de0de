"""Steps of the rehearsal: each is told as it ends, with what was found and how long it took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Column, Table


class RehearsalError(Exception):
    """What was not as it should be, in one line."""


@dataclass
class Step:
    """A step under way; `found` is filled in by what it finds."""

    what: str
    found: str = ""
    seconds: float = 0.0


@dataclass
class Steps:
    """The steps so far."""

    screen: Console
    done: list[Step] = field(default_factory=list)

    @contextmanager
    def step(self, what: str) -> Iterator[Step]:
        """Tell the step while it lasts, and once more with its time at its end."""
        step, began = Step(what), time.monotonic()
        with self.screen.status(what):
            yield step
        step.seconds = time.monotonic() - began
        self.done.append(step)
        self.screen.print(f"{step.seconds:5.0f} s  {what}", highlight=False)

    def table(self) -> Table:
        """Return what was checked, with times."""
        right = Column("time", justify="right", no_wrap=True)
        table = Table("checked", Column("found", overflow="fold"), right, box=None)
        for step in self.done:
            table.add_row(step.what, step.found, f"{step.seconds:.0f} s")
        total = sum(step.seconds for step in self.done)
        table.add_row("together", "", f"{total / 60:.1f} min", style="bold")
        return table


def check(right: object, problem: str) -> None:
    """Raise RehearsalError where something is not as it should be."""
    if not right:
        raise RehearsalError(problem)
