"""Print lines, errors and progress: bars with an ETA on a terminal, one line per event elsewhere.

What is printed may come from a stranger's file: no control character of it reaches the terminal,
and no password in a URL. Cases run in other processes. Each writes a small progress file to its
scratch directory, and the bars are drawn from these files. Files on a cluster's other nodes cannot
be read here: their cases appear in the bar over all cases only.
"""

import contextlib
import json
import logging
import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NoReturn

import rich.progress
import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from courant.sweeps.search_space import label, show
from courant.sweeps.sweep import ENDED, Trial, TrialResult
from flows.ending import INTERRUPTED_CODE
from flows.settings import load_settings
from simgen import log_lines
from simgen.case import Progress, Status
from simgen.errors import SimgenError
from simgen.log_lines import duration_text, without_user_info

logger = logging.getLogger("flows.terminal")

UsageError: Any = typer.BadParameter.__base__  # typer has no name for it
LEAST_WIDTH = 24  # Of a column that wraps
PROGRESS_FILE = "progress.json"
QUIET_S = 30.0  # Until lines of the cases that run, without a terminal; twice as long for the next
LEVELS = {"error": logging.ERROR, "warning": logging.WARNING}


class SafeConsole(Console):
    """A console that prints no control characters but its own, and no passwords of URLs."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(without_user_info(text), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            safe = segment.text if segment.control else self.safe(segment.text)
            yield Segment(safe, segment.style, segment.control)

    def safe(self, text: str) -> str:
        """Return the text without control characters, and without what the terminal cannot show."""
        safe = "".join(each if each.isprintable() or each == "\n" else "\ufffd" for each in text)
        # A terminal may know ASCII alone, and names of files any letter.
        return safe.encode(self.encoding, errors="replace").decode(self.encoding)


# Without emoji: `:x:` in a path is no picture.
screen = SafeConsole(emoji=False)
errors = SafeConsole(stderr=True, emoji=False)


def print_line(text: str) -> None:
    """Print a line as it is, not wrapped to the screen: brackets in a path are no markup."""
    screen.print(text, markup=False, highlight=False, soft_wrap=True)


def announce(text: str) -> None:
    """Write one lasting line to standard error, and to the log, which Prefect shows too."""
    logger.info(text)
    errors.print(text, markup=False, highlight=False, soft_wrap=True)


def print_error(text: str, title: str = "error", style: str = "bold red") -> None:
    """Print one line with a coloured title on standard error, or log it where that is JSON."""
    if log_lines.is_json():
        logger.log(LEVELS.get(title, logging.INFO), text)
    line = f"[{style}]{title}:[/{style}] {escape(text)}"
    errors.print(line, highlight=False, soft_wrap=True)


def fail(message: str) -> NoReturn:
    """Print the error and end with exit code 1."""
    print_error(message)
    raise typer.Exit(1)


def print_table(columns: Iterable[str | Column], rows: Iterable[Iterable[object]]) -> None:
    """Print a table if it has a row: a line for each, with tabs where this is no terminal.

    Only columns that are given as `Column` wrap. A row that is wider than the terminal goes on in
    its next line, so that no name is cut or broken.
    """
    named = [
        Column(each, no_wrap=True) if isinstance(each, str) else replace(each, overflow="fold")
        for each in columns
    ]
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    if not cells:
        return
    if not screen.is_terminal:
        for row in ([str(each.header) for each in named], *cells):
            safe = (screen.safe(without_user_info(" ".join(cell.split()))) for cell in row)
            typer.echo("\t".join(safe))
        return
    table = Table(*named, box=None, header_style="bold", pad_edge=False)
    for row in cells:
        table.add_row(*map(escape, row))
    needed = -2 + sum(
        2 + (min(LEAST_WIDTH, widest) if not column.no_wrap else widest)
        for column, *values in zip(named, *cells, strict=True)
        if (widest := max(map(len, [str(column.header), *values])))
    )
    table.width = needed if needed > screen.width else None
    screen.print(table, crop=False)


def counted(number: int, thing: str) -> str:
    """Return `1 case`, `2 cases`."""
    return f"{number} {thing}{'s' * (number != 1)}"


def start_logs() -> None:
    """Begin the logs of this process as COURANT_LOG_FORMAT says, with nothing else beside JSON."""
    if load_settings().log_format == "json" and not log_lines.is_json():
        log_lines.start("json")
        errors.quiet = True


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """End in one line on stderr and with an exit code: 1 for errors, 130 for an interruption.

    After an interruption `flows.ending` prints the line, as the last one. Warnings of this project
    are lines too; those of libraries stay as Python shows them.
    """
    show = warnings.showwarning

    def show_in_one_line(message: Any, category: Any, *where: Any, **details: Any) -> None:
        if category is UserWarning:
            print_error(str(message), "warning", "yellow")
        else:
            show(message, category, *where, **details)

    try:
        with warnings.catch_warnings():
            warnings.showwarning = show_in_one_line
            yield
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED_CODE) from None
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            raise
        see = f" ({error.ctx.command_path} --help)" if error.ctx else ""
        print_error(" ".join(error.format_message().split()) + see)
        raise typer.Exit(error.exit_code) from None
    except SimgenError as error:
        fail(str(error))
    except BrokenPipeError:
        raise
    except OSError as error:
        fail(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")


class Bars(rich.progress.Progress):
    """A live bar with lines above it; without a terminal, the lines alone."""

    def __init__(
        self, title: str, total: int | None, *columns: rich.progress.ProgressColumn
    ) -> None:
        super().__init__(
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(bar_width=30),
            rich.progress.MofNCompleteColumn(),
            rich.progress.TimeElapsedColumn(),
            *(columns or [rich.progress.TextColumn("{task.fields[note]}", style="dim")]),
            console=errors,
            disable=not errors.is_terminal,
            transient=True,
            refresh_per_second=2,  # each takes milliseconds of a core, through hours of work
        )
        self._main = self.add_task(title, total=total, note="")

    def show(self, completed: int, note: str = "", total: int | None = None) -> None:
        self.update(self._main, completed=completed, note=note, total=total)


@contextlib.contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar with an ETA; yields a function that takes the numbers done and in total."""
    with Bars(title, None, rich.progress.TimeRemainingColumn()) as bars:
        yield lambda done, total: bars.show(done, total=total)


class CaseBars(Bars):
    """Bars over running cases: one for all, and one for each case that runs on this machine."""

    def __init__(self, num_cases: int, scratch: Path) -> None:
        self._scratch, self._num_done, self._num_cases = scratch, 0, num_cases
        self._began = time.monotonic()
        self._shown, self._quiet_s = self._began, QUIET_S
        self._bars: dict[str, rich.progress.TaskID] = {}
        """Of cases that may have begun"""
        super().__init__("cases", num_cases)

    def started(self, case: str) -> None:
        """Follow a case that may begin from now on."""
        self._bars[case] = self.add_task(f"  {case}", total=100, note="", visible=False)

    def ended(self, case: str, status: Status, reason: str, seconds: float) -> None:
        """Report a case that has ended and is on record."""
        self._num_done += 1
        at_once = max(1, len(self._bars))
        if case in self._bars:
            self.remove_task(self._bars.pop(case))
        self._shown, self._quiet_s = time.monotonic(), QUIET_S
        number = f"{self._num_done:{len(str(self._num_cases))}}/{self._num_cases}"
        took = f"{duration_text(seconds)}{'  ' + reason if reason else ''}"
        announce(f"{number}  case {case}  {status}  {took}")
        if self._num_done == 1 and (num_left := self._num_cases - 1):
            left_s = (time.monotonic() - self._began) * num_left / at_once
            announce(f"about {duration_text(left_s)} for the other {counted(num_left, 'case')}")
        self.show(self._num_done)

    def show_slow(self) -> None:
        """Without a terminal write how far the cases are after QUIET_S, and ever more rarely."""
        if errors.is_terminal or time.monotonic() - self._shown < self._quiet_s:
            return
        self._shown, self._quiet_s = time.monotonic(), 2 * self._quiet_s
        for case in self._bars:
            if progress := read_progress(self._scratch / case):
                announce(f"case {case}  {progress_note(progress)}")

    def get_renderables(self) -> Iterable[RenderableType]:
        """Read how far the cases are; rich draws the bars in a thread."""
        for case, bar in tuple(self._bars.items()):
            if progress := read_progress(self._scratch / case):
                done, note = int(100 * progress.fraction), progress_note(progress)
                with contextlib.suppress(KeyError):  # it has ended meanwhile
                    self.update(bar, completed=done, note=note, visible=True)
        yield from super().get_renderables()


class TrialBars(Bars):
    """A table of trials over a bar; without a terminal, a line as each trial ends."""

    def __init__(self) -> None:
        self._results, self._epochs = dict[int, TrialResult](), dict[int, int]()
        super().__init__("trials", None)
        self.live.transient = False  # the last table stays

    def begin(self, trials: Sequence[Trial]) -> None:
        """Show the trials of a sweep, or of a benchmark's next phase, below those before."""
        if self._results:
            self.console.print(self._table())
        self._results.clear()
        self._epochs = {of.number: of.experiment.training.epochs for of in trials}
        self.reset(self._main, total=len(trials))

    def show_trial(self, result: TrialResult) -> None:
        """Show a trial that is planned, running or at its end."""
        self._results[result.number] = result
        if result.state in ENDED:
            logger.info(result.line())
            if not errors.is_terminal:
                announce(result.line())
        ended = sum(each.state in ENDED for each in self._results.values())
        self.show(ended)

    def get_renderables(self) -> Iterable[RenderableType]:
        if self._results:
            yield self._table()
        yield from super().get_renderables()

    def _table(self) -> Table:
        """Return the running trials, then the ended ones by their error, then those to come."""
        table = Table(box=None, header_style="bold", pad_edge=False)
        order = {"running": 0, **dict.fromkeys(ENDED, 1)}
        found = sorted(
            self._results.values(),
            key=lambda each: (order.get(each.state, 2), each.nmae or math.inf, each.number),
        )
        keys = [*map(label, found[0].setting)]
        for name in ("trial", *keys, "", "epochs", "NMAE", "time left"):
            table.add_column(escape(name), no_wrap=True)
        for each in found:
            is_running = each.state == "running"
            cells = [
                *(str(each.number), *map(show, each.setting.values())),
                "pruned" if each.state == "stopped" else each.state,
                f"{each.epochs}/{self._epochs[each.number]}",
                "" if each.nmae is None else f"{each.nmae:.3f}",
                duration_text(each.left_s) if is_running and each.left_s is not None else "",
            ]
            table.add_row(*map(escape, cells), style="" if is_running else "dim")
        return table


def write_progress(progress: Progress, directory: Path) -> None:
    """Write a case's progress to the file that the display reads."""
    if directory.is_dir():
        (directory / PROGRESS_FILE).write_text(json.dumps(asdict(progress)))


def read_progress(directory: Path) -> Progress | None:
    """Read the progress file of a case that is solved on this machine; None where there is none."""
    try:
        return Progress(**json.loads((directory / PROGRESS_FILE).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def progress_note(progress: Progress) -> str:
    """Describe how far a case is: `t = 3 of 12 s, ..., 20 s left`."""
    return progress.message + (f", {duration_text(progress.eta_s)} left" if progress.eta_s else "")
