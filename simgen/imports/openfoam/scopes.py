"""Read a dictionary of OpenFOAM as OpenFOAM does, so that an entry has the value that was solved.

Of entries with the same name the last one counts, and dictionaries with the same name are one.
Names in quotes are patterns, for what no other name stands for. `#include` is followed, beside its
own file; `$name;` brings in a dictionary, and `$name` in a value is looked up from the inside out,
when it is read. What is computed, or included from elsewhere, is not followed. Directives that
decide which entries count (`#if…`, `#remove`, `#inputMode`) are not either: what stands beside them
is in doubt. What a stranger's file can make of itself, by macros, includes and patterns, is
counted, and is an error where it is more than any case needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from simgen.errors import CaseError
from simgen.foam.patterns import matches
from simgen.foam.reader import FoamReader

_INCLUDE = re.compile(r'#(include|sinclude|includeIfPresent)\s+"([^"$<]+)"')
_MACRO = re.compile(r"\$([:!^]?)(?:\{([\w.:]+)\}|([\w.:]+))")
_COMMENT = re.compile(rb'("(?:\\.|[^"\\])*+(?:"|\Z))|//[^\n]*+|/\*(?>.*?(?:\*/|\Z))', re.DOTALL)
_DECIDES = ("#if", "#else", "#endif", "#remove", "#inputMode", "#overwrite", "#merge", "#protect")
#: How deep files may include files.
DEEPEST = 8
#: Characters of a value.
LONGEST = 100_000
#: Of a file with all that it brings in: entries, characters that stand for macros or come from
#: other files, and characters of names and patterns that are compared.
MOST_ENTRIES, MOST_BROUGHT_IN, MOST_LOOK_UPS = 100_000, 10_000_000, 10_000_000
#: A field's values are no parameters; so much of them is kept, to be shown.
_SHOWN = 200


@dataclass
class _Scope:
    """A dictionary, and the one around it."""

    path: Path
    around: _Scope | None = None
    entries: dict[str, str | _Scope] = field(default_factory=dict)
    patterns: dict[str, None] = field(default_factory=dict)
    """The names that stood in quotes, in order"""
    unread: list[str] = field(default_factory=list)
    """What was passed over on the way"""

    def find(self, name: str, budget: _Budget) -> str | _Scope | None:
        """Return what a name stands for here: its own entry, else that of the last pattern."""
        budget.look_up(self.path, len(name) + sum(map(len, self.patterns)))
        if name in self.entries:
            return self.entries[name]
        try:
            last = (each for each in reversed(self.patterns) if matches(each, name))
            return next((self.entries[each] for each in last), None)
        except CaseError as error:
            raise CaseError(f"{self.path}: {error}") from error

    def outwards(self) -> Iterator[_Scope]:
        scope: _Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.around

    def put(self, name: str, value: str | _Scope, is_pattern: bool, budget: _Budget) -> None:
        """Add an entry as the last of its name; a dictionary is merged with the one before."""
        budget.enter(self.path)
        before = self.entries.get(name)
        if isinstance(value, _Scope) and isinstance(before, _Scope):
            before.put_all(value, budget)
            return
        if isinstance(value, _Scope):
            copied = _Scope(self.path, self)
            copied.put_all(value, budget)
            value = copied
        self.entries[name] = value
        self.patterns.pop(name, None)  # the last of several counts
        if is_pattern:
            self.patterns[name] = None

    def put_all(self, other: _Scope, budget: _Budget) -> None:
        """Add all entries of another dictionary, and what was passed over in it."""
        for name, value in list(other.entries.items()):
            self.put(name, value, name in other.patterns, budget)
        budget.enter(self.path, len(other.unread))
        self.unread += other.unread


@dataclass
class _Budget:
    """Count down what a file may still make of itself; CaseError where that is too much."""

    entries: int = MOST_ENTRIES
    characters: int = MOST_BROUGHT_IN
    look_ups: int = MOST_LOOK_UPS

    def enter(self, path: Path, number: int = 1) -> None:
        self.entries -= number
        if self.entries < 0:
            raise CaseError(f"{path} has more than {MOST_ENTRIES} entries")

    def bring_in(self, path: Path, characters: int) -> None:
        self.characters -= characters
        if self.characters < 0:
            raise CaseError(
                f"{path} brings in more than {MOST_BROUGHT_IN} characters by macros and includes"
            )

    def look_up(self, path: Path, characters: int) -> None:
        self.look_ups -= characters
        if self.look_ups < 0:
            raise CaseError(f"{path} looks up too many macros in too many entries")


@dataclass(frozen=True)
class Dictionary:
    """A file of entries and dictionaries."""

    path: Path
    root: _Scope

    @classmethod
    def read(cls, path: Path) -> Dictionary:
        """Read a file; CaseError where it, or one that it includes, is damaged."""
        root = _Scope(path)
        _read_into(root, FoamReader(path), b"", 0, _Budget())
        return cls(path, root)

    def text(self, entries: Sequence[str]) -> str | None:
        """Return an entry's text, its macros replaced; None where there is none.

        CaseError where a macro stands for nothing that was read before it.
        """
        *_, found = self._way(entries)
        if not isinstance(found, str):
            return None
        if "$" in found and (macro := re.search(r"\$\S*", found)):
            raise CaseError(
                f"{self.path}: {'/'.join(entries)} refers to {macro[0]}, which is not there"
            )
        return found

    def unread(self, entries: Sequence[str]) -> str:
        """Return the last directive, on the way to an entry, that was not followed; or nothing."""
        return next(iter(reversed(self._passed(entries))), "")

    def doubt(self, entries: Sequence[str]) -> str:
        """Return a directive on the way to an entry by which it may not count; or nothing."""
        # A macro that no name follows stands for the name of an entry.
        decides = (each for each in self._passed(entries) if each.startswith((*_DECIDES, "$")))
        return next((each for each in decides if not _MACRO.fullmatch(each)), "")

    def _passed(self, entries: Sequence[str]) -> list[str]:
        scopes = (each for each in self._way(entries) if isinstance(each, _Scope))
        return [text for scope in scopes for text in scope.unread]

    def _way(self, entries: Sequence[str]) -> Iterator[str | _Scope | None]:
        found: str | _Scope | None = self.root
        yield found
        budget = _Budget()
        for name in entries:
            found = found.find(name, budget) if isinstance(found, _Scope) else None
            yield found


def _looked_up(scope: _Scope, macro: re.Match[str], budget: _Budget) -> str | _Scope | None:
    """Return what a macro stands for: `$name` is searched from the inside out, `$:name` outside."""
    scopes = list(scope.outwards())
    name = macro[2] or macro[3]
    return next(
        (
            found
            for each in (scopes[-1:] if macro[1] else scopes)
            if (found := _below(each, name, budget)) is not None
        ),
        None,
    )


def _below(scope: _Scope, name: str, budget: _Budget) -> str | _Scope | None:
    """Look up a name with dots, each of which may lead into a dictionary or be part of a name."""
    if (found := scope.find(name, budget)) is not None:
        return found
    for at in (match.start() for match in re.finditer(r"[.:]", name)):
        inside = scope.find(name[:at], budget)
        if isinstance(inside, _Scope):
            found = _below(inside, name[at + 1 :], budget)
            if found is not None:
                return found
    return None


def _read_into(
    scope: _Scope, reader: FoamReader, closing: bytes, depth: int, budget: _Budget
) -> None:
    for name in reader.names(
        closing, lambda text: _take_unread(scope, reader, text, depth, budget)
    ):
        is_pattern = reader.is_quoted
        if reader.peek() != b"{":
            scope.put(name, _value(reader.skip_entry(), scope, budget), is_pattern, budget)
            continue
        reader.expect(b"{")
        # Known to others once it is whole: what it refers to is outside of it, or above in it.
        inside = _Scope(reader.path, scope)
        _read_into(inside, reader, b"}", depth, budget)
        scope.put(name, inside, is_pattern, budget)


def _value(value: bytes, scope: _Scope, budget: _Budget) -> str:
    if b"List<" in value[:_SHOWN]:
        return value[:_SHOWN].decode(errors="replace").strip()
    text = _COMMENT.sub(lambda found: found[1] or b" ", value).decode(errors="replace")
    text = text.strip().rstrip(";").strip()
    if "$" not in text:
        return text
    # At once: what is named again later has its new value from there on.
    text = _MACRO.sub(lambda macro: _text_of(macro, scope, budget), text)
    if len(text) > LONGEST:
        raise CaseError(f"{scope.path} has a value of more than {LONGEST} characters")
    return text


def _text_of(macro: re.Match[str], scope: _Scope, budget: _Budget) -> str:
    found = _looked_up(scope, macro, budget)
    if not isinstance(found, str):
        return macro[0]
    budget.bring_in(scope.path, len(found))
    return found


def _take_unread(scope: _Scope, reader: FoamReader, text: str, depth: int, budget: _Budget) -> None:
    """Follow a directive or a macro that stands for entries, as far as that is possible here."""
    if included := _INCLUDE.match(text):
        file = reader.path.parent / included[2]
        if depth >= DEEPEST:
            raise CaseError(f"{reader.path} includes itself")
        if file.is_file():
            budget.enter(reader.path)
            budget.bring_in(reader.path, file.stat().st_size)
            _read_into(scope, FoamReader(file), b"", depth + 1, budget)
            return
        if included[1] != "include":
            return
    if macro := _MACRO.fullmatch(text):
        found = _looked_up(scope, macro, budget)
        if isinstance(found, _Scope):
            scope.put_all(found, budget)
            return
    scope.unread.append(" ".join(text.split())[:_SHOWN])
