"""`courant dataset generate-benchmark`: data of public benchmarks, made here."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.options import Store
from flows.settings import absolute, load_settings
from flows.terminal import counted, one_line_errors, progress_bar, say

benchmark_app = typer.Typer()


@benchmark_app.command(
    "generate-benchmark",
    epilog="Example: courant dataset generate-benchmark darcy --train 100 --test 20",
)
def generate_benchmark_data(
    name: Annotated[
        str,
        typer.Argument(
            help="darcy, diffusion-sorption or elasticity; docs/importing.md describes them."
        ),
    ],
    train: Annotated[
        int | None, typer.Option(min=1, help="Training cases; default: as many as published.")
    ] = None,
    test: Annotated[
        int | None, typer.Option(min=0, help="Test cases; default: as many as published.")
    ] = None,
    validation: Annotated[
        int | None,
        typer.Option(
            min=0, help="Validation cases, beside the published; default: a tenth of --train."
        ),
    ] = None,
    store: Store = None,
) -> None:
    """Solve a public benchmark's equations here and publish the cases as a dataset version.

    After an interruption the same command continues; larger numbers add cases to the same splits.
    """
    with one_line_errors():
        from simgen.imports.benchmarks.generate import generate_benchmark, get_generator

        made = get_generator(name)
        base = absolute(store or load_settings().store).rstrip("/")
        num_train = made.num_train if train is None else train
        with progress_bar("solving cases") as on_progress:
            done = generate_benchmark(
                name,
                f"{base}/{made.schema(made.grid).family}",
                num_train,
                made.num_test if test is None else test,
                num_validation=-(-num_train // 10) if validation is None else validation,
                on_progress=on_progress,
            )
        say(f"{done.url} {done.version}: {counted(done.num_cases, 'case')}, {done.num_new} new")
