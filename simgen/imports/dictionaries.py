"""Read single entries of a case's dictionaries as OpenFOAM does, such as a viscosity.

Of entries with the same name the last one counts, and dictionaries with the same name are one.
Names in quotes are patterns, for names that no entry has. `#include` is followed, beside its own
file; `$name;` brings in a dictionary, and `$name` in a value is looked up from the inside out, when
it is read. What is computed, included from elsewhere, or decides which entries count (`#if…`,
`#remove`, `#inputMode`) is not followed: entries beside the latter are in doubt. Macros, includes
and patterns of a stranger's file may multiply: more work than any case needs is an error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from simgen.errors import CaseError, InputError
from simgen.foam.reader import FoamReader, matches

_INCLUDE = re.compile(r'#(include|sinclude|includeIfPresent)\s+"([^"$<]+)"')
_MACRO = re.compile(r"\$([:!^]?)(?:\{([\w.:]+)\}|([\w.:]+))")
_COMMENT = re.compile(rb'("(?:\\.|[^"\\])*+(?:"|\Z))|//[^\n]*+|/\*(?>.*?(?:\*/|\Z))', re.DOTALL)
_DECIDES = ("#if", "#else", "#endif", "#remove", "#inputMode", "#overwrite", "#merge", "#protect")
#: How deep files may include files, and the characters of a value.
DEEPEST, LONGEST = 8, 100_000
#: Characters that replace macros, come from other files, or are compared with names and patterns;
#: each entry counts as many as `AN_ENTRY`.
MOST_WORK, AN_ENTRY = 20_000_000, 200
#: A field's values are no parameters; so much of them is kept, to be shown.
_SHOWN = 200

_PLACE = re.compile(r"(?P<file>[^:]+):(?P<entries>[^\[\]]+)(?:\[(?P<index>\d+)\])?")
_DIMENSIONS = re.compile(r"\[[^\[\]]*+\]")
_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_NUMBER = re.compile(r"[-+]?(?:\d++\.?\d*+|\.\d++)(?:[eE][-+]?\d++)?")
_COUNTED = re.compile(r"(?:uniform\s+)?\d+\s*[({]")
"""A list that begins with its number of values"""


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
    path, name = directory / place.file, "/".join(place.entries)
    text, unread, doubt = _look_up(path, place.entries)
    if doubt:
        raise CaseError(
            f"{path} has {doubt}, which is not read: {name} may have another value; give the"
            " parameter in a table"
        )
    if text is None:
        why = f", unless in {unread}, which is not read; give the parameter in a table"
        raise CaseError(f"{path} has no entry {name}{why if unread else ''}")
    where = f"{path}: {name} is '{' '.join(text.split())[:60]}'"
    if len(text) > LONGEST or "#" in text or "nonuniform" in text or _COUNTED.match(text):
        raise CaseError(
            f"{where}, which is no number: a list of a field's values, or computed by OpenFOAM;"
            " give the parameter in a table"
        )
    # Dimensions are no values, and names may hold digits: `nu [0 2 -1 0 0 0 0] 1e-5`, `k0 3`.
    found = _NUMBER.findall(_WORD.sub("", _DIMENSIONS.sub("", text)))
    index = 0 if place.index is None and len(found) == 1 else place.index
    if index is None or index >= len(found):
        raise CaseError(f"{where}, which holds {len(found)} numbers; choose one with [0], [1], …")
    return float(found[index])


def _look_up(path: Path, entries: Sequence[str]) -> tuple[str | None, str, str]:
    """Read a file; return an entry's text, and of the directives on the way to it two.

    The last that was not followed, and the first by which the entry may not count; or nothing.
    """
    scope = _Scope(path, [MOST_WORK])
    scope.read(FoamReader(path), b"", 0)
    passed, found = list(scope.unread), scope.find(entries[0])
    for name in entries[1:]:
        passed += found.unread if isinstance(found, _Scope) else []
        found = found.find(name) if isinstance(found, _Scope) else None
    # `$name;` brings in entries; with a value behind it, it is the name of one.
    decides = (each for each in passed if each.startswith((*_DECIDES, "$")))
    doubt = next((each for each in decides if not _MACRO.fullmatch(each)), "")
    text = found if isinstance(found, str) else None
    if text is not None and not doubt and (macro := re.search(r"\$\S*", text)):
        raise CaseError(f"{path}: {'/'.join(entries)} refers to {macro[0]}, which is not there")
    return text, passed[-1] if passed else "", doubt


@dataclass
class _Scope:
    """A dictionary, and the one around it."""

    path: Path
    work: list[int]
    """The characters that the file may still cost, for all its dictionaries"""
    around: _Scope | None = None
    entries: dict[str, str | _Scope] = field(default_factory=dict)
    patterns: dict[str, None] = field(default_factory=dict)
    """The names that were in quotes, in order"""
    unread: list[str] = field(default_factory=list)
    """Directives and macros that were not followed"""

    def spend(self, characters: int) -> None:
        self.work[0] -= characters
        if self.work[0] < 0:
            raise CaseError(
                f"{self.path} has too many entries, or brings in too much by macros, includes and"
                " patterns"
            )

    def find(self, name: str) -> str | _Scope | None:
        """Return the entry of this name, else that of the last pattern that matches it."""
        self.spend(len(name) + sum(map(len, self.patterns)))
        if name in self.entries:
            return self.entries[name]
        try:
            last = (each for each in reversed(self.patterns) if matches(each, name))
            return next((self.entries[each] for each in last), None)
        except CaseError as error:
            raise CaseError(f"{self.path}: {error}") from error

    def find_dotted(self, name: str) -> str | _Scope | None:
        """Find a name with dots, which may lead into dictionaries or be part of it."""
        if (found := self.find(name)) is not None:
            return found
        first, dot, rest = name.partition(".")
        inside = self.find(first) if dot else None
        return inside.find_dotted(rest) if isinstance(inside, _Scope) else None

    def expand(self, macro: re.Match[str]) -> str | _Scope | None:
        """Find a macro's entry: `$name` is searched from the inside out, `$:name` outside."""
        scope: _Scope | None = self
        found = None
        while scope is not None and found is None:
            if not (macro[1] and scope.around):
                found = scope.find_dotted(macro[2] or macro[3])
            scope = scope.around
        return found

    def put(self, name: str, value: str | _Scope, is_pattern: bool) -> None:
        """Add an entry as the last of its name; a dictionary is merged with the one before."""
        self.spend(AN_ENTRY)
        before = self.entries.get(name)
        if isinstance(value, _Scope):
            if isinstance(before, _Scope):
                before.put_all(value)
                return
            copied = _Scope(self.path, self.work, self)
            copied.put_all(value)
            value = copied
        self.entries[name] = value
        self.patterns.pop(name, None)  # the last of several counts
        if is_pattern:
            self.patterns[name] = None

    def put_all(self, other: _Scope) -> None:
        """Add all entries of another dictionary, and its unread directives."""
        for name, value in list(other.entries.items()):
            self.put(name, value, name in other.patterns)
        self.spend(AN_ENTRY * len(other.unread))
        self.unread += other.unread

    def read(self, reader: FoamReader, closing: bytes, depth: int) -> None:
        """Read a dictionary's entries up to `closing`."""
        for name in reader.names(closing, lambda text: self._follow(reader, text, depth)):
            is_pattern = reader.is_quoted
            if reader.peek() != b"{":
                self.put(name, self._value(reader.skip_entry()), is_pattern)
                continue
            reader.expect(b"{")
            # Added once it is whole: what it refers to is outside of it, or above in it.
            inside = _Scope(reader.path, self.work, self)
            inside.read(reader, b"}", depth)
            self.put(name, inside, is_pattern)

    def _value(self, value: bytes) -> str:
        if b"List<" in value[:_SHOWN]:
            return value[:_SHOWN].decode(errors="replace").strip()
        text = _COMMENT.sub(lambda found: found[1] or b" ", value).decode(errors="replace")

        def text_of(macro: re.Match[str]) -> str:
            found = self.expand(macro)
            if not isinstance(found, str):
                return macro[0]
            self.spend(len(found))
            return found

        # At once: what is named again later has its new value from there on.
        text = text.strip().rstrip(";").strip()
        expanded = _MACRO.sub(text_of, text)
        if len(expanded) > max(LONGEST, len(text)):
            raise CaseError(f"{self.path} has a value of more than {LONGEST} characters")
        return expanded

    def _follow(self, reader: FoamReader, text: str, depth: int) -> None:
        """Follow a directive, or a macro in place of entries, as far as that is possible here."""
        if included := _INCLUDE.match(text):
            file = reader.path.parent / included[2]
            if depth >= DEEPEST:
                raise CaseError(f"{reader.path} includes itself")
            if file.is_file():
                self.spend(AN_ENTRY + file.stat().st_size)
                self.read(FoamReader(file), b"", depth + 1)
                return
            if included[1] != "include":
                return
        if macro := _MACRO.fullmatch(text):
            found = self.expand(macro)
            if isinstance(found, _Scope):
                self.put_all(found)
                return
        self.unread.append(" ".join(text.split())[:_SHOWN])
