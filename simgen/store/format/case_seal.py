"""Seal a case: record how each of its objects ended when written, and check every read.

Icechunk's snapshots and manifests carry no checksum. A flipped bit there can lose a chunk, which
Zarr then fills with zeros, or return another chunk or another array's metadata, both valid in
themselves. The seal names every object of a case by its key and records:

- for a chunk its last four bytes, which are the CRC-32C of everything before them. Zarr checks the
  chunk against them; the seal checks them against the place. Whole and partial reads alike cost one
  comparison.
- for a metadata document (shape, type, codecs, fill value, attributes) its digest.

A seal is a JSON line in `seals/records`; the design record of the case has its place and its
digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import WrapperStore

from simgen.store.format.damage import DamagedError
from simgen.store.format.digest import DIGEST_BYTES

METADATA = "zarr.json"
CRC_BYTES = 4


@dataclass(frozen=True)
class CaseSeal:
    """The state of a case when it was written."""

    objects: Mapping[str, str]
    """By key within the case, such as velocity/c/0/0/0: CRC-32C of a chunk, digest of a metadata
    document
    """
    details: str
    """Digest of the case's line of provenance/records"""

    def check(self, key: str, content: Buffer | None) -> None:
        """Raise DamagedError if the object under a key is not the one that was written."""
        expected = self.objects.get(key)
        if content is None and expected is None:
            return
        what = (
            "its metadata" if key.endswith(METADATA) else f"chunk {key.partition('c/')[2] or key}"
        )
        if content is None:
            raise DamagedError(f"{what} is missing")
        if expected is None or object_word(key, content) != expected:
            raise DamagedError(f"{what} is not what was written")


def object_word(key: str, content: Buffer) -> str:
    """Return what a seal records of an object."""
    if key.endswith(METADATA):
        return hashlib.blake2b(content.to_bytes(), digest_size=DIGEST_BYTES).hexdigest()
    return content[max(0, len(content) - CRC_BYTES) :].to_bytes().hex()


class SealingStore(WrapperStore[Store]):
    """Note every object that is written through this store."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.words: dict[str, str] = {}

    def objects_of(self, case: str) -> dict[str, str]:
        """Return what a case's seal records of its objects."""
        prefix = f"cases/{case}/"
        return {
            key.removeprefix(prefix): word
            for key, word in self.words.items()
            if key.startswith(prefix)
        }

    async def set(self, key: str, value: Buffer) -> None:
        await super().set(key, value)
        self.words[key] = object_word(key, value)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        if not await self._store.exists(key):
            await self.set(key, value)


class SealedStore(WrapperStore[Store]):
    """Check every object of one case against its seal as it is read; other cases' keys pass."""

    def __init__(self, store: Store, case: str, seal: CaseSeal) -> None:
        super().__init__(store)
        self._case, self._prefix, self._seal = case, f"cases/{case}/", seal

    def _with_store(self, store: Store) -> SealedStore:
        return SealedStore(store, self._case, self._seal)

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        content: Buffer | None = await self._store.get(key, prototype)
        if key.startswith(self._prefix):
            self._seal.check(key.removeprefix(self._prefix), content)
        if byte_range is None:
            return content
        return await self._store.get(key, prototype, byte_range)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Any
    ) -> list[Buffer | None]:
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def _get_many(self, requests: Any) -> Any:
        for key, prototype, byte_range in requests:
            yield key, await self.get(key, prototype, byte_range)
