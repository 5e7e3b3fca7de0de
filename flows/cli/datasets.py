"""`courant dataset`: list, compare, check, export and import; heavy imports are in the commands."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import Field
from rich.table import Column

import simgen
from flows import request_models as asks
from flows import terminal
from flows.request_models import argument, option
from flows.settings import absolute, load_settings
from flows.terminal import counted, print_line, print_table, progress_bar
from simgen.cases import FAMILIES
from simgen.errors import InputError, StoreError
from simgen.log_lines import size_text
from simgen.store.split import SPLITS
from simgen.whole_file import local_path

if TYPE_CHECKING:
    from simgen.imports.folder import CaseReader, FolderOptions, FolderPlan

FIGURES = ("mean", "std", "min", "max")
#: Cases that a difference names before it only counts.
MAX_NAMED = 8

dataset_app = typer.Typer(
    help="Datasets: list, compare, check, export, describe and clean them.", no_args_is_help=True
)
import_app = typer.Typer(
    help="Import cases that were solved elsewhere, as a dataset version.", no_args_is_help=True
)


@dataset_app.command("ls", epilog="Example: courant dataset ls demo-run/store")
def dataset_ls(
    store: Annotated[
        str | None, argument("Folder or URL of a store; COURANT_STORE where not given.")
    ] = None,
) -> None:
    """List the datasets of a store, with their newest versions."""
    from simgen.store.versions import folders_in

    base, rows, problems = load_settings().store_url(store), list[tuple[object, ...]](), list[str]()
    # Families first: a store that cannot be read is an error for each.
    for family in dict.fromkeys([*FAMILIES, *folders_in(base)]):
        url = f"{base}/{family}"
        try:
            dataset = simgen.open_dataset(url)
        except InputError:
            continue  # no dataset, or none that is published
        except StoreError as error:
            rows.append((family, "cannot be read"))
            problems.append(str(error))
            continue
        *drawn, calibration = [len(dataset.cases(split)) for split in SPLITS]
        splits = "/".join(map(str, drawn))
        splits += f" + {calibration} calibration" if calibration else ""
        published = f"{dataset.info.time:%Y-%m-%d %H:%M}"
        rows.append((family, dataset.version, len(dataset), splits, published))
    if not rows:
        raise InputError(
            f"no dataset in {base}; generate one with:"
            f" courant generate cylinder-flow --store {shlex.quote(base)}"
        )
    columns = ("version", "cases", "train/validation/test", "published")
    print_table(("dataset", *columns), rows)
    if problems:
        terminal.fail("\n".join(problems))


@dataset_app.command("show", epilog="Example: courant dataset show DATASET --case b0159c13a91f")
def dataset_show(
    dataset: asks.Dataset,
    version: asks.Version = None,
    case: Annotated[str | None, option("Show one case's provenance and gates.")] = None,
) -> None:
    """Show a version's cases, fields, splits, statistics and how to make it again, or one case."""
    from simgen.publish.card import how_to_make, left_out

    opened = simgen.open_dataset(dataset, version)
    if case:
        stored = opened[case]
        print_line(f"{stored.id}  {stored.status}  {stored.reason}")
        for name, value in {**stored.parameters, **stored.settings}.items():
            print_line(f"  {name} = {value:g}")
        gates = (
            (g["name"], f"{g['value']} {g['unit']}", g["limit"], "yes" if g["passed"] else "NO")
            for g in stored.gates
        )
        print_table(("gate", "value", "limit", "passed"), gates)
        provenance = {k: value for k, value in stored.provenance.items() if k != "residuals"}
        terminal.screen.print_json(json.dumps(provenance))
        if stored.log_tail:
            print_line(stored.log_tail)
        return
    schema = opened.schema
    print_line(f"{schema.family} {opened.version}  {opened.url}  snapshot {opened.snapshot_id}")
    print_line(f"{counted(len(opened), 'accepted case')}: {opened.splits}")
    rows = []
    for field in schema.fields:
        names = (f"{field.name}{' (given)' if field.role == 'given' else ''}", field.unit)
        for number, component in enumerate(field.components):
            found = opened.statistics[field.name]
            values = [f"{found[each][number]:.3g}" for each in FIGURES]
            rows.append([*(("", "") if number else names), component, *values])
    print_table(("field", "unit", "", *FIGURES), rows)
    for each in left_out(opened):
        print_line(f"left out of these statistics, with nearly all of the variance: {each}")
    rows = []
    for quantity in schema.quantities:
        values = [f"{opened.quantity_statistics[quantity.name][each]:.3g}" for each in FIGURES]
        rows.append([quantity.name, quantity.unit, *values, quantity.described])
    print_table(("quantity", "unit", *FIGURES, Column("")), rows)
    rows = []
    for case_id, row in opened.design.iterrows():
        accepted = row["status"] == "accepted"
        ended = f"{row['status']}: {row['reason']}" if row["reason"] else row["status"]
        split = row["split"] if isinstance(row["split"], str) else "not published"
        values = [f"{each.name} {row[each.name]:.3g}" for each in schema.parameters]
        cells = f"{row['num_points']:.0f}" if accepted else ""
        place = split if accepted else ended
        took = f"{row['wall_time_s']:.1f}" if row["wall_time_s"] else ""  # of imports unknown
        rows.append([str(case_id), ", ".join(values), place, cells, took])
    columns = ("case", Column("parameters"), Column("split"), "cells", "mesh and solver (wall s)")
    print_table(columns, rows)
    if (source := schema.source) is not None:
        print_line(f"imported from {source.name}, {source.url}, {source.licence}")
    elif commands := how_to_make(opened):
        print_line(f"make it again:\n  {' && '.join(commands)}")


@dataset_app.command("versions", epilog="Example: courant dataset versions DATASET")
def dataset_versions(dataset: asks.Dataset) -> None:
    """List every version: when, by whom, what it added, its sizes, and the run that made it."""
    from simgen.publish.card import run_command
    from simgen.store.verify import history

    with terminal.errors.status("reading versions"):
        lines = history(simgen.open_dataset(dataset))
    columns = ("version", "published", "author", "cases", "new", "fields", "new on disk")
    rows = []
    for line in lines:
        info, sizes = line.info, (size_text(line.num_bytes), size_text(line.num_bytes_new))
        published = f"{info.time:%Y-%m-%d %H:%M}"
        counts = line.num_cases, line.num_new
        rows.append([info.name, published, info.metadata["author"], *counts, *sizes, info.message])
    print_table([*columns, Column("message")], rows)
    for line in lines:
        if command := run_command(line.info):
            print_line(f"{line.info.name}  {command}")


@dataset_app.command("diff", epilog="Example: courant dataset diff DATASET v1 v2")
def dataset_diff(
    dataset: asks.Dataset,
    before: Annotated[str, argument("Version to start from, such as v1.")],
    after: Annotated[str, argument("Version to compare it with, such as v2.")],
) -> None:
    """Show what changed between two versions: cases, splits, schema, statistics, bytes."""
    from simgen.store.verify import compare

    with terminal.errors.status("comparing"):
        old, new = simgen.open_dataset(dataset, before), simgen.open_dataset(dataset, after)
        found = compare(old, new)
    if found.is_empty:
        print_line(f"{before} and {after} hold the same cases")
        return
    rows = [
        [title, f"{len(cases)}: {', '.join(cases[:MAX_NAMED])}{' …' * (len(cases) > MAX_NAMED)}"]
        for title, cases in (
            ("cases added", found.added),
            ("cases removed", found.removed),
            ("status changed", [f"{k} {' -> '.join(v)}" for k, v in found.changed_status.items()]),
            ("content changed", found.changed_content),
        )
        if cases
    ]
    if accepted := [f"{count} {split}" for split, count in found.new_splits.items() if count]:
        rows.append(["newly accepted", ", ".join(accepted)])
    rows.append(["added on disk", size_text(found.num_bytes_added)])
    print_table((f"{before} -> {after}", Column("")), rows)
    rows = [
        [name, figure] + [", ".join(f"{value:.4g}" for value in each) for each in both]
        for name, figure, *both in found.statistics
    ]
    print_table(("statistic", "", Column(before), Column(after)), rows)


@dataset_app.command("export", epilog="Example: courant dataset export DATASET s3://bucket/plain")
def dataset_export(
    dataset: asks.Dataset,
    target: Annotated[str, argument("An empty folder or s3://bucket/prefix.")],
    version: asks.Version = None,
) -> None:
    """Write a plain Zarr store for zarr and s3fs alone; after an interruption, it continues."""
    from simgen.publish.export import export

    with progress_bar("exporting cases") as on_progress:
        written = export(simgen.open_dataset(dataset, version), absolute(target), on_progress)
    cases = counted(written.num_cases, "case")
    print_line(f"{written.target}  {cases}, {size_text(written.num_bytes)} of fields")


@dataset_app.command("export-vtu", epilog="Example: courant dataset export-vtu DATASET vtu")
def dataset_export_vtu(
    dataset: asks.Dataset,
    folder: Annotated[Path, argument("Folder for the files.")],
    version: asks.Version = None,
    case: Annotated[list[str] | None, option("Only this case; repeat for several.")] = None,
    split: Annotated[str | None, option("Only the cases of train, validation or test.")] = None,
    every: Annotated[int, option("Of a transient case every n-th snapshot.", min=1)] = 1,
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
    dataset: asks.Dataset,
    out: Annotated[Path, option("Folder for README.md, pictures and cases.csv.")] = Path("card"),
    version: asks.Version = None,
    license: Annotated[str, option("Licence; default: that of the import.")] = "",
) -> None:
    """Write a dataset card: a README with pictures of the physics, designs, fields and samples."""
    from simgen.publish.card import write_card

    with progress_bar("drawing") as on_progress:
        readme = write_card(simgen.open_dataset(dataset, version), out, license, on_progress)
    print_line(f"card  {readme}")


@dataset_app.command("verify", epilog="Example: courant dataset verify DATASET --version v2")
def dataset_verify(dataset: asks.Dataset, version: asks.Version = None) -> None:
    """Read every chunk of a version; exit code 1 where anything is damaged."""
    from simgen.store.verify import verify

    with progress_bar("verifying cases") as on_progress:
        opened = simgen.open_dataset(dataset, version)
        found = verify(opened, on_progress)
    where = f"{opened.url} {opened.version}"
    if not found.findings:
        cases = counted(found.num_cases, "case")
        print_line(f"{where}: all {found.num_chunks} chunks of {cases} are intact")
        return
    rows = ((each.case or "(all)", each.place, each.problem) for each in found.findings)
    print_table(("case", Column("where"), Column("what is wrong")), rows)
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
    dataset: asks.Dataset,
    cases: Annotated[list[str], argument("Accepted cases to take back.", metavar="CASE...")],
    reason: Annotated[str, option("Why; stays on the cases' records.")],
) -> None:
    """Publish a version without these cases; older versions and other cases' splits stay."""
    from simgen.store.write import DatasetWriter

    writer = DatasetWriter.open(dataset, simgen.open_dataset(dataset).schema)
    version = writer.withdraw(cases, reason)
    print_line(repr(simgen.open_dataset(dataset, version)).strip("<>"))


@dataset_app.command("gc", epilog="Example: courant dataset gc DATASET --dry-run")
def dataset_gc(
    dataset: asks.Dataset,
    older_than: Annotated[float, option("Age in hours, from 8.", min=0.0, max=876_000.0)] = 24.0,
    dry_run: Annotated[bool, option("Print how much it would be.", "--dry-run")] = False,
) -> None:
    """Delete leftovers of killed runs and history between versions."""
    from simgen.store.versions import collect

    with terminal.errors.status("looking for garbage"):
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


@asks.request
class FolderRequest:
    """Options of both commands for folders of cases."""

    folder: Annotated[str, argument("Folder with the cases, at any depth.")]
    fields: str
    """Fields or arrays, such as U,p,T; U=wind gives one a name."""
    name: str | None = None
    """Name of the dataset; default: the folder's."""
    store: asks.Store = None
    parameters: str | None = None
    """CSV file with the columns `case` (its place in the folder), one for each parameter, such as
    `speed (m/s)`, and perhaps `split`."""
    range: asks.Ranges | None = None
    """Range of a parameter, as NAME=LOW:HIGH; default: as wide as the cases'."""
    given: str = ""
    """Fields that are known before a solve: inputs of models."""
    quantity: asks.Quantities = None
    keep_repeats: bool = False
    """Import several cases of the same parameters."""
    source: str | None = None
    """Name of the source, for the dataset's card."""
    source_url: str = "a local folder"
    """Where the source is published."""
    license: str = "not stated"
    """Licence of the source."""
    dry_run: bool = False
    """Write nothing, print what would be imported."""

    def arrays(self) -> tuple[dict[str, str], frozenset[str]]:
        """Return names in the dataset by array, empty where not given, and the given arrays."""
        found: list[dict[str, str]] = []
        for text in (self.fields, self.given):
            pairs = (map(str.strip, each.partition("=")[::2]) for each in text.split(","))
            found.append({array: name for array, name in pairs if array})
        if not (fields := {**found[0], **found[1]}):
            raise InputError("--fields names no field; expected such as U,p or velocity,p=pressure")
        return fields, frozenset(found[1])

    def options(self, **more: Any) -> FolderOptions:
        """Return the options of the import, with the CSV file read."""
        from simgen.imports.folder import FolderOptions, read_case_table
        from simgen.imports.importing import as_utf8
        from simgen.store.schema import Source

        folder = local_path(self.folder).resolve()
        own = re.sub(r"[^a-z0-9]+", "-", folder.name.lower()).strip("-")
        name = self.name or own or "imported"
        source = (self.source or folder.name, self.source_url, self.license)
        return FolderOptions(
            folder=folder,
            url=f"{load_settings().store_url(self.store)}/{name}",
            name=name,
            table=None if self.parameters is None else read_case_table(local_path(self.parameters)),
            ranges=self.range or {},
            source=Source(*map(as_utf8, source)),
            quantities=self.quantity,
            keep_repeats=self.keep_repeats,
            **more,
        )


@asks.request
class FoamRequest(FolderRequest):
    """Options of OpenFOAM cases."""

    parameter: Pairs = None
    """A parameter from each case's dictionaries, as NAME=FILE:ENTRY, such as
    nu=constant/transportProperties:nu or 'speed (m/s)=0/U:boundaryField/inlet/value[0]'."""
    kind: Pairs = None
    """Kind of patches, as PATCH=KIND, such as blade*=blade; none: left out."""
    patch_value: Pairs = None
    """As CONDITION=cell: on patches where this condition writes no value, use that of the cells."""
    distance: list[str] | None = None
    """Kinds of patches that distances are measured to, which every case must have, such as
    wall,inlet, or none; default: the kinds that most cases have."""
    region: str = ""
    """Region, of cases with several meshes."""
    steady: Annotated[
        bool | None,
        option("Last time only, or all; default: by the time scheme.", "--steady/--transient"),
    ] = None
    after: float = 0.0
    """Leave out times before this one (s)."""
    every: int = Field(default=1, ge=1)
    """Of a transient case every n-th time."""
    interval: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Interpolate times linearly to ones so many seconds apart."""
    limit: dict[str, float] | None = None
    """As FIGURE=NUMBER: skip cases whose log shows more: courant, continuity, or residual (the
    largest of the last step). Cases without a log are imported."""
    allow_unfinished: bool = False
    """Import cases that did not come to their end."""


@asks.request
class VtkRequest(FolderRequest):
    """Options of VTK's files."""

    unit: Pairs = None
    """Unit of a field, as FIELD=UNIT, such as m/s."""


@import_app.command(
    "openfoam",
    epilog="Example: courant dataset import openfoam my-cases --fields U,p --parameters designs.csv"
    " --quantity 'pressure_drop=average(p,inlet)-average(p,outlet)' --dry-run",
)
@asks.with_options_of(FoamRequest)
def import_openfoam_cases(options: Mapping[str, Any]) -> None:
    """Import a folder of solved OpenFOAM cases, whoever made them.

    Serial or decomposed, ascii, binary or packed, any cells and patches. A case that cannot be
    imported is skipped with one line, and the others are imported. Run it again for cases that were
    added: those on record are skipped.
    """
    from simgen.foam import dictionaries
    from simgen.imports import folder, openfoam

    asked = FoamRequest(**options)
    fields, known = asked.arrays()
    values = asked.patch_value or {}
    if wrong := [f"{each}={value}" for each, value in values.items() if value != "cell"]:
        raise typer.BadParameter(f"'{wrong[0]}' is not CONDITION=cell", param_hint="--patch-value")
    parse = dictionaries.DictionaryPlace.parse
    given = asked.parameter or {}
    places = {folder.name_and_unit(each): parse(at) for each, at in given.items()}
    same = ("region", "steady", "after", "every", "interval", "allow_unfinished")
    reader = openfoam.FoamFolder(
        fields=fields,
        given=known,
        kinds=asked.kind or {},
        patch_values=frozenset(values),
        parameters={name: at for (name, _), at in places.items()},
        units=dict(iter(places)),
        limits=asked.limit or {},
        **{name: getattr(asked, name) for name in same},
    )
    kinds = () if asked.distance == ["none"] else asked.distance and tuple(asked.distance)
    of = {name: text for (name, _), text in zip(places, given.values(), strict=True)}
    plan = asked.options(units=dict(iter(places)), places=of, distance_kinds=kinds)
    _import_folder(plan, reader, asked.dry_run)


@import_app.command(
    "vtk",
    epilog="Example: courant dataset import vtk results --fields velocity,p=pressure"
    " --quantity 'peak=max(pressure)' --dry-run",
)
@asks.with_options_of(VtkRequest)
def import_vtk_files(given: Mapping[str, Any]) -> None:
    """Import a folder of VTK's files: each mesh is a case, each .pvd or .series one in time.

    A file that cannot be imported is skipped with one line, and the others are imported. Run it
    again for files that were added: those on record are skipped.
    """
    from simgen.imports import vtk

    asked = VtkRequest(**given)
    fields, known = asked.arrays()
    names = {array: name or array for array, name in fields.items()}
    with vtk.MeshReader() as meshes:
        reader = vtk.VtkFolder(meshes, names, known, asked.unit or {})
        _import_folder(asked.options(units={}), reader, asked.dry_run)


def _import_folder(asked: FolderOptions, reader: CaseReader, dry_run: bool) -> None:
    """Plan, print what is skipped, and import or print what would be."""
    from simgen.imports.folder import import_plan, plan_folder

    def print_skipped(case: str, reason: str, title: str = "skipped") -> None:
        terminal.print_error(f"{case}: {reason}", title, "bold yellow")

    with progress_bar("looking at cases") as on_progress:
        plan = plan_folder(asked, reader, on_progress)
    for title, cases in {"skipped": plan.skipped, "left out": plan.left_out}.items():
        for each in cases:
            print_skipped(each.case, each.reason, title)
    for text in plan.notes:
        terminal.print_error(text, "note", "yellow")
    for of in plan.schema.parameters:
        terminal.announce(f"parameter {of.name}: {of.low:g} to {of.high:g} {of.unit}".rstrip())
    for quantity in plan.schema.quantities:
        terminal.announce(f"quantity  {quantity}")
    left_out = f", {len(plan.left_out)} left out" if plan.left_out else ""
    if dry_run:
        _print_plan(plan)
        print_line(
            f"would import {counted(len(plan.cases) - len(plan.on_record), 'new case')},"
            f" {len(plan.skipped)} skipped{left_out}; values are checked as they are read"
        )
        return
    with progress_bar("importing cases") as on_progress:
        done = import_plan(plan, reader, on_progress=on_progress, on_skipped=print_skipped)
    for case in done.left_out:
        terminal.print_error(
            f"{case} has nearly all of the variance of a field, as a diverged case has: statistics,"
            f" training and validation leave it out, a test does not; to remove it:"
            f" courant dataset withdraw {shlex.quote(done.url)} {case}",
            "note",
            "yellow",
        )
    skipped = done.num_skipped + len(plan.skipped)
    print_line(
        f"{done.url} {done.version}: {counted(done.num_cases, 'case')} of the folder,"
        f" {done.num_new} new{f', {skipped} skipped' if skipped else ''}{left_out}"
    )
    enough = len(simgen.open_dataset(done.url).cases("train")) > 1
    further = "import further cases, since a model needs 2 to train on"
    terminal.announce(f"next: {f'courant train {shlex.quote(done.url)}' if enough else further}")


def _print_plan(plan: FolderPlan) -> None:
    """Print the schema, the cases and their splits."""
    schema = plan.schema
    form = "transient" if schema.transient else "steady"
    print_line(f"{plan.url}: {form} cases in {schema.dimension} dimensions")
    for field in schema.fields:
        text = f"  {field.name} ({field.unit}): {', '.join(field.components)}"
        file = f", from {field.openfoam}" if field.openfoam else ""
        print_line(f"{text}{file}{', given' if field.role == 'given' else ''}")
    for kind, patches in plan.patches.items():
        print_line(f"  patches of kind {kind}: {', '.join(patches) or 'none'}")
    names, rows = [each.name for each in schema.parameters], []
    for case in plan.cases:
        times = "last"
        if case.times is not None:
            times = f"{counted(len(case.times), 'time')}, to {case.times[-1]:g} s"
        values = [f"{case.parameters[name]:g}" for name in names]
        there = "on record" if case.name in plan.on_record else ""
        split = plan.splits.get(case.name, "")
        rows.append([case.name, case.place, *values, times, split, there])
    titles = ("case", "place", *names, "times", "split", "")
    print_table(titles, rows)


@import_app.command("benchmark", epilog="Example: courant dataset import benchmark airfoil naca")
def import_benchmark(
    benchmark: Annotated[str, argument("Such as airfoil; docs/importing.md has all.")],
    folder: Annotated[Path, argument("Folder with its files, at any depth.")],
    validation: Annotated[int, option("Training cases that validate instead.", min=0)] = 0,
    other_files: Annotated[bool, option("Read other than the published files.")] = False,
    name: Annotated[str | None, option("Name of the dataset.")] = None,
    store: asks.Store = None,
) -> None:
    """Import a public benchmark's files as published: their splits, their resolution."""
    from simgen.imports import benchmarks, import_cases

    place = local_path(str(folder))
    schema, number, cases = benchmarks.read_published(benchmark, place, other_files=other_files)
    schema = replace(schema, family=name or schema.family)
    with progress_bar("importing cases") as on_progress:
        done = import_cases(
            f"{load_settings().store_url(store)}/{schema.family}",
            schema,
            benchmarks.hold_out(cases, validation, number),
            on_progress=lambda done, _: on_progress(done, number),
        )
    _print_done(done)


@dataset_app.command(
    "generate-benchmark",
    epilog="Example: courant dataset generate-benchmark darcy --train 100 --test 20",
)
def generate_benchmark_data(
    name: Annotated[str, argument("darcy, diffusion-sorption or elasticity.")],
    train: Annotated[int | None, option("Training cases; default: as published.", min=1)] = None,
    test: Annotated[int | None, option("Test cases; default: as many as published.", min=0)] = None,
    validation: Annotated[int | None, option("Default: a tenth of --train.", min=0)] = None,
    store: asks.Store = None,
) -> None:
    """Solve a public benchmark's equations here; larger numbers add cases to the same splits."""
    from simgen.imports.benchmarks import generate_benchmark, get_grid

    grid = get_grid(name)
    num_train = grid.num_train if train is None else train
    with progress_bar("solving cases") as on_progress:
        done = generate_benchmark(
            name,
            f"{load_settings().store_url(store)}/{grid.name}",
            num_train,
            grid.num_test if test is None else test,
            num_validation=-(-num_train // 10) if validation is None else validation,
            on_progress=on_progress,
        )
    _print_done(done)


def _print_done(done: Any) -> None:
    print_line(f"{done.url} {done.version}: {counted(done.num_cases, 'case')}, {done.num_new} new")


dataset_app.add_typer(import_app, name="import")
