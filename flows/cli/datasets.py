"""Define `courant dataset`: list, compare, check, export, describe, clean and import datasets.

Heavy imports are inside the commands, so that `courant --help` answers at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column, Table

import simgen
from flows import request_models
from flows.cli.options import DatasetUrl, Store, Version
from flows.request_models import about, request, with_options_of
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
from simgen.whole_file import local_path

if TYPE_CHECKING:
    from simgen.imports.folder import CaseReader, FolderOptions, FolderPlan
    from simgen.store.read import Dataset, StoredCase

GIVEN = " (given)"
#: Least widths of columns: an id, `calibration`, and cells or seconds.
CASE_WIDTH, SPLIT_WIDTH, NUMBER_WIDTH = 12, 11, 5
#: Cases that a difference names before it only counts.
MAX_NAMED = 8

dataset_app = typer.Typer(
    help="Datasets: list, compare, check, export, describe and clean them.", no_args_is_help=True
)
import_app = typer.Typer(
    help="Import cases that were solved elsewhere, as a dataset version.", no_args_is_help=True
)


@dataset_app.command("ls", epilog="Example: courant dataset ls --store demo-run/store")
def dataset_ls(store: Store = None) -> None:
    """List the datasets of a store, with their newest versions."""
    from simgen.store.versions import folders_in

    base = _store(store)
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


Pairs = dict[str, str] | None


@request
class FolderRequest:
    """Options of both commands for folders of cases."""

    folder: Annotated[str, about("Folder with the cases, at any depth.")]
    fields: Annotated[
        str, about("Fields or arrays, such as U,p,T; U=wind gives one a name.", "--fields")
    ]
    name: Annotated[str | None, about("Name of the dataset; default: the folder's.")] = None
    store: request_models.Store = None
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
    store: Store = None,
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


@dataset_app.command(
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
    store: Store = None,
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


dataset_app.add_typer(import_app, name="import")
