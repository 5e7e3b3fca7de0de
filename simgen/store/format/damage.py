"""Tell damage from every other cause of a failed read.

Damage is a flipped byte, or a truncated or missing object. Chunks carry a CRC-32C that Zarr checks
at each read. Icechunk's own objects (manifests, snapshots) are compressed without a checksum: what
cannot be decoded is recognised here; what decodes to something else is found by the digests that
`verify` recomputes.
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
# Ids of requests and objects, and lines of Icechunk's own source: these may contain any number.
_NUMBERED = re.compile(r"\b(?=\w*\d)\w{10,}\b|\.rs:\d+")
_MISSING = ("not found", "nosuchkey", "no such file", " 404 ")
# Signs of an unreachable store, whatever else the message says: it names the object that could not
# be requested.
_UNREACHABLE = (
    "dispatch failure",
    "connection",
    "timed out",
    "timeout",
    "dns error",
    "service error",
    "access denied",
    "permission denied",
    " 403 ",
)
# "I/O error" is Icechunk's word for bytes that cannot be decompressed or parsed; "object store
# error" is the network's.
_UNREADABLE = (
    "i/o error",
    "flatbuffer",
    "deserialization",
    "cannot serialize",
    "invalid magic",
    "magic number",
    "icechunk object",
    "icechunk metadata",
    "spec version",
    "parsing",
    "range",
    "node not found",
    "chunk checksum",
)
_DECODING = (
    "checksum do not match",
    "decompress",
    "reshape",
    "buffer size",
    "blosc",
    "zstd",
    "decoding",
)


class DamagedError(ValueError):
    """The stored data are not what was written; the message says which, in a few words."""


class DamageError(StoreError):
    """A damaged place of a version.

    One line names the dataset, the version, the place and the way out.
    """

    def __init__(self, what: str, url: str, version: str, place: str) -> None:
        super().__init__(
            f"{url} {version}: {place} is damaged ({what}); restore the store from a copy, and list"
            f" all damage with: courant dataset verify {url} --version {version}"
        )
        self.what, self._made_of = what, (what, url, version, place)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._made_of


def reason_in(message: str) -> str:
    """Return a message in lower case without paths, addresses, ids and source lines.

    Such names say nothing of the cause: a request's id may well contain "404". Every number is
    surrounded by spaces.
    """
    words = _NUMBERED.sub("", _PATHS.sub("", message)).lower()
    return re.sub(r"(\d+)", r" \1 ", words)


def describe_damage(error: BaseException) -> str | None:
    """Describe the damage in a few words; None if `error` is no sign of damage.

    The object is named where it is known.
    """
    if isinstance(error, DamagedError):
        return str(error)
    text = reason_in(str(error))
    if isinstance(error, icechunk.IcechunkError):
        if any(sign in text for sign in _UNREACHABLE) and not any(
            sign in text for sign in ("nosuchkey", " 404 ")
        ):
            return None
        named = damaged_object(error)
        if any(sign in text for sign in _MISSING):
            return f"{named or 'an object'} is missing"
        if any(sign in text for sign in _UNREADABLE):
            return f"{named or 'an object'} cannot be decoded"
        return None
    if isinstance(error, ValueError) and "checksum do not match" in text:
        return "the checksum of a chunk does not match"
    if isinstance(error, ValueError | RuntimeError | TypeError) and any(
        sign in text for sign in _DECODING
    ):
        return "a chunk cannot be decoded"
    return None


def describe_metadata_damage(error: BaseException) -> str | None:
    """Describe the damage behind a failed read of groups, attributes and records.

    All of these were valid when they were written.
    """
    what = describe_damage(error)
    if what is not None:
        return what
    # Zarr takes a snapshot that cannot be read for an empty store.
    if isinstance(error, KeyError | zarr.errors.NodeNotFoundError):
        return "a part of it cannot be found"
    # Not of the data: the store, the disk, and a machine without memory or a library.
    elsewhere = isinstance(error, icechunk.IcechunkError | OSError | MemoryError | ImportError)
    return None if elsewhere else "its metadata cannot be decoded"


@contextlib.contextmanager
def panics_as_errors() -> Iterator[None]:
    """Turn a panic of Icechunk into ValueError.

    It panics at a node of unknown kind, for one; its own exception is meant to end the process.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"decoding failed: {error}") from error


def damaged_object(error: BaseException) -> str | None:
    """Return the object that an Icechunk error is about, such as manifests/SAW9GHJKSF34S2H1JV4G."""
    text = str(error)
    located = _OBJECTS[0].search(text)
    if located:
        return located.group(1)
    named = _OBJECTS[1].search(text)
    return f"{named.group(1)}s/{named.group(2)}" if named else None
