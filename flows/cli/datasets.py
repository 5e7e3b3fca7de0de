"""Define `courant dataset`: list, compare, check, export, describe and clean datasets.

Heavy imports are inside the commands, so that `courant --help` answers at once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Column, Table

import simgen
from flows.cli.importing import benchmark_app, import_app
from flows.cli.options import DatasetUrl, Store, Version
from flows.settings import absolute, load_settings
from flows.terminal import (
    add_row,
    counted,
    errors,
    fail,
    plain_table,
    print_line,
    print_markup,
    progress_bar,
    screen,
)
from simgen.cases import FAMILIES
from simgen.errors import InputError, StoreError
from simgen.store.split import SPLITS

if TYPE_CHECKING:
    from simgen.store.read import Dataset, StoredCase

GIVEN = " (given)"
#: Least widths of columns: an id, `calibration`, and cells or seconds.
CASE_WIDTH, SPLIT_WIDTH, NUMBER_WIDTH = 12, 11, 5
#: Cases that a difference names before it only counts.
MAX_NAMED = 8

dataset_app = typer.Typer(
    help="Datasets: list, compare, check, export, describe and clean them.", no_args_is_help=True
)


@dataset_app.command("ls", epilog="Example: courant dataset ls --store demo-run/store")
def dataset_ls(store: Store = None) -> None:
    """List the datasets of a store, with their newest versions."""
    from simgen.store.versions import folders_in

    base = absolute(store or load_settings().store).rstrip("/")
    columns = ("version", "cases", "train/validation/test", "published")
    table = plain_table(Column("dataset", overflow="fold"), *columns)
    problems = []
    # Families first: a store that cannot be read is an error for each.
    for family in dict.fromkeys([*FAMILIES, *folders_in(base)]):
        url = f"{base}/{family}"
        try:
            dataset = simgen.open_dataset(url)
        except InputError:
            continue  # no dataset, or none that is published
        except StoreError as error:
            add_row(table, url, "cannot be read", "", "", "")
            problems.append(str(error))
            continue
        *drawn, calibration = [len(dataset.cases(split)) for split in SPLITS]
        splits = "/".join(map(str, drawn))
        splits += f" + {calibration} calibration" if calibration else ""
        published = f"{dataset.info.time:%Y-%m-%d %H:%M}"
        add_row(table, dataset.url, dataset.version, str(len(dataset)), splits, published)
        problems += dataset.problems()
    if not table.row_count:
        raise InputError(
            f"no dataset in {base}; generate one with:"
            f" courant generate cylinder-flow --store {base}"
        )
    screen.print(table)
    if problems:
        fail("\n".join(problems))


@dataset_app.command("show", epilog="Example: courant dataset show DATASET --case b0159c13a91f")
def dataset_show(
    dataset: DatasetUrl,
    version: Version = None,
    case: Annotated[str | None, typer.Option(help="Show one case's provenance and gates.")] = None,
) -> None:
    """Show a version's cases, fields, splits and statistics, or one case in full.

    Also shows the command that makes the version again.
    """
    from simgen.publish.card import how_to_make, left_out

    opened = simgen.open_dataset(dataset, version)
    if case:
        _print_case(opened[case])
        return
    schema = opened.schema
    print_markup(
        f"[bold]{escape(f'{schema.family} {opened.version}')}[/bold]"
        f"  {escape(opened.url)}  snapshot {opened.snapshot_id}"
    )
    print_line(f"{counted(len(opened), 'accepted case')}: {opened.splits}")
    names = [f"{each.name}{GIVEN if each.role == 'given' else ''}" for each in schema.fields]
    figures = ("mean", "std", "min", "max")
    fields = plain_table(Column("field", min_width=max(map(len, names))), "unit", "", *figures)
    for field, name in zip(schema.fields, names, strict=True):
        measured = opened.statistics[field.name]
        for number, component in enumerate(field.components):
            first = ("", "") if number else (name, field.unit)
            values = [f"{measured[each][number]:.3g}" for each in figures]
            add_row(fields, *first, component, *values)
    screen.print(fields, "")
    for each in left_out(opened):
        print_line(f"left out of these statistics, with nearly all of the variance: {each}")
    if schema.quantities:
        table = plain_table("quantity", "unit", *figures, "")
        for quantity in schema.quantities:
            found = opened.quantity_statistics[quantity.name]
            values = [f"{found[name]:.3g}" for name in figures]
            add_row(table, quantity.name, quantity.unit, *values, quantity.meaning)
        screen.print(table, "")
    screen.print(_table_of_cases(opened), "")
    if (source := schema.source) is not None:
        print_markup(f"imported from {escape(f'{source.name}, {source.url}, {source.licence}')}")
    elif commands := how_to_make(opened):
        print_markup(f"make it again:\n  {escape(' && '.join(commands))}")


def _print_case(case: StoredCase) -> None:
    print_markup(f"[bold]{escape(case.id)}[/bold]  {escape(f'{case.status}  {case.reason}')}")
    for name, value in {**case.parameters, **case.settings}.items():
        print_line(f"  {name} = {value:g}")
    gates = plain_table("gate", "value", "limit", "passed")
    for gate in case.gates:
        figure = f"{gate['value']} {gate['unit']}".strip()
        add_row(gates, gate["name"], figure, gate["limit"], "yes" if gate["passed"] else "NO")
    screen.print(gates)
    provenance = {name: value for name, value in case.provenance.items() if name != "residuals"}
    screen.print_json(json.dumps(provenance))
    if case.log_tail:
        screen.print(case.log_tail, markup=False, highlight=False)


def _table_of_cases(dataset: Dataset) -> Table:
    """Return one line for each design, with as many parameters as the screen has room for."""
    parameters = dataset.schema.parameters
    # Long names take several lines.
    titles = [each.name.replace("_", "_\n") for each in parameters]
    widths = [max(map(len, title.splitlines())) for title in titles]
    room = screen.width - CASE_WIDTH - SPLIT_WIDTH - 2 * NUMBER_WIDTH - 3
    shown = sum(sum(widths[: number + 1]) + number < room for number in range(len(widths)))
    columns = [
        Column(escape(f"{title}\n({each.unit})" if each.unit else title), min_width=width)
        for title, width, each in zip(titles, widths, parameters, strict=True)
    ]
    table = plain_table(
        Column("case", min_width=CASE_WIDTH),
        *columns[:shown],
        Column("split", min_width=SPLIT_WIDTH),
        Column("cells", min_width=NUMBER_WIDTH),
        Column("solve\n(s)", min_width=NUMBER_WIDTH),
    )
    table.pad_edge, table.collapse_padding = False, True
    if hidden := len(titles) - shown:
        table.caption = f"{counted(hidden, 'parameter')} more on a wider screen"
    for name, row in dataset.design.iterrows():
        accepted = row["status"] == "accepted"
        ended = f"{row['status']}: {row['reason']}" if row["reason"] else row["status"]
        split = row["split"] if isinstance(row["split"], str) else "not published"
        add_row(
            table,
            str(name),
            *(f"{row[parameter.name]:.3g}" for parameter in parameters[:shown]),
            split if accepted else ended,
            f"{row['num_points']:.0f}" if accepted else "",
            f"{row['wall_time_s']:.1f}",
        )
    return table


@dataset_app.command("versions", epilog="Example: courant dataset versions DATASET")
def dataset_versions(dataset: DatasetUrl) -> None:
    """List every version: when, by whom, what it added, its sizes, and the run that made it."""
    from simgen.publish.card import run_command, size_text
    from simgen.store.verify import history

    with errors.status("reading versions"):
        lines = history(simgen.open_dataset(dataset))
    columns = ("version", "published", "author", "cases", "new", "fields", "new on disk")
    table = plain_table(*columns, Column("message", overflow="fold"))
    for line in lines:
        add_row(
            table,
            line.info.name,
            f"{line.info.time:%Y-%m-%d %H:%M}",
            line.info.author,
            str(line.num_cases),
            str(line.num_new),
            size_text(line.num_bytes),
            size_text(line.num_bytes_new),
            line.info.message,
        )
    screen.print(table)
    for line in lines:
        if command := run_command(line.info):
            print_markup(f"{line.info.name}  {escape(command)}")


@dataset_app.command("diff", epilog="Example: courant dataset diff DATASET v1 v2")
def dataset_diff(
    dataset: DatasetUrl,
    before: Annotated[str, typer.Argument(help="Version to start from, such as v1.")],
    after: Annotated[str, typer.Argument(help="Version to compare it with, such as v2.")],
) -> None:
    """Show what changed between two versions: cases, splits, schema, statistics, bytes."""
    from simgen.publish.card import size_text
    from simgen.store.verify import compare

    with errors.status("comparing"):
        old, new = simgen.open_dataset(dataset, before), simgen.open_dataset(dataset, after)
        found = compare(old, new)
    if found.is_empty:
        print_line(f"{found.before} and {found.after} hold the same cases")
        return
    accepted = (f"{count} {split}" for split, count in found.new_splits.items() if count)
    rows = {
        "cases added": _named(found.added),
        "cases removed": _named(found.removed),
        "status changed": _named([_moved(*each) for each in found.changed_status.items()]),
        "content changed": _named(found.changed_content),
        "moved between splits": _named([_moved(*each) for each in found.moved_splits.items()]),
        "newly accepted": ", ".join(accepted),
        "added on disk": size_text(found.num_bytes_added),
    }
    table = plain_table(f"{found.before} -> {found.after}", "")
    for name, text in rows.items():
        if text:
            add_row(table, name, text)
    screen.print(table)
    if found.statistics:
        moved = plain_table("statistic", "", found.before, found.after)
        for change in found.statistics:
            values = (
                ", ".join(f"{value:.4g}" for value in each)
                for each in (change.before, change.after)
            )
            add_row(moved, change.field, change.figure, *values)
        screen.print("", moved)


def _moved(case: str, change: tuple[str, str]) -> str:
    return f"{case} {' -> '.join(change)}"


def _named(cases: Sequence[str]) -> str:
    """Format as `3: a, b, c`, and how many more."""
    more = f" and {len(cases) - MAX_NAMED} more" if len(cases) > MAX_NAMED else ""
    return f"{len(cases)}: {', '.join(cases[:MAX_NAMED])}{more}" if cases else ""


@dataset_app.command("export", epilog="Example: courant dataset export DATASET s3://bucket/plain")
def dataset_export(
    dataset: DatasetUrl,
    target: Annotated[
        str,
        typer.Argument(
            help="An empty folder or s3://bucket/prefix, or an unfinished export of it."
        ),
    ],
    version: Version = None,
) -> None:
    """Write a version as a plain Zarr store that zarr and s3fs alone can read.

    After an interruption the same command continues.
    """
    from simgen.publish.card import size_text
    from simgen.publish.export import export

    with progress_bar("exporting cases") as on_progress:
        written = export(simgen.open_dataset(dataset, version), absolute(target), on_progress)
    there = written.num_cases - written.num_copied
    print_line(
        f"{written.target}  {counted(written.num_cases, 'case')},"
        f" {size_text(written.num_bytes)} of fields"
        f"{f', {there} of them there before' if there else ''}"
    )


@dataset_app.command(
    "export-vtu", epilog="Example: courant dataset export-vtu DATASET vtu --every 10"
)
def dataset_export_vtu(
    dataset: DatasetUrl,
    folder: Annotated[Path, typer.Argument(help="Folder for the files.")],
    version: Version = None,
    case: Annotated[
        list[str] | None, typer.Option(help="Only this case; may be given several times.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Only the cases of train, validation or test.")
    ] = None,
    every: Annotated[int, typer.Option(min=1, help="Of a transient case every n-th snapshot.")] = 1,
) -> None:
    """Write cases for ParaView: .vtu files, and a .pvd with the times of each transient case."""
    from simgen.publish.export import export_vtu

    if case and split:
        raise InputError("--case and --split both choose cases; give one")
    opened = simgen.open_dataset(dataset, version)
    with progress_bar("writing cases") as on_progress:
        chosen = list(dict.fromkeys(case or ())) or (opened.cases(split) if split else None)
        written = export_vtu(opened, folder, chosen, every, on_progress)
    files = f"{len(written)} files to open in {folder}, such as {written[0]}" if written else ""
    print_line(files or "no case")


@dataset_app.command("card", epilog="Example: courant dataset card DATASET --license CC-BY-4.0")
def dataset_card(
    dataset: DatasetUrl,
    out: Annotated[
        Path, typer.Option(help="Folder for the card: README.md, pictures, cases.csv.")
    ] = Path("card"),
    version: Version = None,
    license: Annotated[
        str, typer.Option(help="Licence that the data are given under; else that of the import.")
    ] = "",
) -> None:
    """Write a dataset card: a README with pictures.

    It shows physics, design space, fields, statistics, sizes, splits, samples and provenance.
    """
    from simgen.publish.card import write_card

    with progress_bar("drawing") as on_progress:
        readme = write_card(simgen.open_dataset(dataset, version), out, license, on_progress)
    print_line(f"card  {readme}")


@dataset_app.command("verify", epilog="Example: courant dataset verify DATASET --version v2")
def dataset_verify(dataset: DatasetUrl, version: Version = None) -> None:
    """Read every chunk of a version and compare it with the record.

    Ends with exit code 1 where anything is damaged.
    """
    from simgen.store.verify import verify

    with progress_bar("verifying cases") as on_progress:
        opened = simgen.open_dataset(dataset, version)
        found = verify(opened, on_progress)
    where = f"{opened.url} {opened.version}"
    if not found.findings:
        cases = counted(found.num_cases, "case")
        print_line(f"{where}: all {found.num_chunks} chunks of {cases} are intact")
        return
    table = plain_table("case", "where", "what is wrong")
    for finding in found.findings:
        add_row(table, finding.case or "(all)", finding.place, finding.problem)
    screen.print(table)
    damaged = {finding.case for finding in found.findings if finding.case}
    print_line(
        f"{where}: {len(found.findings)} findings in {len(damaged)} of {found.num_cases} cases;"
        " restore the store from a copy"
    )
    raise typer.Exit(1)


@dataset_app.command(
    "withdraw", epilog="Example: courant dataset withdraw DATASET CASE --reason 'a wrong mesh'"
)
def dataset_withdraw(
    dataset: DatasetUrl,
    cases: Annotated[
        list[str], typer.Argument(help="Accepted cases to take back.", metavar="CASE...")
    ],
    reason: Annotated[str, typer.Option(help="Why; stays on the cases' records.")],
) -> None:
    """Publish a version without these cases.

    Older versions and the splits of all other cases stay as they are.
    """
    from simgen.store.write import DatasetWriter

    writer = DatasetWriter.open(dataset, simgen.open_dataset(dataset).schema)
    version = writer.withdraw(cases, reason)
    print_line(repr(simgen.open_dataset(dataset, version)).strip("<>"))


@dataset_app.command("gc", epilog="Example: courant dataset gc DATASET --dry-run")
def dataset_gc(
    dataset: DatasetUrl,
    older_than: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=876_000.0,
            help="Hours that an object is kept which nothing refers to; at least 8.",
        ),
    ] = 24.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Delete nothing, print how much it would be.")
    ] = False,
) -> None:
    """Delete leftovers of killed runs, and the history between versions.

    No version loses anything. Damaged references are made again first.
    """
    from simgen.publish.card import size_text
    from simgen.store.versions import collect

    with errors.status("looking for garbage"):
        found = collect(dataset, older_than=timedelta(hours=older_than), dry_run=dry_run)
    if not found.bytes_deleted and not dry_run:
        print_line("nothing to delete: all that is old enough is referred to")
        return
    done = "would delete at least" if dry_run else "deleted"
    print_line(
        f"{done} {size_text(found.bytes_deleted)}: {found.chunks_deleted} chunks,"
        f" {found.snapshots_deleted} snapshots, {found.manifests_deleted} manifests"
    )


dataset_app.add_typer(benchmark_app)
dataset_app.add_typer(import_app, name="import")
