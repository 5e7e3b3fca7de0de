"""`courant runs`: list trained models, show one, compare several, pack one.

Heavy imports are inside the commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column, Table

from flows.settings import RUNS, absolute, load_settings
from flows.terminal import errors, one_line_errors, print_line, screen
from simgen.errors import InputError

if TYPE_CHECKING:
    from courant.runs.summary import RunSummary

MAX_SHOWN = 500
"""Characters of one setting that are shown"""
WIDE = 110
"""Columns of a screen that has room for every figure of a run"""

runs_app = typer.Typer(help="Trained models: list, show, compare, pack.", no_args_is_help=True)

RunUrl = Annotated[str, typer.Argument(help="Run directory: a folder or s3://bucket/prefix.")]


@runs_app.command("ls", epilog="Example: courant runs ls s3://bucket/runs")
def runs_ls(
    runs: Annotated[
        str | None,
        typer.Argument(
            help=(
                "Folder or s3://bucket/prefix of runs; a sweep's are under <sweep>/trials."
                f" [env: COURANT_RUNS; default: {RUNS}]"
            )
        ),
    ] = None,
) -> None:
    """List the runs of a place.

    Columns: recipe, dataset version, size, epochs, errors, date, training time, revision.
    """
    with one_line_errors():
        from courant.runs.summary import list_runs

        where = absolute(runs or load_settings().runs)
        found, unreadable = list_runs(where)
        for damaged in unreadable:
            errors.print(
                f"[bold red]unreadable:[/bold red] {escape(damaged.reason)}",
                highlight=False,
                soft_wrap=True,
            )
        if not found:
            raise InputError(
                f"no run in {where}; train one with: courant train DATASET --runs {where}"
            )
        right: dict[str, Any] = {"justify": "right", "no_wrap": True}
        columns = (
            Column("run", overflow="fold", min_width=16),
            Column("dataset", overflow="fold", min_width=13),
            Column("parameters", **right),
            Column("epochs", overflow="fold", min_width=6),
            Column("NMAE", **right),
            Column("test", **right),
            Column("started", no_wrap=True),
            Column("trained", **right),
            Column("revision", no_wrap=True),
        )
        # `runs show` has what a narrow screen has no room for.
        left_out = ("parameters", "revision") if screen.width < WIDE else ()
        kept = [n for n, column in enumerate(columns) if column.header not in left_out]
        table = Table(*[columns[n] for n in kept], box=None, header_style="bold")
        for run in found:
            dataset = f"{_dataset_name(run)} {run.version}"
            cells = (escape(run.name), dataset, *_figures(run))
            table.add_row(*[cells[n] for n in kept])
        screen.print(table)


@runs_app.command(
    "show", epilog="Example: courant runs show demo-run/runs/cylinder-flow-demo-0123456789"
)
def runs_show(run: RunUrl) -> None:
    """Show one run in full: its experiment, dataset version, course and errors."""
    with one_line_errors():
        from courant.runs.summary import flatten, read_run

        found = read_run(absolute(run))
        table = _plain_table(Column("", style="bold"), Column("", overflow="fold"))
        for name, value in _facts(found).items():
            table.add_row(name, escape(value))
        screen.print(table, "")
        settings = _plain_table(Column("setting", style="bold"), Column("value", overflow="fold"))
        for key, setting in flatten(found.settings).items():
            settings.add_row(escape(key), escape(_text(setting)))
        screen.print(settings)


@runs_app.command("compare", epilog="Example: courant runs compare RUN OTHER-RUN")
def runs_compare(
    runs: Annotated[
        list[str],
        typer.Argument(help="Two run directories or more: folders or s3://bucket/prefix."),
    ],
) -> None:
    """Compare runs: the settings in which they differ, and their results."""
    with one_line_errors():
        from courant.runs.summary import differing_settings, read_run

        if len(runs) < 2:
            raise InputError("one run has nothing to be compared with; name two or more")
        found = [read_run(absolute(run)) for run in runs]
        table = _plain_table("", *[Column(escape(run.name), overflow="fold") for run in found])
        for key, values in differing_settings(found).items():
            table.add_row(escape(key), *[escape(_text(value)) for value in values])
        table.add_section()
        facts = [_facts(run) for run in found]
        for name in facts[0]:
            table.add_row(name, *[escape(fact[name]) for fact in facts])
        screen.print(table)


@runs_app.command(
    "export",
    epilog="Example: courant runs export demo-run/runs/cylinder-flow-demo-0123456789 --out m.zip",
)
def runs_export(
    run: RunUrl,
    out: Annotated[
        str | None,
        typer.Option(help="File or s3://bucket/key to write; default: RUN.zip in this folder."),
    ] = None,
) -> None:
    """Pack a run into one file that predicts on a machine without its dataset.

    Commands and `courant.load` take the file in place of a run directory; `unzip` makes it one.
    """
    with one_line_errors():
        from courant.runs.directory import RunDirectory
        from courant.runs.summary import pack_run

        source = RunDirectory(absolute(run))
        name = source.url.rsplit("/", 1)[-1].removesuffix(".zip")
        packed = pack_run(source, absolute(out or f"{name}.zip"))
        print_line(f"packed  {packed}")


def _facts(run: RunSummary) -> dict[str, str]:
    names = (
        "parameters",
        "epochs",
        "validation NMAE",
        "test NMAE",
        "started",
        "training time",
        "revision",
    )
    return {
        "run": run.url,
        "dataset": f"{run.dataset} {run.version}",
        "snapshot": run.snapshot_id,
        **dict(zip(names, _figures(run), strict=True)),
        "best epoch": _text(run.best_epoch),
        "samples/s": f"{run.samples / run.train_s:.0f}" if run.train_s else "",
    }


def _figures(run: RunSummary) -> tuple[str, ...]:
    """Return parameters, epochs, both errors, date, training time, revision."""
    epochs = f"{run.epoch}/{run.epochs}"
    minutes = run.train_s / 60
    return (
        f"{run.num_parameters:,}" if run.num_parameters else "",
        epochs if run.state == "finished" else f"{epochs} {run.state}",
        f"{run.validation_nmae:.3f}" if run.validation_nmae is not None else "",
        f"{run.test_nmae:.3f}" if run.test_nmae is not None else "",
        escape(run.started[:10]) if run.started else "",
        f"{minutes:.0f} min" if minutes >= 1 else f"{run.train_s:.0f} s",
        _short(run.revision),
    )


def _short(revision: str | None) -> str:
    """Shorten a revision; a star marks local changes."""
    commit, _, changed = (revision or "").partition("-")
    return escape(f"{commit[:8]}{'*' if changed else ''}")


def _dataset_name(run: RunSummary) -> str:
    return escape(run.dataset.rsplit("/", 1)[-1])


def _text(value: Any) -> str:
    text = (
        ", ".join(map(str, value))
        if isinstance(value, list)
        else ""
        if value is None
        else str(value)
    )
    return text[:MAX_SHOWN]


def _plain_table(*columns: Column | str) -> Table:
    return Table(*columns, box=None, header_style="bold")
