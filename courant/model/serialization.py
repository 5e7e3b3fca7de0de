"""A model as one safetensors file: weights, and in its metadata the config that rebuilds it.

    save_model(model, "model.safetensors");  model = load_model("model.safetensors")

The weights alone are readable by anything that reads safetensors.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from courant.model.config import CourantConfig
from courant.model.courant import Courant

_CONFIG_KEY = "courant_config"
_SHOWN = 4  # names listed in an error before it says how many more


def save_model(model: Courant, path: str | Path) -> None:
    """Write weights and config to `path`."""
    tensors = {name: tensor.detach().contiguous().cpu() for name, tensor in model.state_dict().items()}
    save_file(tensors, str(path), metadata={_CONFIG_KEY: model.config.to_json()})


def load_model(path: str | Path, config: CourantConfig | None = None) -> Courant:
    """Rebuild the model of `path` on the CPU, in the precision in which it was saved.

    `config` overrides the one in the file, and is needed for a file that has none. Raises FileNotFoundError, or
    ValueError in one line for a file that is not safetensors, has no config, or does not fit the config.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path}: no such model file")
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except SafetensorError as error:
        raise ValueError(f"{path} is not a readable safetensors file: {error}") from error
    if config is None:
        if _CONFIG_KEY not in metadata:
            raise ValueError(f"{path} holds weights without a Courant config: pass the config they were trained with")
        config = CourantConfig.from_json(metadata[_CONFIG_KEY])
    model = Courant(config)
    load_weights(model, tensors, str(path))
    return model


def load_weights(model: Courant, tensors: dict[str, torch.Tensor], source: str = "the weights") -> None:
    """Put `tensors` into the model, in their own precision; ValueError names what does not fit, and nothing changes."""
    expected = model.state_dict()
    problems = [
        _listing("lacks", sorted(set(expected) - set(tensors))),
        _listing("has the unknown", sorted(set(tensors) - set(expected))),
        _listing(
            "has of another shape",
            [
                f"{name} {tuple(tensors[name].shape)} instead of {tuple(expected[name].shape)}"
                for name in sorted(set(expected) & set(tensors))
                if tensors[name].shape != expected[name].shape
            ],
        ),
    ]
    if any(problems):
        raise ValueError(f"{source} does not fit this CourantConfig: it {'; it '.join(filter(None, problems))}")
    precisions = {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()}
    if len(precisions) == 1:
        model.to(precisions.pop())
    model.load_state_dict(tensors)


def _listing(verb: str, names: list[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{verb} {', '.join(names[:_SHOWN])}{more}"
