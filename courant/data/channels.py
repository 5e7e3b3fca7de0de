"""Select the components of stored fields that models read and predict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.case import Role
    from simgen.store.format.layout import Schema


@dataclass(frozen=True)
class Channel:
    """One modelled component of a stored field: `velocity.x`, with its column and unit."""

    field: str
    component: str
    column: int
    unit: str

    @property
    def name(self) -> str:
        return f"{self.field}.{self.component}"


def select_channels(
    schema: Schema, names: Sequence[str], role: Role = "solved"
) -> tuple[Channel, ...]:
    """Select the channels that names like "velocity" (every component) or "velocity.x" stand for.

    Only fields of the role count; InputError for other names.
    """
    available = {
        field.name: [
            Channel(field.name, component, column, field.unit)
            for column, component in enumerate(field.components)
        ]
        for field in schema.of_role(role)
    }
    by_name = {channel.name: channel for channels in available.values() for channel in channels}
    selected: list[Channel] = []
    for name in names:
        if name not in available and name not in by_name:
            other = {field.name for field in schema.fields} - set(available)
            wrong = f"is not {role}" if name.partition(".")[0] in other else "is not"
            raise InputError(
                f"field '{name}' {wrong} in dataset {schema.family}; choose of"
                f" {', '.join([*available, *by_name]) or 'none'}"
            )
        selected += available.get(name) or [by_name[name]]
    return tuple(selected)
