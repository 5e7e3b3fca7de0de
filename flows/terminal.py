"""Share between commands where they print, how they show progress, and how they end.

They end in one line. What is printed may come from a stranger's file: no control character of it
reaches the terminal, and no password in a URL.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator
from io import TextIOBase
from typing import IO, Any, NoReturn, cast

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.text import Text

from flows.ending import INTERRUPTED_CODE
from flows.settings import load_settings
from simgen import log_lines
from simgen.errors import SimgenError
from simgen.log_lines import without_user_info


class SafeConsole(Console):
    """A console that prints no control characters but its own, and no passwords of URLs."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(without_user_info(text), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            safe = segment.text if segment.control else printable(segment.text)
            # A terminal may know ASCII alone, and names of files any letter.
            safe = safe.encode(self.encoding, errors="replace").decode(self.encoding)
            yield Segment(safe, segment.style, segment.control)


# Without emoji: `:x:` in a path is no picture.
screen = SafeConsole(emoji=False)
errors = SafeConsole(stderr=True, emoji=False)


def start_logs() -> None:
    """Begin the logs of this process as COURANT_LOG_FORMAT says.

    As JSON, whatever a person would read on standard error becomes a line too.
    """
    if load_settings().log_format == "json" and not log_lines.is_json():
        log_lines.start("json")
        errors.file = cast(IO[str], _PrintedLines())


def log_details() -> None:
    """Log what cases and trainings do, on standard error."""
    if not log_lines.is_json():
        logging.basicConfig(format="%(asctime)s %(name)s: %(message)s")
        for name in ("simgen", "courant", "flows.case"):
            logging.getLogger(name).setLevel(logging.INFO)


class _PrintedLines(TextIOBase):
    """Turn what is printed for a person into log lines."""

    def __init__(self) -> None:
        self._begun = ""

    def isatty(self) -> bool:
        return False

    def write(self, text: str) -> int:
        *whole, self._begun = (self._begun + text).split("\n")
        for line in filter(str.strip, whole):
            level, message = log_lines.level_of(line)
            logging.getLogger("flows").log(level, message)
        return len(text)


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """End in one line on stderr and with an exit code: 1 for errors, 130 for an interruption.

    After an interruption `flows.ending` prints the line, as the last one.
    """
    try:
        with _one_line_warnings():
            yield
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED_CODE) from None
    except Exception as error:
        if isinstance(error, SimgenError):
            fail(str(error))
        if _is_parameter_error(error):
            fail(" ".join(str(error).split()))
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            place = f": {error.filename}" if error.filename else ""
            fail(f"{error.strerror or error}{place}")
        raise


@contextlib.contextmanager
def _one_line_warnings() -> Iterator[None]:
    """Show this project's warnings as lines; those of libraries stay as Python shows them."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def show_in_one_line(message: Any, category: Any, *where: Any, **details: Any) -> None:
            if category is not UserWarning:
                show(message, category, *where, **details)
                return
            errors.print(
                f"[yellow]warning:[/yellow] {escape(str(message))}", highlight=False, soft_wrap=True
            )

        warnings.showwarning = show_in_one_line
        yield


def fail(message: str) -> NoReturn:
    """Print the error and end with exit code 1."""
    errors.print(f"[bold red]error:[/bold red] {escape(message)}", highlight=False, soft_wrap=True)
    raise typer.Exit(1)


def print_markup(text: str) -> None:
    """Print a line of markup, not wrapped to the screen; what others named has to be escaped."""
    screen.print(text, highlight=False, soft_wrap=True)


def print_line(text: str) -> None:
    """Print a line as it is, not wrapped to the screen: brackets in a path are no markup."""
    screen.print(text, markup=False, highlight=False, soft_wrap=True)


def printable(text: str) -> str:
    """Replace terminal control characters in text that may come from a foreign file."""
    return "".join(
        letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in text
    )


def counted(number: int, thing: str) -> str:
    """Return `1 case`, `2 cases`."""
    return f"{number} {thing}{'s' * (number != 1)}"


def _is_parameter_error(error: Exception) -> bool:
    """Recognise Prefect's rejection of a flow's parameters by its name.

    Importing its class would cost a second.
    """
    return type(error).__name__ in ("ParameterTypeError", "ParameterBindError")


@contextlib.contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar with an ETA on a terminal, removed when done.

    Yields a function that takes the numbers done and in total.
    """
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
