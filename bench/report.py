"""What benchmarks and studies share: the command line that chooses them, and their records.

A record is rows of the same columns and a summary. `publish` prints both and writes them as JSON,
with the revision of the source and the class of the machine.
"""

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Chosen:
    """Names of modules without their prefix, the folder for what they write (it exists), and
    whether sizes are small.
    """

    names: list[str]
    out: Path
    short: bool


def choose_modules(folder: Path, prefix: str, out: str, description: str | None) -> Chosen:
    """Parse this process's arguments against the modules `<prefix>_<name>.py` of the folder.

    Ends the process where they are wrong.
    """
    known = sorted(path.stem.removeprefix(f"{prefix}_") for path in folder.glob(f"{prefix}_*.py"))
    program = ".".join(folder.relative_to(Path(__file__).parents[1]).parts)
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(known)}; default all")
    parser.add_argument("--out", type=Path, default=Path(out), help="folder for what is written")
    parser.add_argument("--short", action="store_true", help="small sizes")
    parser.add_argument("--cores", type=int, help="use so many of this machine's cores")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(known))
    if unknown:
        parser.error(
            f"no module {prefix}_{unknown[0]} in {folder.name}/; there are {', '.join(known)}"
        )
    usable = sorted(os.sched_getaffinity(0))
    if arguments.cores is not None:
        if not 1 <= arguments.cores <= len(usable):
            parser.error(f"--cores {arguments.cores}: this machine gives 1 to {len(usable)}")
        os.sched_setaffinity(0, usable[-arguments.cores :])
    arguments.out.mkdir(parents=True, exist_ok=True)
    return Chosen(arguments.names or known, arguments.out.absolute(), arguments.short)


def show(rows: Sequence[Row], title: str = "") -> None:
    """Print rows of the same columns as a table; it may be wider than the screen."""
    table = Table(*rows[0], title=title, box=None, header_style="bold")
    for row in rows:
        table.add_row(*map(_text, row.values()))
    Console(width=200).print(table)


def publish(out: Path, name: str, rows: Sequence[Row], title: str = "", **summary: Any) -> None:
    """Print the rows, then the summary a line each; write both to <out>/<name>.json."""
    # Not at the top: a machine with a GPU alone lacks what the store needs.
    from simgen.provenance import host_class, source_revision

    show(rows, title)
    for key, value in summary.items():
        if not isinstance(value, list | dict):
            Console(width=200).print(f"{key.replace('_', ' ')}: {_text(value)}", soft_wrap=True)
    record = {
        "name": name,
        "rows": list(rows),
        **summary,
        "revision": source_revision(),
        "host": host_class(),
    }
    (out / f"{name}.json").write_text(json.dumps(record, indent=1))


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if type(value) is int and value >= 10_000 else str(value)


def plot(path: Path, panels: Sequence[Mapping[str, Any]], columns: int) -> None:
    """Draw log-log panels, row by row: `lines` (x, y) by label, and what `Axes.set` takes."""
    from matplotlib.figure import Figure

    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.5 * columns, 3.3 * rows), layout="constrained")
    for axes, panel in zip(figure.subplots(rows, columns, squeeze=False).flat, panels, strict=True):
        for label, (x, y) in panel["lines"].items():
            axes.loglog(x, y, "o-", label=label)
        axes.set(**{name: value for name, value in panel.items() if name != "lines"})
        axes.grid(True, which="major", alpha=0.3)
        if len(panel["lines"]) > 1:
            axes.legend(fontsize="small")
    figure.savefig(path, dpi=120)
