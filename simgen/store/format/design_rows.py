"""Follow the design table of a dataset that grows: each look reads only the lines that are new.

A committer looks before every commit. If it read the whole table each time, the time of all commits
together would grow with the square of the number of cases.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import zarr

from simgen.store.format import schema_1
from simgen.store.format.records import parse_records, read_content
from simgen.store.format.tables import read_design


class DesignRows:
    """The rows of the design table as they were last seen."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, Any]] = {}
        self._end = 0
        """Bytes of the table that were read"""
        self._last = b""
        """The last line of them, which has to stand there still"""

    def seen_in(self, root: zarr.Group) -> Mapping[str, Mapping[str, Any]]:
        """Return every case's row, in the order of first appearance.

        The table is read anew where what was read before is no longer its beginning.
        """
        if schema_1.is_schema_1(root):
            return read_design(root)
        table = root["design"]
        assert isinstance(table, zarr.Group)
        content = read_content(table, self._end - len(self._last))
        if not content.startswith(self._last):
            self._rows, self._end, self._last = {}, 0, b""
            content = read_content(table)
        new = content[len(self._last) :]
        # Nothing is kept of lines of which one is damaged.
        rows = {each.pop("case"): each for each in parse_records(new, table)}
        self._rows.update(rows)
        self._end += len(new)
        self._last = content.splitlines(keepends=True)[-1] if content else b""
        return self._rows
