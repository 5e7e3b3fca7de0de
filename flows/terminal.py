"""What all commands share: where they print, how they show progress, and how they end in one line."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from flows.ending import INTERRUPTED_CODE, lost
from simgen.errors import SimgenError

screen = Console()
errors = Console(stderr=True)


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """End in one line on stderr and with an exit code: 1 for errors, 130 for an interruption.

    Of an interruption, and of a server that is lost, `ending.finish` says the line, as the last.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED_CODE) from None
    except Exception as error:
        if lost():
            raise typer.Exit(1) from None
        if isinstance(error, SimgenError):
            fail(str(error))
        if _is_parameter_error(error):
            fail(" ".join(str(error).split()))
        raise


def fail(message: str) -> NoReturn:
    """Print the error and end with exit code 1."""
    errors.print(f"[bold red]error:[/bold red] {escape(printable(message))}", highlight=False, soft_wrap=True)
    raise typer.Exit(1)


def printable(text: str) -> str:
    """The text without what a terminal takes for commands: it may come from a file that somebody else wrote."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in text)


def _is_parameter_error(error: Exception) -> bool:
    """Prefect's refusal of a flow's parameters, by name: importing its class would cost a second."""
    return type(error).__name__ in ("ParameterTypeError", "ParameterBindError")


@contextlib.contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """A bar with an ETA on a terminal, gone when it is done; a function that is told how many of how many are done."""
    columns = (
        TextColumn(title),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=errors, disable=not errors.is_terminal, transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
