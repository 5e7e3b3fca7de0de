"""Read the model of a run directory.

The header of its file (`weights_file`) is compared with the config before anything is built.
"""

from __future__ import annotations

import hashlib
import json

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from torch import Tensor

from courant.field_model import FieldModel, ModelConfig
from courant.models import build, count
from courant.runs.directory import RunDirectory
from courant.runs.weights_file import WEIGHTS, WeightsHeader, read_header, tensors_digest
from simgen.errors import InputError, StoreError


def read_model(run: RunDirectory, config: ModelConfig) -> tuple[FieldModel, str]:
    """Load the trained model on the CPU; return it with the digest of the file that it came from.

    The digest is that of `weights_digest`, of these very bytes: a run that goes on may write others
    at any time.

    InputError, before anything is built, where the file does not hold exactly the tensors of the
    config; and for weights that are not finite. StoreError for a file that is not what was written.
    """
    header = read_header(run)
    _check_count(run, header, config)
    model = build(config)
    _check_shapes(run, header, model)
    content = run.read_bytes(WEIGHTS, limit=header.file_bytes)
    if header.digest not in (None, tensors_digest(content)):
        raise StoreError(
            f"{run.url}/{WEIGHTS} is damaged: its weights are not those that were written; copy it"
            " again"
        )
    model.load_state_dict(_tensors(run, content))
    return model, hashlib.sha256(content).hexdigest()


def _check_count(run: RunDirectory, header: WeightsHeader, config: ModelConfig) -> None:
    expected = count(config)
    if expected is not None and header.num_values != expected:
        raise InputError(
            f"{run.url}/{WEIGHTS} does not fit its experiment.json: {header.num_values:,} weights"
            f" where the experiment's model has {expected:,}; train again"
        )


def _check_shapes(run: RunDirectory, header: WeightsHeader, model: FieldModel) -> None:
    expected = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    found = {name: entry.shape for name, entry in header.tensors.items()}
    for name in [*expected, *found]:
        if expected.get(name) != found.get(name):
            raise InputError(
                f"{run.url}/{WEIGHTS} does not fit its experiment.json: {name[:80]!r} has shape"
                f" {found.get(name, 'none')}, expected {expected.get(name, 'none')}; train again"
            )


def _tensors(run: RunDirectory, content: bytes) -> dict[str, Tensor]:
    try:
        tensors = load_safetensors(content)
    except (SafetensorError, ValueError, RuntimeError, KeyError, json.JSONDecodeError) as error:
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        raise StoreError(f"{run.url}/{WEIGHTS} is damaged ({first_line}); copy it again") from error
    for name, value in tensors.items():
        if not torch.isfinite(value).all():
            raise InputError(
                f"{run.url}/{WEIGHTS}: {name} holds values that are not finite; the run is damaged,"
                " train it again"
            )
    return tensors
