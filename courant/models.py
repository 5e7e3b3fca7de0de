"""The models that an experiment can name, by their kind: one line each.

A model of your own is one file that ends in `register(MyConfig, MyModel)`. Name its module in COURANT_MODELS, and
experiments with `"kind": "my-model"` train, sweep, report, predict and serve like any other.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from courant.field_model import FieldModel, ModelConfig
from courant.model import Courant, CourantConfig
from courant.model.count import count_parameters
from simgen.errors import InputError

VARIABLE = "COURANT_MODELS"
"""Modules, comma-separated, that register models of their own."""
DEFAULT_KIND = CourantConfig.kind
"""The kind of an experiment that names none."""

MAX_PARAMETERS = 500_000_000
"""2 GB of float32 weights, some 400 times the paper's largest model: a bound on what a config from elsewhere can make
this process allocate."""


@dataclass(frozen=True)
class _Kind:
    config: type[ModelConfig]
    build: Callable[[Any], FieldModel]
    count: Callable[[Any], int] | None


_MODELS: dict[str, _Kind] = {}


def register(
    config: type[ModelConfig], model: Callable[[Any], FieldModel], count: Callable[[Any], int] | None = None
) -> None:
    """Make a kind of model known under `config.kind`; `count` says how many parameters a config makes."""
    _MODELS[config.kind] = _Kind(config, model, count)


register(CourantConfig, Courant, count_parameters)


def build(config: ModelConfig) -> FieldModel:
    """The untrained model of a config."""
    return _find(config.kind).build(config)


def count(config: ModelConfig) -> int | None:
    """The number of its parameters, known before anything is built; None for a kind that does not say."""
    counted = _find(config.kind).count
    return counted(config) if counted else None


def parse_config(content: Mapping[str, Any]) -> ModelConfig:
    """A config from its JSON form; ValueError names what is wrong in it."""
    values = dict(content)
    kind = values.pop("kind", DEFAULT_KIND)
    config = _find(kind).config.from_dict(values)
    num = count(config)
    if num is not None and num > MAX_PARAMETERS:
        raise ValueError(
            f"{type(config).__name__} makes a model of {num:,} parameters, {MAX_PARAMETERS:,} at most; lower its sizes"
        )
    return config


def dump_config(config: ModelConfig) -> dict[str, Any]:
    """The JSON form of a config, its kind included."""
    return {"kind": config.kind, **asdict(config)}


def _find(kind: str) -> _Kind:
    if kind not in _MODELS:
        _import_named()
    if kind not in _MODELS:
        raise ValueError(
            f"model kind '{kind}' is unknown; choose one of {', '.join(_MODELS)}, "
            f"or name the module that registers it in {VARIABLE}"
        )
    return _MODELS[kind]


def _import_named() -> None:
    """Import the user's own modules: they come from this process's environment, never from a run's files."""
    for name in filter(None, map(str.strip, os.environ.get(VARIABLE, "").split(","))):
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise InputError(f"{VARIABLE} names {name}, which cannot be imported: {error}") from error
