"""`courant families`: show each family's parameters, presets and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column, Table

from flows.terminal import one_line_errors, print_line, screen

if TYPE_CHECKING:
    from simgen.case import CaseFamily

families_app = typer.Typer()


@families_app.command(epilog="Example: courant families cylinder-flow")
def families(
    name: Annotated[
        str | None, typer.Argument(help="A family, for its parameters, presets and settings.")
    ] = None,
) -> None:
    """List the case families; or show one with its parameters, presets and settings."""
    with one_line_errors():
        from simgen.cases import FAMILIES, get_family

        if name is None:
            table = Table("family", "", "solver", "presets", box=None, header_style="bold")
            for family in FAMILIES.values():
                table.add_row(
                    family.name, family.title, family.application, ", ".join(family.presets)
                )
            screen.print(table)
            return
        _show(get_family(name))


def _show(family: CaseFamily) -> None:
    kind = "transient" if family.transient else "steady"
    screen.print(
        f"[bold]{family.name}[/bold]  {family.title}; {kind}, {family.application},"
        f" revision {family.revision}\n",
        highlight=False,
    )
    parameters = _table(Column("parameter", style="bold"), "unit", "range", "")
    for parameter in family.design_space.parameters:
        parameters.add_row(
            parameter.name,
            parameter.unit,
            f"{parameter.low:g} to {parameter.high:g}",
            parameter.description,
        )
    screen.print(parameters, "")
    settings = _table(Column("setting", style="bold"), "unit", "range", *family.presets, "")
    for setting in family.settings_space.parameters:
        values = [f"{preset[setting.name]:g}" for preset in family.presets.values()]
        settings.add_row(
            setting.name,
            setting.unit,
            f"{setting.low:g} to {setting.high:g}",
            *values,
            setting.description,
        )
    screen.print(settings, "")
    fields = _table(Column("field", style="bold"), "unit", "components")
    for field in family.fields:
        fields.add_row(field.name, field.unit, ", ".join(field.components))
    screen.print(fields, "")
    header = ",".join(family.design_space.names)
    print_line(f"First line of a file for --designs: {header}")


def _table(*columns: Column | str) -> Table:
    return Table(*columns, box=None, header_style="bold")
