"""`courant dataset import`: cases that were solved elsewhere become a dataset version.

Heavy imports are inside the commands, so that `courant --help` answers at once.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.importing.asked import (
    DryRun,
    Folder,
    KeepRepeats,
    Licence,
    Name,
    Ranges,
    SourceName,
    SourceUrl,
    Table_,
    listed,
    named,
    pairs,
    read_asked,
)
from flows.cli.importing.telling import import_or_tell
from flows.cli.options import Store
from flows.settings import absolute, load_settings
from flows.terminal import counted, one_line_errors, progress_bar, say
from simgen.store.local_files import local_path

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
        say(f"{done.url} {done.version}: {counted(done.num_cases, 'case')}, {done.num_new} new")
