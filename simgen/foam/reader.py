"""Walk through one OpenFOAM file, packed (`U.gz`) or not, token by token.

A list's payload is skipped by its length, so that no byte inside a binary list is mistaken for
syntax. Directives (`#include`) and macros (`$name`) are not followed: `unread` is the last one.
Files come from strangers: every pattern here matches in linear time, as it gives nothing back, and
no array is made before its size has been compared with that of the file.
"""

import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from simgen.errors import CaseError


def matches(pattern: str, name: str) -> bool:
    """Return whether a pattern, without its quotes, matches all of a name; CaseError if invalid."""
    import re2  # families without patterns are used on machines that lack it

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.fullmatch(pattern, name, options=options) is not None
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
        raise CaseError(f'the pattern "{pattern[:60]}" cannot be used: {reason[:60]}') from error


COMPONENTS = {"scalar": 1, "vector": 3, "sphericalTensor": 1, "symmTensor": 6, "tensor": 9}

_SPACE = re.compile(rb"(?:\s++|//[^\n]*+|/\*(?>.*?(?:\*/|\Z)))*+", re.DOTALL)
_STRING = rb'"(?:\\.|[^"\\])*+"'
_KEY = re.compile(_STRING + rb'|[^\s{};"]++', re.DOTALL)
_TOKEN = re.compile(_STRING + rb'|#\{(?>.*?(?:#\}|\Z))|[{}()\[\];]|[^\s{}()\[\];"]++', re.DOTALL)
#: A directive to the end of its line; a macro to a semicolon or the end of its line.
_PASSED = re.compile(
    rb"#(?:" + _STRING + rb'|[^\n}"])*+|\$(?:\{[^}]*+\}?)?[^\n;{}/]*+;?', re.DOTALL
)
#: A text's list of numbers, which holds nothing that ends it early.
_TEXT_LIST = re.compile(rb"\s*+nonuniform\s++List<\w+>\s*+\d*+\s*+\([^;/{}\"$#]*+;")
_COUNT = re.compile(rb"\d{1,19}+")
_LIST = re.compile(rb"List<(\w+)>")
_CLOSING = {b"{": b"}", b"(": b")", b"[": b"]"}
_TO_SPACES = bytes.maketrans(b"()", b"  ")
_ARCH = ("LSB", "MSB", "label=32", "label=64", "scalar=32", "scalar=64")
#: A packed file may hold so many bytes, or so many times its own size if that is more.
MOST_UNPACKED, MOST_RATIO = 2**28, 100
MOST_NAMED = 20  # Files beside one that is missing


def read_bytes(path: Path) -> bytes:
    """Read a file, unpacked where only `<path>.gz` is there; CaseError names the file."""
    packed = path.with_name(f"{path.name}.gz")
    try:
        if packed.exists() and not path.exists():
            most = max(MOST_UNPACKED, MOST_RATIO * packed.stat().st_size)
            with gzip.open(packed) as file:
                content = file.read(most + 1)
            if len(content) > most:
                raise CaseError(
                    f"{packed} unpacks to more than {most // 2**20} MiB, {MOST_RATIO} times its own"
                    " size: if that is right, unpack it with gunzip"
                )
            return content
        return path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        if isinstance(error, FileNotFoundError) and path.parent.is_dir():
            names = sorted(each.name for each in path.parent.iterdir())[:MOST_NAMED]
            reason = f"{reason}; {path.parent.name} has {', '.join(names) or 'no file'}"
        raise CaseError(f"{path} cannot be read: {reason}") from error


class FoamReader:
    """A position in a file, and the format of lists that its header names."""

    def __init__(self, path: Path, *, is_text: bool = False) -> None:
        self.path, self.data, self.position = path, read_bytes(path), 0
        self.header = {"class": "", "format": "ascii", "arch": ""}
        self.binary, self.unread = False, ""
        self.is_quoted = False
        """Whether the name that was last taken stood in quotes, and so is a pattern"""
        self.label, self.scalar = np.dtype("<i4"), np.dtype("<f8")
        self.skip_space()
        if not self.data.startswith(b"FoamFile", self.position):
            return
        self.position += len(b"FoamFile")
        self.expect(b"{")
        self.header |= {
            name: self.skip_entry().rstrip(b";").decode(errors="replace").strip(' \t\n"')
            for name in self.names(b"}")
        }
        form, arch = self.header["format"], self.header["arch"]
        if form not in ("ascii", "binary"):
            raise self.error(f"has the format '{form[:60]}', expected ascii or binary")
        self.binary = form == "binary" and not is_text
        if self.binary and (unknown := set(filter(None, arch.split(";"))) - set(_ARCH)):
            raise self.error(
                f"has the arch '{arch[:60]}', where '{min(unknown)[:60]}' is not known; write it as"
                " ascii, with foamFormatConvert"
            )
        order = ">" if "MSB" in arch else "<"
        self.label = np.dtype(f"{order}i{8 if 'label=64' in arch else 4}")
        self.scalar = np.dtype(f"{order}f{4 if 'scalar=32' in arch else 8}")

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

        The caller reads or skips what follows a name before the next. `on_unread` is called with
        each directive and macro in place of a name: `#include "file"`, `$name`.
        """
        while (symbol := self.peek()) != closing:
            if not symbol:
                raise self.error("is cut short")
            if symbol == b";":  # OpenFOAM passes over those that end nothing
                self.position += 1
                continue
            if symbol in (b"#", b"$"):
                text = self._next(_PASSED).decode(errors="replace").rstrip("; \t\r")
                self.unread = text
                on_unread(text)
                continue
            key = self._next(_KEY).decode(errors="replace")
            self.is_quoted = key.startswith('"')
            yield key.strip('"')
        self.position += len(closing)

    def skip_entry(self) -> bytes:
        """Pass over an entry's value, a dictionary or all up to a semicolon; return its bytes."""
        is_dictionary = self.peek() == b"{"
        begin = self.position
        if not self.binary and (listed := _TEXT_LIST.match(self.data, begin)):
            self.position = listed.end()
            return listed[0]
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
        fixed = {"label": self.label.itemsize, "bool": 1}
        size = fixed.get(kind, COMPONENTS.get(kind, 0) * self.scalar.itemsize)
        found = _COUNT.match(self.data, self.position) if self.peek().isdigit() else None
        if not (found and self.binary and size):
            return
        self.position = found.end()
        if self.peek() == b"(":
            self.position += 1 + int(found[0]) * size
            self.expect(b")")

    def list_head(self) -> tuple[str, int] | None:
        """Read the `List<type> count` at the cursor; None, and no move, for anything else."""
        self.skip_space()
        if not (found := _LIST.match(self.data, self.position)):
            return None
        self.position = found.end()
        return found[1].decode(), self.count()

    def payload(self, count: int, components: int, dtype: np.dtype) -> np.ndarray:
        """Read the parenthesised values of a list of `count` as (count, components)."""
        opening = self.peek()
        if count == 0 and opening != b"(":
            return np.empty((0, components))
        if opening == b"{":  # N{value}: a list of equal values
            end = max(self.position, self.data.find(b"}", self.position))
            values = self._numbers(self.data[self.position + 1 : end], components)
            self.position = end + 1
            return np.broadcast_to(values, (count, components))
        self.expect(b"(")
        if self.binary:
            begin, size = self.position, count * components * dtype.itemsize
            if begin + size > len(self.data):
                raise self._cut_short(count * components)
            self.position += size
            values = np.frombuffer(self.data, dtype, count * components, begin)
            values = values.astype(dtype.newbyteorder("="), copy=False)
        else:
            # The parenthesis that closes the list: vectors have parentheses of their own.
            end = self.position
            for _ in range(count if components > 1 else 0):
                end = self.data.find(b")", end) + 1
                if end == 0:
                    break
            end = self.data.find(b")", end)
            if end < self.position:
                raise self._cut_short(count * components)
            values = self._numbers(self.data[self.position : end], count * components)
            self.position = end
        if self.peek() != b")":
            raise self._cut_short(count * components)
        self.position += 1
        return values.reshape(count, components)

    def _numbers(self, text: bytes, count: int) -> np.ndarray:
        try:
            values = numbers(text)
        except ValueError as error:
            raise self.error("holds a list with something else than numbers in it") from error
        if len(values) != count:
            raise self._cut_short(count)
        return values

    def _cut_short(self, count: int) -> CaseError:
        return self.error(f"is cut short: a list of {count} numbers does not end where it should")


def numbers(text: bytes) -> np.ndarray:
    """Parse numbers in parentheses or none; ValueError where anything else is between them."""
    text = text.translate(_TO_SPACES).strip()  # of blanks alone numpy makes a -1
    return np.fromstring(text, sep=" ") if text else np.empty(0)
