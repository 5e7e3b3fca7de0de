"""`courant dataset verify`, `withdraw` and `gc`: check and clean datasets.

Heavy imports are inside the commands, so that `courant --help` answers at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.dataset_tables import print_findings, print_garbage
from flows.cli.options import DatasetUrl, Version
from flows.terminal import errors, one_line_errors, print_line, progress_bar

upkeep_app = typer.Typer()


@upkeep_app.command(
    "verify", epilog="Example: courant dataset verify s3://bucket/store/cylinder-flow --version v2"
)
def dataset_verify(dataset: DatasetUrl, version: Version = None) -> None:
    """Read every chunk of a version and compare it with the record.

    Ends with exit code 1 where anything is damaged.
    """
    with one_line_errors():
        import simgen
        from simgen.store.verify import verify

        with progress_bar("verifying cases") as on_progress:
            opened = simgen.open_dataset(dataset, version)
            found = verify(opened, on_progress)
        print_findings(opened, found)
    if found.findings:
        raise typer.Exit(1)


@upkeep_app.command(
    "withdraw",
    epilog=(
        'Example: courant dataset withdraw demo-run/store/cylinder-flow b0159c13a91f --reason "half'
        ' of its snapshots"'
    ),
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
    with one_line_errors():
        import simgen
        from simgen.store.write import DatasetWriter

        version = DatasetWriter.open(dataset, simgen.open_dataset(dataset).schema).withdraw(
            cases, reason
        )
        print_line(repr(simgen.open_dataset(dataset, version)).strip("<>"))


@upkeep_app.command(
    "gc", epilog="Example: courant dataset gc s3://bucket/store/cylinder-flow --dry-run"
)
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
        bool, typer.Option("--dry-run", help="Delete nothing, say how much it would be.")
    ] = False,
) -> None:
    """Delete leftovers of killed runs, and the history between versions.

    No version loses anything. Damaged references are made again first.
    """
    with one_line_errors():
        from datetime import timedelta

        from simgen.store.versions import collect

        with errors.status("looking for garbage"):
            found = collect(dataset, older_than=timedelta(hours=older_than), dry_run=dry_run)
        print_garbage(found, dry_run=dry_run)
