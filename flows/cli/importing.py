"""`courant dataset import` and `generate-benchmark`: cases solved elsewhere become datasets.

Heavy imports are inside the commands, so that `courant --help` answers at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from flows.cli.options import Store
from flows.settings import absolute, load_settings
from flows.terminal import (
    counted,
    errors,
    one_line_errors,
    print_line,
    print_markup,
    progress_bar,
    screen,
)
from simgen.whole_file import local_path

if TYPE_CHECKING:
    from simgen.imports.folder_plan import FolderPlan
    from simgen.imports.importing import Imported
    from simgen.imports.surveyed import Asked


Folder = Annotated[Path, typer.Argument(help="Folder with the cases, at any depth.")]
Name = Annotated[
    str | None, typer.Option(help="Name of the dataset; default: the folder's, in small letters.")
]
Table_ = Annotated[
    Path | None,
    typer.Option(
        "--parameters",
        help=(
            "CSV file with a column `case` (a case's place in the folder), a column for each"
            " parameter such as `speed (m/s)`, and perhaps `split`."
        ),
    ),
]
Ranges = Annotated[
    list[str] | None,
    typer.Option(
        "--range",
        metavar="NAME=LOW:HIGH",
        help="Range of a parameter, for cases to come; default: as wide as the cases'.",
    ),
]
KeepRepeats = Annotated[
    bool, typer.Option("--keep-repeats", help="Take several cases of the same parameters.")
]
SourceName = Annotated[
    str | None, typer.Option("--source", help="Name of the source, for the dataset's card.")
]
SourceUrl = Annotated[str, typer.Option(help="Where the source is to be had.")]
Licence = Annotated[str, typer.Option("--license", help="Licence of the source.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Write nothing, say what would be imported.")
]


def read_asked(
    folder: Path,
    name: str | None,
    store: str | None,
    table: Path | None,
    ranges: list[str] | None,
    keep_repeats: bool,
    source: str | None,
    source_url: str,
    licence: str,
) -> Asked:
    """Put together what both commands ask for, with the CSV file read."""
    import re

    from simgen.imports.case_table import read_case_table
    from simgen.imports.surveyed import Asked
    from simgen.imports.told import as_utf8
    from simgen.store.schema import Source

    folder = local_path(str(folder)).resolve()
    dataset = name or re.sub(r"[^a-z0-9]+", "-", folder.name.lower()).strip("-") or "imported"
    base = absolute(store or load_settings().store).rstrip("/")
    return Asked(
        folder=folder,
        url=f"{base}/{dataset}",
        name=dataset,
        table=None if table is None else read_case_table(local_path(str(table))),
        ranges={each: _range(each, text) for each, text in pairs(ranges, "--range").items()},
        source=Source(*map(as_utf8, (source or folder.name, source_url, licence))),
        keep_repeats=keep_repeats,
    )


def listed(text: str) -> list[str]:
    """Parse `U,p,T`."""
    return [each.strip() for each in text.split(",") if each.strip()]


def named(text: str) -> dict[str, str]:
    """Parse `velocity,p=pressure`: an array's name to its field's."""
    parts = (each.partition("=") for each in listed(text))
    return {array.strip(): (name or array).strip() for array, _, name in parts}


def pairs(texts: list[str] | None, option: str) -> dict[str, str]:
    """Parse options `NAME=…` into a mapping."""
    found = {}
    for text in texts or []:
        name, _, value = (part.strip() for part in text.partition("="))
        if not name or not value:
            raise typer.BadParameter(f"'{text}' is not NAME=…", param_hint=option)
        found[name] = value
    return found


def _range(name: str, text: str) -> tuple[float, float]:
    try:
        low, high = (float(part) for part in text.split(":"))
    except ValueError:
        raise typer.BadParameter(
            f"'{name}={text}' is not NAME=LOW:HIGH", param_hint="--range"
        ) from None
    return low, high


OnProgress = Callable[[int, int], None]
OnRefused = Callable[[str, str], None]


def import_or_tell(
    plan: FolderPlan,
    kinds: list[str],
    run: Callable[[OnProgress, OnRefused], Imported],
    dry_run: bool,
) -> None:
    """Tell what is refused, then import, or say what would be."""
    for each in plan.refused:
        _print_refused(each.case, each.reason)
    for each in plan.left_out:
        text = escape(f"{each.case}: {each.reason}")
        errors.print(f"[yellow]left out[/yellow] {text}", highlight=False, soft_wrap=True)
    for note in plan.notes:
        _print_note(note)
    if dry_run:
        _print_plan(plan, kinds)
        return
    with progress_bar("importing cases") as on_progress:
        done = run(on_progress, _print_refused)
    for name, number in done.in_double.items():
        _print_note(
            f"{name} is stored in double precision in {counted(number, 'case')}: single precision"
            " would round away what varies of it"
        )
    for case in done.left_out:
        _print_note(
            f"{case} has nearly all of the variance of a field, as a diverged case has: statistics,"
            f" training and validation leave it out, a test does not; to remove it:"
            f" courant dataset withdraw {done.url} {case}"
        )
    refused = done.num_refused + len(plan.refused)
    print_line(
        f"{done.url} {done.version}: {counted(done.num_cases, 'case')} of the folder,"
        f" {done.num_new} new{f', {refused} refused' if refused else ''}{_num_left_out(plan)}"
    )


def _num_left_out(plan: FolderPlan) -> str:
    return f", {len(plan.left_out)} left out" if plan.left_out else ""


def _print_note(text: str) -> None:
    errors.print(f"[yellow]note:[/yellow] {escape(text)}", soft_wrap=True)


def _print_refused(case: str, reason: str) -> None:
    text = escape(f"{case}: {reason}")
    errors.print(f"[bold yellow]refused[/bold yellow] {text}", highlight=False, soft_wrap=True)


def _print_plan(plan: FolderPlan, kinds: list[str]) -> None:
    """Print the schema, the cases and their splits."""
    schema = plan.schema
    form = "transient" if schema.transient else "steady"
    print_markup(f"[bold]{escape(plan.url)}[/bold]: {form} cases in {schema.dimension} dimensions")
    for field in schema.fields:
        text = f"{field.name} ({field.unit}): {', '.join(field.components)}"
        file = f", from {field.openfoam}" if field.openfoam else ""
        given = ", given" if field.role == "given" else ""
        print_markup(f"  {escape(text + file + given)}")
    for each in schema.parameters:
        unit = f" {each.unit}" if each.unit else ""
        print_markup(f"  parameter {escape(f'{each.name}: {each.low:g} to {each.high:g}{unit}')}")
    for text in kinds:
        print_markup(f"  patches of kind {escape(text)}")
    table = Table(box=None, header_style="bold")
    names = [each.name for each in schema.parameters]
    for title in ("case", "place", *names, "times", "split", ""):
        table.add_column(title, overflow="fold")
    for case in plan.cases:
        times = "last" if case.times is None else f"{len(case.times)} to {case.times[-1]:g} s"
        values = [f"{case.parameters[name]:g}" for name in names]
        there = "on record" if case.name in plan.on_record else ""
        table.add_row(
            case.name, escape(case.place), *values, times, plan.splits.get(case.name, ""), there
        )
    screen.print(table)
    splits = list(plan.splits.values())
    counts = ", ".join(f"{splits.count(each)} {each}" for each in dict.fromkeys(splits))
    print_line(
        f"would import {counted(len(plan.cases) - len(plan.on_record), 'new case')}"
        f" ({counts} in all), {len(plan.refused)} refused{_num_left_out(plan)}; values are checked"
        " as they are read"
    )


import_app = typer.Typer(
    help="Import cases that were solved elsewhere, as a dataset version.", no_args_is_help=True
)


@import_app.command(
    "openfoam",
    epilog=(
        "Example: courant dataset import openfoam my-cases --fields U,p --parameters designs.csv"
        " --dry-run"
    ),
)
def import_openfoam_cases(
    folder: Folder,
    fields: Annotated[
        str, typer.Option(help="Fields of cells, such as U,p,T; U=wind gives one a name.")
    ],
    name: Name = None,
    store: Store = None,
    parameters: Table_ = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE:ENTRY",
            help=(
                "A parameter from each case's dictionaries, such as"
                " nu=constant/transportProperties:nu or"
                " 'speed (m/s)=0/U:boundaryField/inlet/value[0]'."
            ),
        ),
    ] = None,
    range_: Ranges = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATCH=KIND",
            help="Kind of the patches of this name, such as blade*=blade; none leaves them out.",
        ),
    ] = None,
    patch_value: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION=cell",
            help="On patches where this condition writes no value, take that of the cells behind.",
        ),
    ] = None,
    distance: Annotated[
        str | None,
        typer.Option(
            metavar="KIND,KIND",
            help=(
                "Kinds of patches that distances are measured to, which every case must have, or"
                " none; default: the kinds that most cases have."
            ),
        ),
    ] = None,
    given: Annotated[
        str, typer.Option(help="Fields that are known before a case is solved: inputs of models.")
    ] = "",
    region: Annotated[str, typer.Option(help="Region, of cases with several meshes.")] = "",
    steady: Annotated[
        bool | None,
        typer.Option(
            "--steady/--transient",
            help="Last time only, or all times; default: as the time scheme says.",
        ),
    ] = None,
    after: Annotated[float, typer.Option(help="Leave out times before this one (s).")] = 0.0,
    every: Annotated[int, typer.Option(min=1, help="Of a transient case every n-th time.")] = 1,
    interval: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Interpolate a transient case's times linearly, to ones that lie so far apart.",
        ),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIGURE=NUMBER",
            help=(
                "Refuse cases whose log shows more: courant, continuity, or residual (the largest"
                " of the last step). Cases without a log are taken."
            ),
        ),
    ] = None,
    allow_unfinished: Annotated[
        bool, typer.Option("--allow-unfinished", help="Take cases that did not come to their end.")
    ] = False,
    keep_repeats: KeepRepeats = False,
    source: SourceName = None,
    source_url: SourceUrl = "a local folder",
    licence: Licence = "not stated",
    dry_run: DryRun = False,
) -> None:
    """Import a folder of solved OpenFOAM cases, whoever made them.

    Serial or decomposed, ascii, binary or packed, any cells and patches. A case that cannot be
    imported is told in one line, and the others are imported. Run it again for cases that were
    added: those on record are skipped.
    """
    with one_line_errors():
        from simgen.imports.case_table import name_and_unit
        from simgen.imports.openfoam import (
            FoamOptions,
            import_openfoam,
            patches_by_kind,
            plan_openfoam,
        )
        from simgen.imports.openfoam.dictionary import DictionaryPlace
        from simgen.imports.openfoam.foam_fields import AskedField
        from simgen.imports.openfoam.patch_kinds import parse_overrides, parse_patch_values
        from simgen.imports.openfoam.solver_log import parse_limits

        asked = read_asked(
            folder, name, store, parameters, range_, keep_repeats, source, source_url, licence
        )
        places = pairs(parameter, "--parameter")
        asked = replace(asked, units=dict(map(name_and_unit, places)))
        options = FoamOptions(
            fields=(
                *(AskedField.parse(each) for each in listed(fields)),
                *(AskedField.parse(each, "given") for each in listed(given)),
            ),
            region=region,
            kinds=parse_overrides(kind or []),
            patch_values=parse_patch_values(patch_value or []),
            parameters={
                name_and_unit(each)[0]: DictionaryPlace.parse(place)
                for each, place in places.items()
            },
            steady=steady,
            after=after,
            every=every,
            interval=_positive(interval),
            allow_unfinished=allow_unfinished,
            limits=parse_limits(limit or []),
        )
        if distance is not None:
            kinds = [] if distance == "none" else listed(distance)
            asked = replace(asked, distance_kinds=tuple(kinds))
        with progress_bar("looking at cases") as on_progress:
            plan = plan_openfoam(asked, options, on_progress)
        patches = patches_by_kind(plan)
        import_or_tell(
            plan,
            [f"{each}: {', '.join(names) or 'none'}" for each, names in patches.items()],
            lambda on_progress, on_refused: import_openfoam(
                plan, options, on_progress=on_progress, on_refused=on_refused
            ),
            dry_run,
        )


def _positive(interval: float | None) -> float | None:
    if interval is not None and not 0 < interval < float("inf"):
        raise typer.BadParameter(f"{interval:g} is no interval", param_hint="--interval")
    return interval


@import_app.command(
    "vtk",
    epilog="Example: courant dataset import vtk results --fields velocity,p=pressure --dry-run",
)
def import_vtk_files(
    folder: Folder,
    fields: Annotated[
        str, typer.Option(help="Arrays on cells or points; p=pressure gives one a name.")
    ],
    name: Name = None,
    store: Store = None,
    parameters: Table_ = None,
    range_: Ranges = None,
    given: Annotated[
        str, typer.Option(help="Arrays that are known before a case is solved: inputs of models.")
    ] = "",
    unit: Annotated[
        list[str] | None, typer.Option(metavar="FIELD=UNIT", help="Unit of a field, such as m/s.")
    ] = None,
    keep_repeats: KeepRepeats = False,
    source: SourceName = None,
    source_url: SourceUrl = "a local folder",
    licence: Licence = "not stated",
    dry_run: DryRun = False,
) -> None:
    """Import a folder of VTK's files: each mesh is a case, each .pvd or .series one in time.

    A file that cannot be imported is told in one line, and the others are imported. Run it again
    for files that were added: those on record are skipped.
    """
    with one_line_errors():
        from simgen.imports.vtk import VtkOptions, import_vtk, plan_vtk

        asked = read_asked(
            folder, name, store, parameters, range_, keep_repeats, source, source_url, licence
        )
        solved, known = named(fields), named(given)
        options = VtkOptions({**solved, **known}, frozenset(known), pairs(unit, "--unit"))
        with progress_bar("looking at files") as on_progress:
            plan = plan_vtk(asked, options, on_progress)
        import_or_tell(
            plan,
            [],
            lambda on_progress, on_refused: import_vtk(
                plan, on_progress=on_progress, on_refused=on_refused
            ),
            dry_run,
        )


@import_app.command(
    "benchmark", epilog="Example: courant dataset import benchmark airfoil downloads/naca"
)
def import_benchmark(
    benchmark: Annotated[
        str,
        typer.Argument(
            help=(
                "elasticity, pipe, airfoil, darcy, diffusion-sorption or compressible-flow;"
                " docs/importing.md names their files."
            )
        ),
    ],
    folder: Annotated[Path, typer.Argument(help="Folder with its files, at any depth.")],
    validation: Annotated[
        int,
        typer.Option(
            min=0,
            help=(
                "So many of the published training cases, the first ones, validate instead:"
                " courant benchmark chooses by them."
            ),
        ),
    ] = 0,
    other_files: Annotated[
        bool,
        typer.Option(
            "--other-files",
            help="Take files of PDEBench's layout that are not those which it published.",
        ),
    ] = False,
    name: Annotated[
        str | None, typer.Option(help="Name of the dataset; default: the benchmark's.")
    ] = None,
    store: Store = None,
) -> None:
    """Import a public benchmark's files as published: their splits, their resolution."""
    with one_line_errors():
        from simgen.imports.benchmarks.community import hold_out, read_community
        from simgen.imports.importing import import_cases

        schema, number, cases = read_community(
            benchmark, local_path(str(folder)), other_files=other_files
        )
        schema = replace(schema, family=name or schema.family)
        base = absolute(store or load_settings().store).rstrip("/")
        with progress_bar("importing cases") as on_progress:
            done = import_cases(
                f"{base}/{schema.family}",
                schema,
                hold_out(cases, validation, number),
                on_progress=lambda done, _: on_progress(done, number),
            )
        print_line(
            f"{done.url} {done.version}: {counted(done.num_cases, 'case')}, {done.num_new} new"
        )


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
        print_line(
            f"{done.url} {done.version}: {counted(done.num_cases, 'case')}, {done.num_new} new"
        )
