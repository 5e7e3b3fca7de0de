"""Look up single entries of a case's dictionaries, such as a viscosity or an inlet's velocity.

A place is `FILE:ENTRY/ENTRY…`, with `[INDEX]` behind it where the entry holds several numbers:
`constant/transportProperties:nu`, `0/U:boundaryField/inlet/value[0]`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from simgen.errors import CaseError, InputError
from simgen.imports.openfoam.scopes import LONGEST, Dictionary

_PLACE = re.compile(r"(?P<file>[^:]+):(?P<entries>[^\[\]]+)(?:\[(?P<index>\d+)\])?")
_DIMENSIONS = re.compile(r"\[[^\[\]]*+\]")
_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_NUMBER = re.compile(r"[-+]?(?:\d++\.?\d*+|\.\d++)(?:[eE][-+]?\d++)?")
_COUNTED = re.compile(r"(?:uniform\s+)?\d+\s*[({]")
"""A list that says how many values it has"""


@dataclass(frozen=True)
class DictionaryPlace:
    """Where a case's dictionaries have a number."""

    file: str
    entries: tuple[str, ...]
    index: int | None

    @classmethod
    def parse(cls, text: str) -> DictionaryPlace:
        """Parse FILE:ENTRY/ENTRY[INDEX]; InputError shows the form."""
        found = _PLACE.fullmatch(text.strip())
        file = Path(found["file"]) if found else Path("/")
        if found is None or file.is_absolute() or ".." in file.parts:
            raise InputError(
                f"'{text}' is no place in a case's dictionaries; expected FILE:ENTRY/ENTRY, such as"
                " constant/transportProperties:nu or 0/U:boundaryField/inlet/value[0]"
            )
        entries = tuple(each for each in found["entries"].split("/") if each)
        return cls(str(file), entries, None if found["index"] is None else int(found["index"]))

    def __str__(self) -> str:
        index = "" if self.index is None else f"[{self.index}]"
        return f"{self.file}:{'/'.join(self.entries)}{index}"


def read_entry(path: Path, entries: Sequence[str]) -> str | None:
    """Return the text of an entry without its semicolon, comments left out and macros replaced.

    None where the file has no such entry, or one that may not count; CaseError where the file
    cannot be read.
    """
    dictionary = Dictionary.read(path)
    return None if dictionary.doubt(entries) else dictionary.text(entries)


def read_number(directory: Path, place: DictionaryPlace) -> float:
    """Return the number at a place of the case; CaseError names the place where there is none."""
    path = directory / place.file
    dictionary = Dictionary.read(path)
    if doubt := dictionary.doubt(place.entries):
        raise CaseError(
            f"{path} has {doubt}, which is not read: {'/'.join(place.entries)} may have another"
            " value; give the parameter in a table"
        )
    text = dictionary.text(place.entries)
    if text is None:
        unread = dictionary.unread(place.entries)
        why = f", unless in {unread}, which is not read; give the parameter in a table"
        raise CaseError(f"{path} has no entry {'/'.join(place.entries)}{why if unread else ''}")
    if len(text) > LONGEST or "#" in text or "nonuniform" in text or _COUNTED.match(text):
        shown = " ".join(text.split())[:60]
        raise CaseError(
            f"{path}: {'/'.join(place.entries)} is '{shown}', which is no number: a list of a"
            " field's values, or computed by OpenFOAM; give the parameter in a table"
        )
    # Dimensions are no values, and names may hold digits: `nu [0 2 -1 0 0 0 0] 1e-5`, `k0 3`.
    found = _NUMBER.findall(_WORD.sub("", _DIMENSIONS.sub("", text)))
    if place.index is None and len(found) == 1:
        return float(found[0])
    if place.index is not None and place.index < len(found):
        return float(found[place.index])
    shown = " ".join(text.split())[:60]
    raise CaseError(
        f"{path}: {'/'.join(place.entries)} is '{shown}', which holds {len(found)} numbers;"
        " say which one with [0], [1], …"
    )
