"""`courant dataset`: list datasets and versions, compare, check, export, describe, clean and correct them.

Heavy imports wait inside the commands, so that `courant --help` answers at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table

from flows.dataset_tables import (
    print_case,
    print_dataset,
    print_difference,
    print_findings,
    print_garbage,
    print_repair,
    print_versions,
)
from flows.settings import load_settings
from flows.terminal import errors, fail, one_line_errors, progress_bar, screen
from simgen.errors import InputError, StoreError

dataset_app = typer.Typer(help="Datasets: list, compare, check, export, describe and clean them.", no_args_is_help=True)

Store = Annotated[
    str | None, typer.Option(help="Where datasets live: a folder or s3://bucket/prefix. [env: COURANT_STORE]")
]
DatasetUrl = Annotated[
    str, typer.Argument(help="Dataset: a folder or s3://bucket/prefix, such as demo-run/store/cylinder-flow.")
]
Version = Annotated[str | None, typer.Option(help="Dataset version, such as v2; default: the newest.")]


@dataset_app.command("ls", epilog="Example: courant dataset ls --store demo-run/store")
def dataset_ls(store: Store = None) -> None:
    """The datasets of a store, with their newest versions."""
    with one_line_errors():
        import simgen
        from simgen.cases import FAMILIES
        from simgen.store.split import SPLITS

        base = (store or load_settings().store).rstrip("/")
        table = Table(
            Column("dataset", overflow="fold"), "version", "cases", "train/validation/test", "published",
            box=None, header_style="bold",
        )  # fmt: skip
        problems = []
        for family in FAMILIES:
            url = f"{base}/{family}"
            try:
                dataset = simgen.open_dataset(url)
            except InputError:
                continue  # a family without a dataset in this store
            except StoreError as error:
                table.add_row(url, "cannot be read", "", "", "")
                problems.append(str(error))
                continue
            splits = "/".join(str(len(dataset.cases(split))) for split in SPLITS)
            table.add_row(
                dataset.url, dataset.version, str(len(dataset)), splits, f"{dataset.info.time:%Y-%m-%d %H:%M}"
            )
            problems += dataset.problems()
        if not table.row_count:
            raise InputError(f"no dataset in {base}; generate one with: courant generate cylinder-flow --store {base}")
        screen.print(table)
        if problems:
            fail("\n".join(problems))


@dataset_app.command(
    "show", epilog="Example: courant dataset show demo-run/store/cylinder-flow --version v1 --case 00fcb869be4c"
)
def dataset_show(
    dataset: DatasetUrl,
    version: Version = None,
    case: Annotated[str | None, typer.Option(help="Show one case's provenance and gates.")] = None,
) -> None:
    """A version's cases, fields, splits, statistics and how to make it again; or one case in full."""
    with one_line_errors():
        import simgen

        opened = simgen.open_dataset(dataset, version)
        if case:
            print_case(opened[case])
        else:
            print_dataset(opened)


@dataset_app.command("versions", epilog="Example: courant dataset versions demo-run/store/cylinder-flow")
def dataset_versions(dataset: DatasetUrl) -> None:
    """Every version: when, by whom, what it brought, its sizes, and the run that made it."""
    with one_line_errors():
        import simgen
        from simgen.store.compare import history

        with errors.status("reading versions"):
            lines = history(simgen.open_dataset(dataset))
        print_versions(lines)


@dataset_app.command("diff", epilog="Example: courant dataset diff demo-run/store/cylinder-flow v1 v2")
def dataset_diff(
    dataset: DatasetUrl,
    before: Annotated[str, typer.Argument(help="Version to start from, such as v1.")],
    after: Annotated[str, typer.Argument(help="Version to compare it with, such as v2.")],
) -> None:
    """What changed between two versions: cases, statuses, splits, schema, statistics, bytes."""
    with one_line_errors():
        import simgen
        from simgen.store.compare import compare

        with errors.status("comparing"):
            found = compare(simgen.open_dataset(dataset, before), simgen.open_dataset(dataset, after))
        print_difference(found)


@dataset_app.command("verify", epilog="Example: courant dataset verify s3://bucket/store/cylinder-flow --version v2")
def dataset_verify(dataset: DatasetUrl, version: Version = None) -> None:
    """Read every chunk of a version and hold it against what was recorded; exit code 1 where anything is damaged."""
    with one_line_errors():
        from simgen.store.reader import open_unchecked
        from simgen.store.verify import verify

        with progress_bar("verifying cases") as on_progress:
            opened = open_unchecked(dataset, version)
            found = verify(opened, on_progress)
        print_findings(opened, found)
    if found.findings:
        raise typer.Exit(1)


@dataset_app.command(
    "export", epilog="Example: courant dataset export demo-run/store/cylinder-flow s3://bucket/plain --version v2"
)
def dataset_export(
    dataset: DatasetUrl,
    target: Annotated[
        str, typer.Argument(help="An empty folder or s3://bucket/prefix, or an unfinished export of it.")
    ],
    version: Version = None,
) -> None:
    """Write a version as a plain Zarr store that zarr and s3fs alone can read; cut off, the same command goes on."""
    with one_line_errors():
        import simgen
        from simgen.store.card_text import size_text
        from simgen.store.export import export

        with progress_bar("exporting cases") as on_progress:
            written = export(simgen.open_dataset(dataset, version), target, on_progress)
        there = written.num_cases - written.num_copied
        screen.print(
            f"{written.target}  {written.num_cases} cases, {size_text(written.num_bytes)} of fields"
            f"{f', {there} of them there before' if there else ''}",
            highlight=False,
            soft_wrap=True,
        )


@dataset_app.command(
    "export-vtu", epilog="Example: courant dataset export-vtu demo-run/store/cylinder-flow vtu --split test --every 10"
)
def dataset_export_vtu(
    dataset: DatasetUrl,
    folder: Annotated[Path, typer.Argument(help="Folder for the files.")],
    version: Version = None,
    case: Annotated[list[str] | None, typer.Option(help="Only this case; may be given several times.")] = None,
    split: Annotated[str | None, typer.Option(help="Only the cases of train, validation or test.")] = None,
    every: Annotated[int, typer.Option(min=1, help="Of a transient case every n-th snapshot.")] = 1,
) -> None:
    """Write cases for ParaView: .vtu files, and a .pvd for each transient case that knows their times."""
    with one_line_errors():
        import simgen
        from simgen.store.export_vtu import export_vtu

        opened = simgen.open_dataset(dataset, version)
        with progress_bar("writing cases") as on_progress:
            chosen = case or (opened.cases(split) if split else None)
            written = export_vtu(opened, folder, chosen, every, on_progress)
        screen.print(
            f"{len(written)} files to open in {folder}, such as {written[0]}" if written else "no case", soft_wrap=True
        )


@dataset_app.command(
    "card", epilog="Example: courant dataset card demo-run/store/cylinder-flow --out card --license CC-BY-4.0"
)
def dataset_card(
    dataset: DatasetUrl,
    out: Annotated[Path, typer.Option(help="Folder for the card: README.md, pictures, cases.csv.")] = Path("card"),
    version: Version = None,
    license: Annotated[str, typer.Option(help="Licence that the data are given under.")] = "not stated",
) -> None:
    """Write a dataset card: physics, design space, fields, statistics, sizes, splits, samples, provenance."""
    with one_line_errors():
        import simgen
        from simgen.store.card import write_card

        with progress_bar("drawing") as on_progress:
            readme = write_card(simgen.open_dataset(dataset, version), out, license, on_progress)
        screen.print(f"card  {readme}", highlight=False, soft_wrap=True)


@dataset_app.command(
    "withdraw",
    epilog='Example: courant dataset withdraw demo-run/store/cylinder-flow 00fcb869be4c --reason "half of its snapshots"',
)
def dataset_withdraw(
    dataset: DatasetUrl,
    cases: Annotated[list[str], typer.Argument(help="Accepted cases to take back.", metavar="CASE...")],
    reason: Annotated[str, typer.Option(help="Why; stays on the cases' records.")],
) -> None:
    """Publish a version without these cases; older versions and the splits of all others stay as they are."""
    with one_line_errors():
        import simgen
        from simgen.store.writer import DatasetWriter

        version = DatasetWriter.open(dataset, simgen.open_dataset(dataset).schema).withdraw(cases, reason)
        screen.print(repr(simgen.open_dataset(dataset, version)).strip("<>"), highlight=False, soft_wrap=True)


@dataset_app.command("gc", epilog="Example: courant dataset gc s3://bucket/store/cylinder-flow --dry-run")
def dataset_gc(
    dataset: DatasetUrl,
    older_than: Annotated[
        float,
        typer.Option(help="Hours that an object is kept which nothing refers to; at least 8."),
    ] = 24.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Delete nothing, say how much it would be.")] = False,
) -> None:
    """Delete what killed runs have left, and the history between versions; no version loses anything."""
    with one_line_errors():
        from datetime import timedelta

        from simgen.store.collect import collect

        with errors.status("looking for garbage"):
            found = collect(dataset, older_than=timedelta(hours=older_than), dry_run=dry_run)
        print_garbage(found, dry_run=dry_run)


@dataset_app.command("repair", epilog="Example: courant dataset repair demo-run/store/cylinder-flow")
def dataset_repair(dataset: DatasetUrl) -> None:
    """Make damaged or lost references to versions again; exit code 1 where something has to come from a copy."""
    with one_line_errors():
        from simgen.store.repair import repair

        with errors.status("reading commits"):
            found = repair(dataset)
        print_repair(dataset, found)
    if found.left:
        raise typer.Exit(1)
