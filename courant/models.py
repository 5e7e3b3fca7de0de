"""Register the models that an experiment can name, by their kind: one line each.

Courant is registered below, a baseline by its line in `BASELINES` and its own file.
A model of your own is one file that ends in `register(MyConfig, MyModel)`. Name its module in
COURANT_MODELS, and experiments with `"kind": "my-model"` train, sweep, report, predict and serve
like any other.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from courant import model as courant_model
from courant.model import CourantConfig
from courant.model_config import ModelConfig
from simgen.errors import InputError

if TYPE_CHECKING:
    from courant.field_model import FieldModel

VARIABLE = "COURANT_MODELS"  # Comma-separated modules that register models of their own
DEFAULT_KIND = CourantConfig.kind  # The kind of an experiment that names none

BASELINES = {
    "transolver": "courant.baselines.transolver",
    "fno": "courant.baselines.fno",
    "upt": "courant.baselines.upt",
    "enf": "courant.baselines.enf",
    "mgn": "courant.baselines.mesh_graph_net",
    "factformer": "courant.baselines.fact_former",
}
"""The modules that register published models, by kind; imported when an experiment names one."""

MAX_PARAMETERS = 500_000_000
"""2 GB of float32 weights, some 400 times the paper's largest model: a bound on what an untrusted
config can make this process allocate.
"""


_MODELS: dict[str, tuple[type[ModelConfig], Callable[[Any], FieldModel]]] = {}


def register(config: type[ModelConfig], model: Callable[[Any], FieldModel]) -> None:
    """Register a kind of model."""
    _MODELS[config.kind] = config, model


# Torch comes with the model's class, which is looked up when one is built.
register(CourantConfig, lambda config: courant_model.Courant(config))


def kinds() -> tuple[str, ...]:
    """Return the kinds that an experiment can name here."""
    return tuple(dict.fromkeys([*_MODELS, *BASELINES]))


def build(config: ModelConfig) -> FieldModel:
    """Build the untrained model of a config; InputError as `count`."""
    _, model = _find(config.kind)
    count(config)
    if config.num_members == 1:
        return model(config)
    from courant.ensemble import ensemble_of

    one = replace(config, num_members=1)
    return ensemble_of(config, [model(one) for _ in range(config.num_members)])


def count(config: ModelConfig) -> int | None:
    """Count the parameters without memory for them; None for a kind of your own.

    InputError for more than MAX_PARAMETERS.
    """
    if config.kind not in (DEFAULT_KIND, *BASELINES):
        return None
    import torch

    from courant.field_model import Unfilled

    with torch.device("meta"), Unfilled():
        one = _find(config.kind)[1](replace(config, num_members=1))
    num = config.num_members * sum(weight.numel() for weight in one.parameters())
    if num > MAX_PARAMETERS:
        raise InputError(
            f"{type(config).__name__} makes a model of {num:,} parameters, {MAX_PARAMETERS:,} at"
            " most; lower its sizes"
        )
    return num


def parse_config(content: Mapping[str, Any]) -> ModelConfig:
    """Parse a config from its JSON form; ValueError names what is wrong in it."""
    values = dict(content)
    kind = values.pop("kind", DEFAULT_KIND)
    if not isinstance(kind, str):
        raise ValueError(f"model kind {kind!r} is no name; choose one of {', '.join(kinds())}")
    return _find(kind)[0].from_dict(values)


def dump_config(config: ModelConfig) -> dict[str, Any]:
    """Return the JSON form of a config, its kind included."""
    return {"kind": config.kind, **asdict(config)}


def _find(kind: str) -> tuple[type[ModelConfig], Callable[[Any], FieldModel]]:
    if kind not in _MODELS and kind in BASELINES:
        importlib.import_module(BASELINES[kind])
    if kind not in _MODELS:
        # The user's own come from this process's environment, never from a run's files.
        for name in filter(None, map(str.strip, os.environ.get(VARIABLE, "").split(","))):
            try:
                importlib.import_module(name)
            except ImportError as error:
                raise InputError(f"{VARIABLE}: {name} cannot be imported: {error}") from error
    if kind not in _MODELS:
        raise ValueError(
            f"model kind '{kind}' is unknown; choose one of {', '.join(kinds())}, "
            f"or name the module that registers it in {VARIABLE}"
        )
    return _MODELS[kind]
