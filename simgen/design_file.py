"""Read a CSV file as rows of numbers by column name; anything else in it is a one-line error."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path

from simgen.errors import InputError

#: Stricter than Python's `float`, which accepts what no CSV file means, such as 1_000.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def read_rows(path: str | Path) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield each row's line number and its values by column; InputError names file and line."""
    for line, cells in read_cells(path):
        yield line, {name: number_of(path, line, name, cell) for name, cell in cells.items()}


def read_cells(path: str | Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield each row's line number and its cells as text; InputError names file and line."""
    source = Path(path)
    rows = csv.reader(io.StringIO(_text(source), newline=""), strict=True)
    try:
        header = [name.strip() for name in next(rows, [])]
        _check_header(source, header)
        for cells in rows:
            if any(cell.strip() for cell in cells):
                yield rows.line_num, _row(source, rows.line_num, header, cells)
    except csv.Error as error:
        raise InputError(f"design file {source}, line {rows.line_num}: {error}") from error


def _text(source: Path) -> str:
    if not source.exists():
        raise InputError(f"design file {source} does not exist")
    if not source.is_file():
        raise InputError(f"design file {source} is no regular file; give a CSV file")
    try:
        content = source.read_bytes()
    except OSError as error:
        raise InputError(
            f"design file {source} cannot be read: {error.strerror}; check who may read it"
        ) from error
    try:
        text = content.decode("utf-8-sig")  # with the mark that spreadsheets put first, or without
    except UnicodeDecodeError as error:
        raise InputError(
            f"design file {source} is no UTF-8 text (byte {error.start}); save it as CSV in UTF-8"
        ) from error
    if "\0" in text:
        raise InputError(f"design file {source} is no text but binary; give a CSV file")
    return text


def _check_header(source: Path, header: list[str]) -> None:
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        named = ", ".join(repr(name) for name in twice)
        raise InputError(f"design file {source} has more than one column {named}; keep one")


def _row(source: Path, line: int, header: list[str], cells: list[str]) -> dict[str, str]:
    if len(cells) != len(header):
        raise InputError(
            f"design file {source}, line {line}: {len(cells)} values, its header has {len(header)}"
            " columns; write numbers with a point and separate them with commas"
        )
    return {name: cell.strip() for name, cell in zip(header, cells, strict=True)}


def number_of(source: str | Path, line: int, name: str, cell: str) -> float:
    """Return the number that a cell holds; InputError where it holds none."""
    if not _NUMBER.fullmatch(cell):
        raise InputError(f"design file {source}, line {line}: {name} = {cell!r} is no number")
    return float(cell)
