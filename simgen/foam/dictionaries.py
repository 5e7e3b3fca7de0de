"""Read single entries of a case's dictionaries, such as a viscosity.

Of entries with the same name the last one counts, and dictionaries with the same name are one.
`#include` is followed, beside its own file; `$name` in a value is looked up from the inside out,
when it is read. What is computed, included from elsewhere, or decides which entries count (`#if…`,
`#remove`, `$name;` in place of entries) is not followed: entries beside the latter are in doubt.
Names in quotes are patterns: the last one that matches is found where no name is.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from simgen.errors import CaseError, InputError
from simgen.foam.reader import FoamReader, matches

_INCLUDE = re.compile(r'#(include|sinclude|includeIfPresent)\s+"([^"$<]+)"')
_MACRO = re.compile(r"\$([:!^]?)(?:\{([\w.:]+)\}|([\w.:]+))")
_COMMENT = re.compile(rb'("(?:\\.|[^"\\])*+(?:"|\Z))|//[^\n]*+|/\*(?>.*?(?:\*/|\Z))', re.DOTALL)
_DECIDES = ("#if", "#else", "#endif", "#remove", "#inputMode", "#overwrite", "#merge", "#protect")
#: Files that a dictionary may include, characters of a value, and characters by macros in all.
MOST_FILES, LONGEST, MOST_EXPANDED = 100, 100_000, 20_000_000
#: Bytes of a file, and numbers of an entry, that are searched for what differs between cases.
MOST_SEARCHED, MOST_NUMBERS = 200_000, 9
#: A field's values are no parameters; so much of them is kept, to be shown.
_SHOWN = 200
_MOST_LISTED = 20

_PLACE = re.compile(r"(?P<file>[^:]+):(?P<entries>[^\[\]]+)(?:\[(?P<index>\d+)\])?")
_DIMENSIONS = re.compile(r"\[[^\[\]]*+\]")
_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_NUMBER = re.compile(r"[-+]?(?:\d++\.?\d*+|\.\d++)(?:[eE][-+]?\d++)?")
_COUNTED = re.compile(r"(?:uniform\s+)?\d+\s*[({]")  # A list that begins with its number of values


@dataclass(frozen=True)
class DictionaryPlace:
    """The place of a number: `FILE:ENTRY/ENTRY…`, with `[INDEX]` behind it in a list of numbers.

    Such as `constant/transportProperties:nu` or `0/U:boundaryField/inlet/value[0]`.
    """

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


def read_entry(path: Path, entries: Sequence[str]) -> str | None:
    """Return the text of an entry without its semicolon, comments left out and macros replaced.

    None where the file has no such entry, or one that may not count; CaseError where the file, or
    one that it includes, cannot be read.
    """
    text, _, doubt = _look_up(path, entries)
    return None if doubt else text


def read_number(directory: Path, place: DictionaryPlace) -> float:
    """Return the number at a place of the case; CaseError names the place where there is none."""
    text, (begin, end) = number_at(directory, place)
    return float(text[begin:end])


def number_at(directory: Path, place: DictionaryPlace) -> tuple[str, tuple[int, int]]:
    """Return the text of an entry, and where in it the number of a place is.

    CaseError names the place where there is none.
    """
    path, name = directory / place.file, "/".join(place.entries)
    text, unread, doubt = _look_up(path, place.entries)
    if doubt:
        raise CaseError(
            f"{path} has {doubt}, which is not read: {name} may have another value; give the"
            " parameter in a table"
        )
    if text is None:
        unread = unread and f"; {unread} is not read"
        raise CaseError(f"{path}{_lacking(path, place.entries)}{unread}")
    where = f"{path}: {name} is '{' '.join(text.split())[:60]}'"
    found = _numbers_in(text)
    if found is None:
        raise CaseError(
            f"{where}, which is no number: a list of a field's values, or computed by OpenFOAM;"
            " give the parameter in a table"
        )
    index = 0 if place.index is None and len(found) == 1 else place.index
    if index is None or index >= len(found):
        many = "no number" if not found else f"{len(found)} numbers, [0] to [{len(found) - 1}]"
        raise CaseError(f"{where}, which holds {many}{f' and no [{index}]' * (index is not None)}")
    return text, found[index].span()


def _numbers_in(text: str) -> list[re.Match[str]] | None:
    """Return the numbers of an entry; None for a list of a field's values, and what is computed."""
    if len(text) > LONGEST or "#" in text or "nonuniform" in text or _COUNTED.match(text):
        return None
    # Dimensions are no values, and names may hold digits: `nu [0 2 -1 0 0 0 0] 1e-5`, `k0 3`.
    for ignored in (_DIMENSIONS, _WORD):
        text = ignored.sub(lambda of: " " * len(of[0]), text)
    return [*_NUMBER.finditer(text)]


def _lacking(path: Path, entries: Sequence[str]) -> str:
    """Describe the first entry that is missing on the way to one, and list what is there."""
    found, depth = _DictionaryFile(path).whole, 0
    while depth < len(entries) and isinstance(of := found.get(entries[depth]), _Dictionary):
        found, depth = of, depth + 1
    place, rest = "/".join(entries[:depth]), entries[depth:]
    missing = "/".join(rest if rest and found.get(rest[0]) else rest[:1]) or "number"
    names = ", ".join([name for name in found.entries if name != "FoamFile"][:_MOST_LISTED])
    return f"{place and ': '}{place} has no {missing}; there are {names or 'no entries'}"


def differing_numbers(directories: Sequence[Path]) -> dict[str, tuple[float, float]]:
    """Return the places of numbers that differ between cases, with the least and the largest.

    Those of the files in 0 and constant, and of dictionaries of meshes and of initial fields, that
    all cases have, as far as they can be read.
    """
    values: dict[str, list[float]] = {}
    for directory in directories:
        places = ("0/*", "constant/*", "system/*MeshDict", "system/setFieldsDict")
        for file in sorted(file for place in places for file in directory.glob(place)):
            if file.is_file() and file.stat().st_size <= MOST_SEARCHED:
                with contextlib.suppress(CaseError, OSError):
                    whole = _DictionaryFile(file).whole
                    for place, number in whole.numbers(f"{file.relative_to(directory)}:"):
                        values.setdefault(place, []).append(number)
    return {
        place: (min(found), max(found))
        for place, found in values.items()
        if len(found) == len(directories) and len(set(found)) > 1
    }


def _look_up(path: Path, entries: Sequence[str]) -> tuple[str | None, str, str]:
    """Read a file; return an entry's text, and of the directives on the way to it two.

    The last that was not followed, and the first by which the entry may not count; or nothing.
    """
    found: str | _Dictionary | None = _DictionaryFile(path).whole
    passed: list[str] = []
    for name in entries:
        passed += found.unread if isinstance(found, _Dictionary) else []
        found = found.get(name) if isinstance(found, _Dictionary) else None
    doubt = next((each for each in passed if each.startswith((*_DECIDES, "$"))), "")
    text = found if isinstance(found, str) else None
    if text is not None and not doubt and (macro := re.search(r"\$\S*", text)):
        raise CaseError(f"{path}: {'/'.join(entries)} refers to {macro[0]}, which is not there")
    return text, passed[-1] if passed else "", doubt


@dataclass
class _Dictionary:
    around: _Dictionary | None = None
    entries: dict[str, str | _Dictionary] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)  # Directives and macros that were not followed

    def get(self, name: str) -> str | _Dictionary | None:
        """Return an entry by its name, or else by the last pattern that matches it."""
        if name in self.entries or not (patterns := [each for each in self.entries if '"' in each]):
            return self.entries.get(name)
        fitting = (each for each in reversed(patterns) if matches(each.strip('"'), name))
        return self.entries.get(next(fitting, ""))

    def merge(self, other: _Dictionary) -> None:
        """Add the entries of another dictionary, whose values count."""
        for name, value in other.entries.items():
            before = self.entries.get(name)
            if isinstance(before, _Dictionary) and isinstance(value, _Dictionary):
                before.merge(value)
            else:
                self.entries[name] = value
        self.unread += other.unread

    def numbers(self, place: str) -> Iterator[tuple[str, float]]:
        """Yield the numbers of all entries that hold a few, with their places behind `place`."""
        for name, value in self.entries.items():
            if isinstance(value, _Dictionary):
                if name != "FoamFile":
                    yield from value.numbers(f"{place}{name}/")
            elif len(found := _numbers_in(value) or ()) <= MOST_NUMBERS:
                for index, number in enumerate(found):
                    yield f"{place}{name}{f'[{index}]' * (len(found) > 1)}", float(number[0])

    def value_of(self, macro: re.Match[str]) -> str | None:
        """Return what `$name` or `$name.name` stands for here; `$:name` is in the whole file."""
        scope: _Dictionary | None = self
        while scope is not None:
            found: str | _Dictionary | None = scope if not (macro[1] and scope.around) else None
            for name in (macro[2] or macro[3]).split("."):
                found = found.entries.get(name) if isinstance(found, _Dictionary) else None
            if isinstance(found, str):
                return found
            scope = scope.around
        return None


class _DictionaryFile:
    """A file with those that it includes."""

    def __init__(self, path: Path) -> None:
        self.path, self.num_files, self.num_expanded = path, 0, 0
        self.whole = _Dictionary()
        self._read(FoamReader(path), b"", self.whole)

    def _read(self, reader: FoamReader, closing: bytes, into: _Dictionary) -> None:
        """Read a dictionary's entries up to `closing`."""

        def follow(text: str) -> None:
            if included := _INCLUDE.match(text):
                file = reader.path.parent / included[2]
                if file.is_file():
                    self.num_files += 1
                    if self.num_files > MOST_FILES:
                        raise CaseError(f"{self.path} includes itself, or over {MOST_FILES} files")
                    self._read(FoamReader(file), b"", into)
                    return
                if included[1] != "include":
                    return
            into.unread.append(" ".join(text.split())[:_SHOWN])

        for bare in reader.names(closing, follow):
            name = f'"{bare}"' if reader.is_quoted else bare
            if reader.peek() != b"{":
                into.entries[name] = self._text(reader.skip_entry(), into)
                continue
            reader.expect(b"{")
            # Merged once it is whole: what it refers to is outside of it, or above in it.
            inside = _Dictionary(into)
            self._read(reader, b"}", inside)
            into.merge(_Dictionary(entries={name: inside}))

    def _text(self, value: bytes, scope: _Dictionary) -> str:
        if b"List<" in value[:_SHOWN]:
            return value[:_SHOWN].decode(errors="replace").strip()
        text = _COMMENT.sub(lambda found: found[1] or b" ", value).decode(errors="replace")

        def text_of(macro: re.Match[str]) -> str:
            found = scope.value_of(macro)
            self.num_expanded += len(found or "")
            if self.num_expanded > MOST_EXPANDED:
                raise CaseError(f"{self.path} brings in too much by macros")
            return macro[0] if found is None else found

        # At once: what is named again later has its new value from there on.
        text = text.strip().rstrip(";").strip()
        expanded = _MACRO.sub(text_of, text)
        if len(expanded) > max(LONGEST, len(text)):
            raise CaseError(f"{self.path} has a value of more than {LONGEST} characters")
        return expanded
