"""`courant dataset import` and `generate-benchmark`: cases solved elsewhere become datasets.

Heavy imports are inside the commands, so that `courant --help` answers at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from flows.cli.options import Store as StoreOption
from flows.request_models import Store, about, request, with_options_of
from flows.settings import absolute, load_settings
from flows.terminal import counted, errors, print_line, print_markup, progress_bar, screen
from simgen.whole_file import local_path

if TYPE_CHECKING:
    from simgen.imports.folder import CaseReader, FolderOptions, FolderPlan

import_app = typer.Typer(
    help="Import cases that were solved elsewhere, as a dataset version.", no_args_is_help=True
)


Pairs = dict[str, str] | None


@request
class FolderRequest:
    """Options of both commands for folders of cases."""

    folder: Annotated[str, about("Folder with the cases, at any depth.")]
    fields: Annotated[
        str, about("Fields or arrays, such as U,p,T; U=wind gives one a name.", "--fields")
    ]
    name: Annotated[str | None, about("Name of the dataset; default: the folder's.")] = None
    store: Store = None
    table: Annotated[
        str | None,
        about(
            "CSV file with a column `case` (a case's place in the folder), a column for each"
            " parameter such as `speed (m/s)`, and perhaps `split`.",
            "--parameters",
        ),
    ] = None
    ranges: Annotated[
        Pairs,
        about("Range of a parameter; default: as wide as the cases'.", "--range", "NAME=LOW:HIGH"),
    ] = None
    given: Annotated[str, about("Fields that are known before a solve: inputs of models.")] = ""
    keep_repeats: Annotated[bool, about("Import several cases of the same parameters.")] = False
    source: Annotated[str | None, about("Name of the source, for the dataset's card.")] = None
    source_url: Annotated[str, about("Where the source is published.")] = "a local folder"
    licence: Annotated[str, about("Licence of the source.", "--license")] = "not stated"
    dry_run: Annotated[bool, about("Write nothing, print what would be imported.")] = False

    def arrays(self) -> tuple[dict[str, str], frozenset[str]]:
        """Return names in the dataset by array, empty where not given, and the given arrays."""
        solved, known = (
            {
                array.strip(): name.strip()
                for array, _, name in (each.partition("=") for each in text.split(","))
                if array.strip()
            }
            for text in (self.fields, self.given)
        )
        return {**solved, **known}, frozenset(known)

    def options(
        self, units: Mapping[str, str] = MappingProxyType({}), kinds: tuple[str, ...] | None = None
    ) -> FolderOptions:
        """Return the options of the import, with the CSV file read."""
        from simgen.imports.folder import FolderOptions, read_case_table
        from simgen.imports.source_case import as_utf8
        from simgen.store.schema import Source

        folder = local_path(self.folder).resolve()
        own = re.sub(r"[^a-z0-9]+", "-", folder.name.lower()).strip("-")
        name = self.name or own or "imported"
        source = (self.source or folder.name, self.source_url, self.licence)
        ranges = {}
        for each, text in (self.ranges or {}).items():
            try:
                low, high = map(float, text.split(":"))
            except ValueError:
                raise typer.BadParameter(
                    f"'{each}={text}' is not NAME=LOW:HIGH", param_hint="--range"
                ) from None
            ranges[each] = (low, high)
        return FolderOptions(
            folder=folder,
            url=f"{_store(self.store)}/{name}",
            name=name,
            table=None if self.table is None else read_case_table(local_path(self.table)),
            units=units,
            ranges=ranges,
            distance_kinds=kinds,
            source=Source(*map(as_utf8, source)),
            keep_repeats=self.keep_repeats,
        )


@request
class FoamRequest(FolderRequest):
    """Options of OpenFOAM cases."""

    parameter: Annotated[
        Pairs,
        about(
            "A parameter from each case's dictionaries, such as nu=constant/transportProperties:nu"
            " or 'speed (m/s)=0/U:boundaryField/inlet/value[0]'.",
            "--parameter",
            "NAME=FILE:ENTRY",
        ),
    ] = None
    kind: Annotated[
        Pairs,
        about("Kind of patches, such as blade*=blade; none: left out.", "--kind", "PATCH=KIND"),
    ] = None
    patch_value: Annotated[
        Pairs,
        about(
            "On patches where this condition writes no value, use that of the cells behind.",
            "--patch-value",
            "CONDITION=cell",
        ),
    ] = None
    distance: Annotated[
        str | None,
        about(
            "Kinds of patches that distances are measured to, which every case must have, such as"
            " wall,inlet, or none; default: the kinds that most cases have."
        ),
    ] = None
    region: Annotated[str, about("Region, of cases with several meshes.")] = ""
    steady: Annotated[
        bool | None,
        about("Last time only, or all; default: by the time scheme.", "--steady/--transient"),
    ] = None
    after: Annotated[float, about("Leave out times before this one (s).")] = 0.0
    every: Annotated[int, about("Of a transient case every n-th time.", ge=1)] = 1
    interval: Annotated[
        float | None, about("Interpolate times linearly to ones so many seconds apart.")
    ] = None
    limit: Annotated[
        dict[str, float] | None,
        about(
            "Skip cases whose log shows more: courant, continuity, or residual (the largest of the"
            " last step). Cases without a log are imported.",
            "--limit",
            "FIGURE=NUMBER",
        ),
    ] = None
    allow_unfinished: Annotated[bool, about("Import cases that did not come to their end.")] = False


@request
class VtkRequest(FolderRequest):
    """Options of VTK's files."""

    unit: Annotated[Pairs, about("Unit of a field, such as m/s.", "--unit", "FIELD=UNIT")] = None


@import_app.command(
    "openfoam",
    epilog=(
        "Example: courant dataset import openfoam my-cases --fields U,p --parameters designs.csv"
        " --dry-run"
    ),
)
@with_options_of(FoamRequest)
def import_openfoam_cases(given: Mapping[str, Any]) -> None:
    """Import a folder of solved OpenFOAM cases, whoever made them.

    Serial or decomposed, ascii, binary or packed, any cells and patches. A case that cannot be
    imported is skipped with one line, and the others are imported. Run it again for cases that were
    added: those on record are skipped.
    """
    from simgen.imports.folder import name_and_unit
    from simgen.imports.openfoam import FoamFolder, FoamOptions, patches_by_kind
    from simgen.imports.openfoam.dictionaries import DictionaryPlace

    asked = FoamRequest(**given)
    fields, known = asked.arrays()
    values = asked.patch_value or {}
    if wrong := [each for each, value in values.items() if value != "cell"]:
        raise typer.BadParameter(
            f"'{wrong[0]}={values[wrong[0]]}' is not CONDITION=cell", param_hint="--patch-value"
        )
    places = {name_and_unit(each): at for each, at in (asked.parameter or {}).items()}
    kinds = None
    if asked.distance is not None:
        kinds = tuple(filter(None, map(str.strip, asked.distance.split(","))))
    reader = FoamFolder(
        FoamOptions(
            fields=fields,
            given=known,
            region=asked.region,
            kinds=asked.kind or {},
            patch_values=frozenset(values),
            parameters={name: DictionaryPlace.parse(at) for (name, _), at in places.items()},
            steady=asked.steady,
            after=asked.after,
            every=asked.every,
            interval=asked.interval,
            allow_unfinished=asked.allow_unfinished,
            limits=asked.limit or {},
        )
    )
    kinds = () if kinds == ("none",) else kinds
    _import_folder(asked.options(dict(iter(places)), kinds), reader, asked.dry_run, patches_by_kind)


@import_app.command(
    "vtk",
    epilog="Example: courant dataset import vtk results --fields velocity,p=pressure --dry-run",
)
@with_options_of(VtkRequest)
def import_vtk_files(given: Mapping[str, Any]) -> None:
    """Import a folder of VTK's files: each mesh is a case, each .pvd or .series one in time.

    A file that cannot be imported is skipped with one line, and the others are imported. Run it
    again for files that were added: those on record are skipped.
    """
    from simgen.imports.vtk import VtkFolder, VtkOptions
    from simgen.imports.vtk_reader import MeshReader

    asked = VtkRequest(**given)
    fields, known = asked.arrays()
    names = {array: name or array for array, name in fields.items()}
    with MeshReader() as meshes:
        reader = VtkFolder(VtkOptions(names, known, asked.unit or {}), meshes)
        _import_folder(asked.options(), reader, asked.dry_run)


def _import_folder(
    asked: FolderOptions, reader: CaseReader, dry_run: bool, kinds: Any = lambda plan: {}
) -> None:
    """Plan, print what is skipped, and import or print what would be."""
    from simgen.imports.folder import import_plan, plan_folder

    def print_skipped(
        case: str, reason: str, word: str = "[bold yellow]skipped[/bold yellow]"
    ) -> None:
        text = escape(f"{case}: {reason}")
        errors.print(f"{word} {text}", highlight=False, soft_wrap=True)

    def print_note(text: str) -> None:
        errors.print(f"[yellow]note:[/yellow] {escape(text)}", soft_wrap=True)

    with progress_bar("looking at cases") as on_progress:
        plan = plan_folder(asked, reader, on_progress)
    for each in plan.skipped:
        print_skipped(each.case, each.reason)
    for each in plan.left_out:
        print_skipped(each.case, each.reason, "[yellow]left out[/yellow]")
    for note in plan.notes:
        print_note(note)
    left_out = f", {len(plan.left_out)} left out" if plan.left_out else ""
    if dry_run:
        _print_plan(plan, kinds(plan))
        splits = list(plan.splits.values())
        counts = ", ".join(f"{splits.count(each)} {each}" for each in dict.fromkeys(splits))
        print_line(
            f"would import {counted(len(plan.cases) - len(plan.on_record), 'new case')}"
            f" ({counts} in all), {len(plan.skipped)} skipped{left_out}; values are checked as they"
            " are read"
        )
        return
    with progress_bar("importing cases") as on_progress:
        done = import_plan(plan, reader, on_progress=on_progress, on_skipped=print_skipped)
    for name, number in done.in_double.items():
        print_note(
            f"{name} is stored in double precision in {counted(number, 'case')}: single precision"
            " would round away what varies of it"
        )
    for case in done.left_out:
        print_note(
            f"{case} has nearly all of the variance of a field, as a diverged case has: statistics,"
            f" training and validation leave it out, a test does not; to remove it:"
            f" courant dataset withdraw {done.url} {case}"
        )
    skipped = done.num_skipped + len(plan.skipped)
    print_line(
        f"{done.url} {done.version}: {counted(done.num_cases, 'case')} of the folder,"
        f" {done.num_new} new{f', {skipped} skipped' if skipped else ''}{left_out}"
    )


def _print_plan(plan: FolderPlan, kinds: Mapping[str, Sequence[str]]) -> None:
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
    for kind, patches in kinds.items():
        print_markup(f"  patches of kind {escape(f'{kind}: ' + (', '.join(patches) or 'none'))}")
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


def _store(store: str | None) -> str:
    return absolute(store or load_settings().store).rstrip("/")


@import_app.command(
    "benchmark", epilog="Example: courant dataset import benchmark airfoil downloads/naca"
)
def import_benchmark(
    benchmark: Annotated[str, typer.Argument(help="Such as airfoil; docs/importing.md has all.")],
    folder: Annotated[Path, typer.Argument(help="Folder with its files, at any depth.")],
    validation: Annotated[
        int, typer.Option(min=0, help="So many of the training cases validate instead.")
    ] = 0,
    other_files: Annotated[
        bool, typer.Option("--other-files", help="Read files that are not the published ones.")
    ] = False,
    name: Annotated[str | None, typer.Option(help="Name of the dataset.")] = None,
    store: StoreOption = None,
) -> None:
    """Import a public benchmark's files as published: their splits, their resolution."""
    from simgen.imports import import_cases
    from simgen.imports.benchmarks.published import hold_out, read_published

    schema, number, cases = read_published(
        benchmark, local_path(str(folder)), other_files=other_files
    )
    schema = replace(schema, family=name or schema.family)
    with progress_bar("importing cases") as on_progress:
        done = import_cases(
            f"{_store(store)}/{schema.family}",
            schema,
            hold_out(cases, validation, number),
            on_progress=lambda done, _: on_progress(done, number),
        )
    _print_done(done)


benchmark_app = typer.Typer()


@benchmark_app.command(
    "generate-benchmark",
    epilog="Example: courant dataset generate-benchmark darcy --train 100 --test 20",
)
def generate_benchmark_data(
    name: Annotated[str, typer.Argument(help="darcy, diffusion-sorption or elasticity.")],
    train: Annotated[
        int | None, typer.Option(min=1, help="Training cases; default: as many as published.")
    ] = None,
    test: Annotated[
        int | None, typer.Option(min=0, help="Test cases; default: as many as published.")
    ] = None,
    validation: Annotated[
        int | None, typer.Option(min=0, help="Validation cases; default: a tenth of --train.")
    ] = None,
    store: StoreOption = None,
) -> None:
    """Solve a public benchmark's equations here and publish the cases as a dataset version.

    After an interruption the same command continues; larger numbers add cases to the same splits.
    """
    from simgen.imports.benchmarks import generate_benchmark, get_generator

    made = get_generator(name)
    num_train = made.num_train if train is None else train
    with progress_bar("solving cases") as on_progress:
        done = generate_benchmark(
            name,
            f"{_store(store)}/{made.grid.schema().family}",
            num_train,
            made.num_test if test is None else test,
            num_validation=-(-num_train // 10) if validation is None else validation,
            on_progress=on_progress,
        )
    _print_done(done)


def _print_done(done: Any) -> None:
    print_line(f"{done.url} {done.version}: {counted(done.num_cases, 'case')}, {done.num_new} new")
