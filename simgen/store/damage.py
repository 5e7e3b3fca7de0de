"""Telling damage (a flipped byte, a truncated or missing object) from everything else that a failed read may mean.

Chunks carry a CRC-32C that Zarr checks at each read. Icechunk's own objects (manifests, snapshots) are compressed without a
checksum: what cannot be decoded is caught here, what decodes to something else by the digests that `verify` recomputes.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import icechunk
import zarr.errors

from simgen.errors import StoreError

# Icechunk names the object in the context of its errors, the object store by its location.
_OBJECTS = (
    re.compile(r"/((?:chunks|manifests|snapshots|transactions)/[0-9A-Z]{20})\b"),
    re.compile(r"\b(chunk|manifest|snapshot)(?:_id)?[ =]([0-9A-Z]{20})\b"),
)
_PATHS = re.compile(r"(?:\b\w+:/|(?<!\w))/[^\s\"'`,)]+")
_MISSING = ("not found", "nosuchkey", "no such file", "404")
# A store out of reach, whatever else the message speaks of: it names the object that could not be asked for.
_UNREACHABLE = (
    "dispatch failure",
    "connection",
    "timed out",
    "timeout",
    "dns error",
    "service error",
    "access denied",
    "permission denied",
    "403",
)
# "I/O error" is Icechunk's word for bytes that cannot be decompressed or parsed, "object store error" the network's.
_UNREADABLE = ("i/o error", "flatbuffer", "deserialization", "cannot serialize", "invalid magic", "magic number",
               "icechunk object", "icechunk metadata", "spec version", "parsing", "range", "node not found", "chunk checksum")  # fmt: skip
_DECODING = ("checksum do not match", "decompress", "reshape", "buffer size", "blosc", "zstd", "decoding")


class DamagedError(ValueError):
    """What is stored is not what was written; the message says of what, in a few words."""


class DamageError(StoreError):
    """A damaged place of a version, in one line that names the dataset, the version, the place and the way out."""

    def __init__(self, what: str, url: str, version: str, place: str) -> None:
        super().__init__(
            f"{url} {version}: {place} is damaged ({what}); restore the store from a copy, and list all damage with: "
            f"courant dataset verify {url} --version {version}"
        )
        self.what, self._made_of = what, (what, url, version, place)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._made_of


def without_paths(message: str) -> str:
    """A message without the paths and addresses in it: what they are called says nothing of what went wrong."""
    return _PATHS.sub("", message)


def describe_damage(error: BaseException) -> str | None:
    """What is wrong, in a few words that name the object where that is known; None where `error` is no sign of damage."""
    if isinstance(error, DamagedError):
        return str(error)
    text = without_paths(str(error)).lower()
    if isinstance(error, icechunk.IcechunkError):
        if any(sign in text for sign in _UNREACHABLE) and not any(sign in text for sign in ("nosuchkey", "404")):
            return None
        named = damaged_object(error)
        if any(sign in text for sign in _MISSING):
            return f"{named or 'an object'} is missing"
        if any(sign in text for sign in _UNREADABLE):
            return f"{named or 'an object'} cannot be decoded"
        return None
    if isinstance(error, ValueError) and "checksum do not match" in text:
        return "the checksum of a chunk does not match"
    if isinstance(error, ValueError | RuntimeError | TypeError) and any(sign in text for sign in _DECODING):
        return "a chunk cannot be decoded"
    return None


def describe_metadata_damage(error: BaseException) -> str | None:
    """The same for a failed read of groups, attributes and records: what a version holds of these was valid when it was written."""
    what = describe_damage(error)
    if what is not None:
        return what
    # Zarr takes a snapshot that cannot be read for an empty store.
    if isinstance(error, KeyError | zarr.errors.NodeNotFoundError):
        return "a part of it cannot be found"
    return None if isinstance(error, icechunk.IcechunkError | OSError) else "its metadata cannot be decoded"


@contextlib.contextmanager
def panics_as_errors() -> Iterator[None]:
    """ValueError for a panic of Icechunk, such as at a node of no known kind; its own exception is meant to end the process."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"decoding failed: {error}") from error


def damaged_object(error: BaseException) -> str | None:
    """The object that an Icechunk error is about, such as manifests/SAW9GHJKSF34S2H1JV4G."""
    text = str(error)
    located = _OBJECTS[0].search(text)
    if located:
        return located.group(1)
    named = _OBJECTS[1].search(text)
    return f"{named.group(1)}s/{named.group(2)}" if named else None
