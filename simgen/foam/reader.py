"""Walk through one OpenFOAM file: its words, its lists, and entries that nobody asked for.

A file is walked token by token, and a list's payload is skipped by its length, so that no byte
inside a binary list is ever mistaken for syntax. Entries may hold whatever OpenFOAM's grammar
allows: dictionaries in dictionaries, code between `#{` and `#}`, strings, comments. Directives
(`#include`) and macros (`$name`) are not followed: `unread` names the last one that was passed
over. Files may be packed (`U.gz`).
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from simgen.errors import CaseError

COMPONENTS = {"scalar": 1, "vector": 3, "sphericalTensor": 1, "symmTensor": 6, "tensor": 9}

_NUMBER = rb"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf)"
_NUMBERS = re.compile(_NUMBER)
_SPACE = re.compile(rb"(?:\s+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_HEADER = re.compile(_SPACE.pattern + rb"FoamFile\s*\{[^}]*\}", re.DOTALL)
_STRING = rb'"(?:\\.|[^"\\])*"'
_KEY = re.compile(_STRING + rb'|[^\s{};"]+', re.DOTALL)
_TOKEN = re.compile(_STRING + rb'|#\{.*?#\}|[{}()\[\];]|[^\s{}()\[\];"]+', re.DOTALL)
_DIRECTIVE = re.compile(_STRING + rb'|[^\n}"]')
_COUNT = re.compile(rb"\d+")
_LIST = re.compile(rb"List<(\w+)>")
_CLOSING = {b"{": b"}", b"(": b")", b"[": b"]"}
#: Directories above a file in which the case may lie: a time or region, polyMesh, constant.
_DEPTH = 4


def read_bytes(path: Path) -> bytes:
    """Read a file, unpacked where only `<path>.gz` is there; CaseError names the file."""
    packed = path.with_name(f"{path.name}.gz")
    try:
        if packed.exists() and not path.exists():
            return gzip.decompress(packed.read_bytes())
        return path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        check_not_decomposed(path)
        reason = getattr(error, "strerror", None) or error
        raise CaseError(f"{path} cannot be read: {reason}") from error


def check_not_decomposed(path: Path) -> None:
    """Raise CaseError where `path` is absent because its case is split into processor parts."""
    for directory in (path, *path.parents[:_DEPTH]):
        part = next(iter(sorted(directory.glob("processor*"))), None)
        if part is not None and part.is_dir():
            raise CaseError(
                f"{path} is absent: the case {directory} is decomposed ({part.name}); put it"
                " together first, with reconstructPar, or reconstructParMesh for its mesh"
            )


class FoamReader:
    """A position in a file, and what its header says of the lists behind it."""

    def __init__(self, path: Path, *, is_text: bool = False) -> None:
        self.path, self.data = path, read_bytes(path)
        found = _HEADER.match(self.data)
        header = found[0] if found else b""
        self.position = len(header)
        self.binary = not is_text and re.search(rb"format\s+binary", header) is not None
        self.label = np.dtype("<i8" if b"label=64" in header else "<i4")
        self.scalar = np.dtype("<f4" if b"scalar=32" in header else "<f8")
        self.unread = ""

    def error(self, problem: str) -> CaseError:
        return CaseError(f"{self.path} {problem} (byte {self.position})")

    def skip_space(self) -> None:
        self.position = _SPACE.match(self.data, self.position).end()  # type: ignore[union-attr]

    def peek(self) -> bytes:
        self.skip_space()
        return self.data[self.position : self.position + 1]

    def expect(self, symbol: bytes) -> None:
        if self.peek() != symbol:
            raise CaseError(f"{self.path}: expected '{symbol.decode()}' at byte {self.position}")
        self.position += 1

    def _next(self, pattern: re.Pattern[bytes]) -> bytes:
        self.skip_space()
        found = pattern.match(self.data, self.position)
        if not found:
            raise self.error("is cut short or not an OpenFOAM file")
        self.position = found.end()
        return found[0]

    def count(self) -> int:
        return int(self._next(_COUNT))

    def names(
        self, closing: bytes = b"", on_unread: Callable[[str], None] = lambda text: None
    ) -> Iterator[str]:
        """Yield the names of a dictionary's entries up to `closing`, or to the end of the file.

        Whoever takes a name reads or skips what follows it before the next. `on_unread` is given
        each directive and macro that stands where a name would: `#include "file"`, `$name`.
        """
        while (symbol := self.peek()) != closing:
            if not symbol:
                raise self.error("is cut short")
            if symbol == b";":  # OpenFOAM passes over those that end nothing
                self.position += 1
                continue
            begin = self.position
            key = self._next(_KEY).decode(errors="replace")
            if key.startswith("#"):
                self.unread = key
                while found := _DIRECTIVE.match(self.data, self.position):
                    self.position = found.end()
                on_unread(self.data[begin : self.position].decode(errors="replace").strip())
            elif key.startswith("$"):
                self.unread = key
                self._skip_macro()
                on_unread(self.data[begin : self.position].decode(errors="replace").rstrip("; \t"))
            else:
                yield key.strip('"')
        self.position += len(closing)

    def _skip_macro(self) -> None:
        """Pass over the rest of `$name;`, `${name};`, or `$name` on a line of its own.

        Where anything else follows, it stands for the name of an entry, which is passed over.
        """
        if self.data[self.position : self.position + 1] == b"{":
            end = self.data.find(b"}", self.position)
            self.position = len(self.data) if end < 0 else end + 1
        line = self.position
        symbol = self.peek()
        if symbol == b";":
            self.position += 1
        elif symbol not in (b"}", b"") and b"\n" not in self.data[line : self.position]:
            self.skip_entry()
        else:
            self.position = line

    def skip_entry(self) -> bytes:
        """Pass over an entry's value, a dictionary or all up to a semicolon; return its bytes."""
        is_dictionary = self.peek() == b"{"
        begin = self.position
        closings: list[bytes] = []
        while True:
            if not self.peek():
                raise self.error("is cut short: an entry has no end")
            token = self._next(_TOKEN)
            if token in _CLOSING:
                closings.append(_CLOSING[token])
            elif closings and token == closings[-1]:
                closings.pop()
                if is_dictionary and not closings:
                    break
            elif token in (b"}", b")", b"]"):
                raise self.error(f"is damaged: a '{token.decode()}' closes nothing")
            elif token == b";" and not closings:
                break
            elif found := _LIST.fullmatch(token):
                self._skip_list(found[1].decode())
        return self.data[begin : self.position]

    def _skip_list(self, kind: str) -> None:
        """Pass over the count and bytes of a binary list; text is left for the tokens."""
        found = _COUNT.match(self.data, self.position) if self.peek().isdigit() else None
        size = self.item_size(kind)
        if not (found and self.binary and size):
            return
        self.position = found.end()
        if self.peek() == b"(":
            self.position += 1 + int(found[0]) * size
            self.expect(b")")

    def item_size(self, kind: str) -> int:
        """Return the bytes of one item of a binary list; 0 for items written as text."""
        fixed = {"label": self.label.itemsize, "bool": 1}
        return fixed.get(kind, COMPONENTS.get(kind, 0) * self.scalar.itemsize)

    def list_head(self) -> tuple[str, int] | None:
        """Read the `List<type> count` at the cursor; None, and no move, for anything else."""
        self.skip_space()
        found = _LIST.match(self.data, self.position)
        if not found:
            return None
        self.position = found.end()
        return found[1].decode(), self.count()

    def payload(self, count: int, components: int, dtype: np.dtype) -> np.ndarray:
        """Read the parenthesised values of a list of `count` as (count, components)."""
        opening = self.peek()
        if count == 0 and opening != b"(":
            return np.empty((0, components))
        if opening == b"{":  # N{value}: a list of equal values
            end = self.data.index(b"}", self.position)
            value = numbers(self.data[self.position + 1 : end])
            self.position = end + 1
            return np.broadcast_to(value, (count, len(value)))
        if opening != b"(":
            raise CaseError(f"{self.path}: expected a list at byte {self.position}")
        self.position += 1
        values = self._binary(count * components, dtype) if self.binary else None
        if not self.binary:
            end = self._closing(components, count)
            values = numbers(self.data[self.position : end])
            self.position = end
        if values is None or values.size != count * components or self.peek() != b")":
            raise CaseError(
                f"{self.path} is cut short: a list of {count} values does not end where it should"
            )
        self.position += 1
        return values.reshape(count, components)

    def _binary(self, count: int, dtype: np.dtype) -> np.ndarray | None:
        begin, size = self.position, count * dtype.itemsize
        self.position += size
        if self.position > len(self.data):
            return None
        return np.frombuffer(self.data, dtype, count, begin)

    def _closing(self, components: int, count: int) -> int:
        """Find the parenthesis that closes an ascii list; vectors have parentheses of their own."""
        if components == 1:
            return self.data.find(b")", self.position)
        end = self.position
        for _ in range(count):
            end = self.data.find(b")", end) + 1
            if end == 0:
                raise CaseError(f"{self.path} is cut short: a list of {count} vectors has no end")
        return self.data.find(b")", end)


def numbers(text: bytes) -> np.ndarray:
    """Find all numbers in a piece of text."""
    return np.array([float(token) for token in _NUMBERS.findall(text)])
