"""Define a panel of a report: title, figures with captions, tables, and their arrays."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from matplotlib.figure import Figure

from simgen.errors import InputError

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class PanelFigure:
    """A figure with its file name, what to see in it, and what it is drawn from."""

    name: str
    """Name of a file in the report's folder, such as parity.png"""
    figure: Figure
    caption: str
    """How to read it in detail"""
    look_for: str = ""
    """One sentence: what to see"""
    score: str = ""
    """The number that the picture stands for, such as `NMAE 0.12`"""
    arrays: tuple[str, ...] = ()
    """Those of the panel's arrays that it is drawn from; all of them where none is named"""

    def __post_init__(self) -> None:
        check_name(self.name)

    @property
    def alt(self) -> str:
        """Text shown in place of the picture."""
        return self.name.rpartition(".")[0].replace("_", " ")


@dataclass(frozen=True)
class Animation:
    """Pictures that are played one after the other in the page."""

    name: str
    frames: tuple[bytes, ...]
    """WebP files of one size"""
    labels: tuple[str, ...]
    """What is below each of them, such as its time"""
    caption: str
    look_for: str
    score: str
    arrays: tuple[str, ...] = ()
    """As those of a figure"""

    def __post_init__(self) -> None:
        check_name(self.name)
        if not self.frames or len(self.frames) != len(self.labels):
            raise ValueError(f"{len(self.frames)} frames with {len(self.labels)} labels")


@dataclass(frozen=True)
class Column:
    """The head of a table's column; numbers are right-aligned."""

    name: str
    is_number: bool = True


@dataclass(frozen=True)
class Cell:
    """A cell of a table, marked where it is in the model's favour or against it."""

    text: str
    mark: Literal["", "good", "bad"] = ""
    panel: str = ""
    """Name of a panel that the text leads to"""
    picture: bytes | None = None
    """A small PNG beside the text"""


@dataclass(frozen=True)
class Table:
    """A table with one cell for each column in every row."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    sortable: bool = False
    """Whether a click on a column's head sorts the rows by it"""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"a row of {len(row)} cells in a table of {len(self.columns)}")


@dataclass(frozen=True)
class Panel:
    """One part of the page. Its arrays are written beside it as `<name>.npz`."""

    name: str
    title: str
    figures: tuple[PanelFigure, ...] = ()
    tables: tuple[Table, ...] = ()
    note: str = ""
    code: str = ""
    """Lines to paste"""
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    animations: tuple[Animation, ...] = ()

    def __post_init__(self) -> None:
        for name in (self.name, *self.arrays):
            check_name(name)
        shown: tuple[PanelFigure | Animation, ...] = (*self.figures, *self.animations)
        for figure in shown:
            if unknown := set(figure.arrays) - set(self.arrays):
                raise ValueError(f"{figure.name} is drawn from {sorted(unknown)}, not in the panel")

    @property
    def data(self) -> str | None:
        """The file of the arrays; None where there are none."""
        return f"{self.name}.npz" if self.arrays else None


def check_name(name: str) -> None:
    """Raise InputError for a name that is no plain file name in the report's folder."""
    if not _PLAIN_NAME.fullmatch(name):
        raise InputError(
            f"{name!r} cannot name a file of the report: only letters, digits, '.', '_' and '-'"
        )
