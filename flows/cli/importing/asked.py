"""The options that importing commands share, and how their texts are read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.settings import absolute, load_settings
from simgen.store.local_files import local_path

if TYPE_CHECKING:
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
