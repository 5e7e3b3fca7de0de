"""Read and write model.safetensors of a run directory.

The metadata of its header have a digest of the tensors with their names, types and shapes, since a
flipped bit of a weight is a valid weight. torch is imported where tensors are needed alone.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from typing import TYPE_CHECKING, Any

from courant.runs.directory import MAX_READ_BYTES, RunDirectory
from simgen.errors import InputError, StoreError, first_line

if TYPE_CHECKING:
    from torch import Tensor

    from courant.field_model import FieldModel, ModelConfig

WEIGHTS = "model.safetensors"
DIGEST = "sha256"  # key of the header's metadata
MAX_HEADER_BYTES = 2**20  # the largest model has some thousand tensors of a hundred bytes each
_METADATA = "__metadata__"


def write_weights(run: RunDirectory, weights: dict[str, Tensor]) -> None:
    """Write plain weights, readable without this project, and their digest."""
    from safetensors.torch import save

    tensors = {name: value.detach().cpu().contiguous() for name, value in weights.items()}
    run.write_bytes(WEIGHTS, save(tensors, metadata={DIGEST: _digest(tensors)}))


def read_model(run: RunDirectory, config: ModelConfig) -> tuple[FieldModel, str]:
    """Load the trained model on the CPU; return it with the `weights_digest` of these very bytes.

    InputError, before a model is built, for another size than the config's, and for weights that
    are not finite; StoreError for a file that is not what was written.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    from courant.models import build, count

    place, expected = f"{run.url}/{WEIGHTS}", count(config)
    # Of the widest type; without a count, any size that files may have.
    limit = MAX_READ_BYTES if expected is None else 8 * expected + MAX_HEADER_BYTES
    content = run.read_bytes(WEIGHTS, limit=limit)
    try:
        tensors = load(content)
        (length,) = struct.unpack("<Q", content[:8])
        digest = json.loads(content[8 : 8 + length]).get(_METADATA, {}).get(DIGEST)
    except (SafetensorError, ValueError, RuntimeError, KeyError, struct.error) as error:
        raise StoreError(f"{place} is damaged ({first_line(error)}); copy it again") from error
    if digest not in (None, _digest(tensors)):
        raise StoreError(f"{place} is damaged: not the weights that were written; copy it again")
    found = sum(tensor.numel() for tensor in tensors.values())
    if expected not in (None, found):
        raise InputError(
            f"{place} does not fit its experiment.json: {found:,} weights where the experiment's"
            f" model has {expected:,}; train again"
        )
    model = build(config)
    shapes, own = (
        {k: tuple(v.shape) for k, v in of.items()} for of in (tensors, model.state_dict())
    )
    if wrong := sorted(dict(own.items() ^ shapes.items())):
        raise InputError(
            f"{place} does not fit its experiment.json: {wrong[0][:80]!r} has shape"
            f" {shapes.get(wrong[0], 'none')}, expected {own.get(wrong[0], 'none')}; train again"
        )
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise InputError(f"{place}: {name} holds values that are not finite; train again")
    model.load_state_dict(tensors)
    return model, hashlib.sha256(content).hexdigest()


def count_weights(run: RunDirectory) -> int:
    """Return the number of weights by the file's header; StoreError for no safetensors file."""
    try:
        (length,) = struct.unpack("<Q", run.read_bytes(WEIGHTS, 0, 8))
        header = json.loads(run.read_bytes(WEIGHTS, 8, 8 + length, limit=MAX_HEADER_BYTES))
        tensors: list[Any] = [entry for name, entry in header.items() if name != _METADATA]
        return sum(math.prod(entry["shape"]) for entry in tensors)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, struct.error) as error:
        raise StoreError(
            f"{run.url}/{WEIGHTS} is not a safetensors file ({error}); copy it again"
        ) from error


def weights_digest(run: RunDirectory) -> str:
    """Return the SHA-256 of the file."""
    return hashlib.sha256(run.read_bytes(WEIGHTS, limit=run.size(WEIGHTS))).hexdigest()


def _digest(tensors: dict[str, Tensor]) -> str:
    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
