"""Read the CSV file that says what each case of a folder stands for.

A column `case` names the case by its place in the folder or by its name in the dataset; `split`, if
it is there, says train, validation or test; every other column is a parameter, with its unit in
brackets if it has one: `speed (m/s)`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from simgen.design_file import number_of, read_cells
from simgen.errors import InputError
from simgen.store.split import SPLITS

_COLUMN = re.compile(r"(?P<name>[^()\[\]]+?)\s*(?:[(\[](?P<unit>[^()\[\]]*)[)\]])?")


@dataclass(frozen=True)
class TableRow:
    """What the file says of one case."""

    parameters: Mapping[str, float]
    split: str | None


@dataclass(frozen=True)
class CaseTable:
    """The rows of a file by the case that each names."""

    path: Path
    rows: Mapping[str, TableRow]
    units: Mapping[str, str] = field(default_factory=dict)
    """The unit of each parameter; empty where the header has none"""

    @property
    def has_splits(self) -> bool:
        return any(row.split is not None for row in self.rows.values())

    def row_of(self, *names: str) -> TableRow:
        """Return the row of a case that has these names; InputError where it has none, or two."""
        found = [name for name in dict.fromkeys(names) if name in self.rows]
        if len(found) > 1:
            raise InputError(f"{self.path} has two rows for it: {' and '.join(found)}; keep one")
        if not found:
            raise InputError(f"{self.path} has no row for it: none names {' or '.join(names)}")
        return self.rows[found[0]]


def read_case_table(path: Path) -> CaseTable:
    """Read the file; InputError names the line that is wrong."""
    rows: dict[str, TableRow] = {}
    units: dict[str, str] = {}
    for line, cells in read_cells(path):
        where = f"design file {path}, line {line}"
        if "case" not in cells:
            raise InputError(
                f"design file {path} has no column 'case', which names each row's case"
            )
        case = cells.pop("case").strip("/").removeprefix("./")
        if not case or case in rows:
            raise InputError(f"{where}: {'there are two rows for ' + case if case else 'no case'}")
        split = cells.pop("split", None)
        if split is not None and split not in SPLITS:
            raise InputError(f"{where}: split = {split!r}, expected {', '.join(SPLITS)}")
        values: dict[str, float] = {}
        for column, cell in cells.items():
            name, unit = name_and_unit(column)
            if name in values:
                raise InputError(
                    f"design file {path} has two columns that are called {name} in a dataset, the"
                    f" second of them {column!r}; rename one"
                )
            values[name], units[name] = number_of(path, line, name, cell), unit
        rows[case] = TableRow(values, split)
    if not rows:
        raise InputError(f"design file {path} holds no row; expected a header case,NAME,…")
    return CaseTable(path, rows, units)


def name_and_unit(column: str) -> tuple[str, str]:
    """Parse `speed (m/s)`; InputError shows the form."""
    found = _COLUMN.fullmatch(column.strip())
    if found is None:
        raise InputError(f"{column!r} names no parameter; write NAME or NAME (UNIT)")
    return re.sub(r"\W+", "_", found["name"].strip()), (found["unit"] or "").strip()
