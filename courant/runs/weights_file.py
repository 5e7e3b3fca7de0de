"""Read model.safetensors of a run directory as bytes: its header, within bounds, and its digest.

No tensor is read, and torch is not imported. The file is eight bytes of header length, a JSON
header with name, type, shape and place of each tensor, and the tensors. The header's metadata have
a digest of all of this, since a flipped bit of a weight is a valid weight.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from courant.json_text import parse_json
from courant.runs.directory import RunDirectory
from simgen.errors import StoreError

WEIGHTS = "model.safetensors"
#: Key of the header's metadata.
DIGEST = "sha256"
#: The largest model has some thousand tensors of a hundred bytes each.
MAX_HEADER_BYTES = 2**20
BYTES_OF = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
_METADATA = "__metadata__"
_DIGEST_CHUNK = 16 * 2**20


@dataclass(frozen=True)
class TensorEntry:
    """One tensor, as the header announces it."""

    shape: tuple[int, ...]
    num_bytes: int

    @property
    def num_values(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class WeightsHeader:
    """The content that the file announces; sizes agree with one another and with the file's."""

    tensors: Mapping[str, TensorEntry]
    file_bytes: int
    digest: str | None = None
    """Of `tensors_digest`; None in a file that another program wrote"""

    @property
    def num_values(self) -> int:
        return sum(entry.num_values for entry in self.tensors.values())


def read_header(run: RunDirectory) -> WeightsHeader:
    """Read the header alone; StoreError for a file that is damaged or no safetensors."""
    try:
        return _read_header(run)
    except ValueError as error:
        raise StoreError(
            f"{run.url}/{WEIGHTS} is not a safetensors file: {error}; copy it again"
        ) from error


def weights_digest(run: RunDirectory) -> str:
    """Return the SHA-256 of the file, read in pieces."""
    size, digest = run.size(WEIGHTS), hashlib.sha256()
    for start in range(0, size, _DIGEST_CHUNK):
        digest.update(run.read_bytes(WEIGHTS, start, min(start + _DIGEST_CHUNK, size)))
    return digest.hexdigest()


def tensors_digest(content: bytes) -> str:
    """Return the SHA-256 of a file's tensors, with their names, types, shapes and places."""
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    header.pop(_METADATA, None)
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    digest.update(content[8 + length :])
    return digest.hexdigest()


def _read_header(run: RunDirectory) -> WeightsHeader:
    size = run.size(WEIGHTS)
    if size < 8:
        raise ValueError(f"it has {size} bytes")
    (length,) = struct.unpack("<Q", run.read_bytes(WEIGHTS, 0, 8))
    if length > min(MAX_HEADER_BYTES, size - 8):
        raise ValueError(
            f"its header of {length:,} bytes is more than the file"
            f" or {MAX_HEADER_BYTES:,} bytes hold"
        )
    content = parse_json(run.read_bytes(WEIGHTS, 8, 8 + length))
    if not isinstance(content, dict):
        raise ValueError("its header is no mapping")
    metadata = content.pop(_METADATA, None) or {}
    tensors = {name: _entry(name, entry) for name, entry in content.items()}
    expected = 8 + length + sum(entry.num_bytes for entry in tensors.values())
    if expected != size:
        raise ValueError(f"it has {size:,} bytes where its header announces {expected:,}")
    digest = metadata.get(DIGEST) if isinstance(metadata, dict) else None
    return WeightsHeader(tensors, size, None if digest is None else str(digest))


def _entry(name: str, entry: object) -> TensorEntry:
    if not isinstance(entry, dict) or entry.get("dtype") not in BYTES_OF:
        raise ValueError(f"tensor {name[:60]!r} is not of type {', '.join(BYTES_OF)}")
    shape = entry.get("shape")
    if not isinstance(shape, list) or not all(
        type(side) is int and 0 <= side < 2**40 for side in shape
    ):
        raise ValueError(f"tensor {name[:60]!r} has no shape of whole numbers")
    if len(shape) > 8:
        raise ValueError(f"tensor {name[:60]!r} has {len(shape)} dimensions")
    return TensorEntry(tuple(shape), math.prod(shape) * BYTES_OF[entry["dtype"]])
