"""Hold what is asked of a folder's import, and what is known of each case before it is read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simgen.case import Field
from simgen.errors import CaseError, InputError
from simgen.imports.case_table import CaseTable, TableRow
from simgen.imports.source_case import case_name
from simgen.store.schema import Source

#: What reading somebody else's files may raise: a damaged mesh names corners and cells that it has
#: not, and a cut file ends anywhere.
FOREIGN = (
    *(CaseError, InputError, OSError, ValueError, LookupError, ArithmeticError),
    *(MemoryError, RecursionError),
)


@dataclass(frozen=True)
class Surveyed:
    """What is known of a case before its values are read."""

    place: str
    """Where it lies in the folder"""
    files: str
    """Changes when one of its files does"""
    fields: tuple[Field, ...]
    dimension: int
    times: tuple[float, ...] | None
    """None for a steady case"""
    kinds: frozenset[str] = frozenset()
    """Kinds of its patches"""
    parameters: Mapping[str, float] = field(default_factory=dict)
    split: str | None = None
    left_out: tuple[str, ...] = ()
    """What of the case is not imported, and why"""
    details: Any = None
    """What the reader needs besides"""

    @property
    def name(self) -> str:
        return case_name(self.place)


@dataclass(frozen=True)
class Asked:
    """What is asked of an import, whatever its files are."""

    folder: Path
    url: str
    name: str
    table: CaseTable | None = None
    units: Mapping[str, str] = field(default_factory=dict)
    """Units of parameters that are in no table"""
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Ranges of parameters; others are as wide as the cases"""
    distance_kinds: tuple[str, ...] | None = None
    """Kinds of patches that each case must have; None = those that most cases have"""
    source: Source | None = None
    keep_repeats: bool = False
    """Whether cases of equal parameters are taken"""

    def row_of(self, place: str) -> TableRow:
        """Return what the table says of a case; InputError where it has no row for it."""
        if self.table is None:
            return TableRow({}, None)
        return self.table.row_of(place, case_name(place))


def fingerprint(paths: Sequence[Path], settings: object) -> str:
    """Return a digest of these files' names, sizes and dates, and of what is asked of them."""
    digest = hashlib.blake2b(repr(settings).encode(), digest_size=16)
    for path in paths:
        state = path.stat()
        digest.update(f"{path.name}:{state.st_size}:{state.st_mtime_ns};".encode())
    return digest.hexdigest()
