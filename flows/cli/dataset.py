"""`courant dataset`: list datasets and versions, compare, export and describe them.

Heavy imports are inside the commands, so that `courant --help` answers at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Column, Table

from flows.cli.dataset_tables import print_case, print_dataset, print_difference, print_versions
from flows.cli.dataset_upkeep import upkeep_app
from flows.cli.importing import benchmark_app, import_app
from flows.cli.options import DatasetUrl, Store, Version
from flows.settings import absolute, load_settings
from flows.terminal import counted, errors, fail, one_line_errors, print_line, progress_bar, screen
from simgen.errors import InputError, StoreError

dataset_app = typer.Typer(
    help="Datasets: list, compare, check, export, describe and clean them.", no_args_is_help=True
)
dataset_app.add_typer(upkeep_app)
dataset_app.add_typer(benchmark_app)
dataset_app.add_typer(import_app, name="import")


@dataset_app.command("ls", epilog="Example: courant dataset ls --store demo-run/store")
def dataset_ls(store: Store = None) -> None:
    """List the datasets of a store, with their newest versions."""
    with one_line_errors():
        import simgen
        from simgen.cases import FAMILIES
        from simgen.store.repository import folders_in
        from simgen.store.split import SPLITS

        base = absolute(store or load_settings().store).rstrip("/")
        table = Table(
            Column("dataset", overflow="fold"),
            "version",
            "cases",
            "train/validation/test",
            "published",
            box=None,
            header_style="bold",
        )
        problems = []
        # Families first: what a store that cannot be read would hold is said of each.
        for family in dict.fromkeys([*FAMILIES, *folders_in(base)]):
            url = f"{base}/{family}"
            try:
                dataset = simgen.open_dataset(url)
            except InputError:
                continue  # no dataset, or none that is published
            except StoreError as error:
                table.add_row(escape(url), "cannot be read", "", "", "")
                problems.append(str(error))
                continue
            *drawn, calibration = [len(dataset.cases(split)) for split in SPLITS]
            splits = "/".join(map(str, drawn))
            table.add_row(
                escape(dataset.url),
                dataset.version,
                str(len(dataset)),
                f"{splits} + {calibration} calibration" if calibration else splits,
                f"{dataset.info.time:%Y-%m-%d %H:%M}",
            )
            problems += dataset.problems()
        if not table.row_count:
            raise InputError(
                f"no dataset in {base}; generate one with:"
                f" courant generate cylinder-flow --store {base}"
            )
        screen.print(table)
        if problems:
            fail("\n".join(problems))


@dataset_app.command(
    "show",
    epilog=(
        "Example: courant dataset show demo-run/store/cylinder-flow --version v1"
        " --case b0159c13a91f"
    ),
)
def dataset_show(
    dataset: DatasetUrl,
    version: Version = None,
    case: Annotated[str | None, typer.Option(help="Show one case's provenance and gates.")] = None,
) -> None:
    """Show a version's cases, fields, splits and statistics, or one case in full.

    Also shows the command that makes the version again.
    """
    with one_line_errors():
        import simgen

        opened = simgen.open_dataset(dataset, version)
        if case:
            print_case(opened[case])
        else:
            print_dataset(opened)


@dataset_app.command(
    "versions", epilog="Example: courant dataset versions demo-run/store/cylinder-flow"
)
def dataset_versions(dataset: DatasetUrl) -> None:
    """List every version: when, by whom, what it added, its sizes, and the run that made it."""
    with one_line_errors():
        import simgen
        from simgen.store.verify import history

        with errors.status("reading versions"):
            lines = history(simgen.open_dataset(dataset))
        print_versions(lines)


@dataset_app.command(
    "diff", epilog="Example: courant dataset diff demo-run/store/cylinder-flow v1 v2"
)
def dataset_diff(
    dataset: DatasetUrl,
    before: Annotated[str, typer.Argument(help="Version to start from, such as v1.")],
    after: Annotated[str, typer.Argument(help="Version to compare it with, such as v2.")],
) -> None:
    """Show what changed between two versions: cases, splits, schema, statistics, bytes."""
    with one_line_errors():
        import simgen
        from simgen.store.verify import compare

        with errors.status("comparing"):
            found = compare(
                simgen.open_dataset(dataset, before), simgen.open_dataset(dataset, after)
            )
        print_difference(found)


@dataset_app.command(
    "export",
    epilog=(
        "Example: courant dataset export demo-run/store/cylinder-flow s3://bucket/plain"
        " --version v2"
    ),
)
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
    with one_line_errors():
        import simgen
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
    "export-vtu",
    epilog=(
        "Example: courant dataset export-vtu demo-run/store/cylinder-flow vtu --split test"
        " --every 10"
    ),
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
    with one_line_errors():
        import simgen
        from simgen.publish.export import export_vtu

        if case and split:
            raise InputError("--case and --split both choose cases; give one")
        opened = simgen.open_dataset(dataset, version)
        with progress_bar("writing cases") as on_progress:
            chosen = list(dict.fromkeys(case or ())) or (opened.cases(split) if split else None)
            written = export_vtu(opened, folder, chosen, every, on_progress)
        print_line(
            f"{len(written)} files to open in {folder}, such as {written[0]}"
            if written
            else "no case"
        )


@dataset_app.command(
    "card",
    epilog=(
        "Example: courant dataset card demo-run/store/cylinder-flow --out card --license CC-BY-4.0"
    ),
)
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
    with one_line_errors():
        import simgen
        from simgen.publish.card import write_card

        with progress_bar("drawing") as on_progress:
            readme = write_card(simgen.open_dataset(dataset, version), out, license, on_progress)
        print_line(f"card  {readme}")
