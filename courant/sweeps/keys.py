"""Check the keys of an experiment that a sweep may vary, such as `model.num_anchors`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from courant.experiment import DATA, Experiment
from courant.sweeps.setting import Value
from simgen.errors import InputError

SECTIONS = ("model", "data", "training")
FIXED = {
    "training.seed": "every further trial of a setting takes the next seed by itself",
    "training.epochs": "trials are compared epoch by epoch",
    "training.validate_every": "trials are compared epoch by epoch",
    "training.workers": "a trial is one process",
    "training.checkpoint_every": "a trial has a checkpoint at each validation",
    "training.keep_checkpoints": "it changes nothing that is learned",
    "training.use_gpu": "--gpus-per-trial says where trials run",
    "training.validation_windows": "it would change what trials are measured by",
    "data.window_steps": "it would change what trials are measured by",
    "data.input_steps": "it would change what trials are measured by",
    "model.input_steps": "it is that of the data",
    "data.step_s": "it would change what trials are measured by",
    "data.start_s": "it would change what trials are measured by",
}
TRANSIENT = ("model.processor", "model.solver", "model.step_size", "model.solver_tolerance")
"""Keys without effect in a steady model; they stay as in the baseline there"""


def check_keys(experiment: Experiment, keys: Iterable[str], space: str) -> None:
    """Raise InputError for a key that cannot be swept, or that no experiment has."""
    for key in keys:
        if key in FIXED:
            raise InputError(f"space {space}: {key} cannot be swept: {FIXED[key]}")
        known = _known(experiment)
        if key not in known:
            near = difflib.get_close_matches(key, known, 1) or [f"{each}.*" for each in SECTIONS]
            raise InputError(
                f"space {space}: an experiment has no key {key}; did you mean {', '.join(near)}?"
            )


def value_of(experiment: Experiment, key: str) -> Value:
    """Return the experiment's own value."""
    section, _, name = key.partition(".")
    found: Value = experiment.model_dump()[section][name]
    return found


def is_of_another_task(experiment: Experiment, key: str) -> bool:
    """Tell whether a key exists only for the other task, steady or transient."""
    others = {f"data.{name}" for kind in DATA.values() for name in kind.model_fields}
    return key in others - set(_known(experiment))


def is_without_effect(experiment: Experiment, key: str) -> bool:
    """Tell whether the key has no effect in this experiment."""
    return experiment.task == "steady" and key in TRANSIENT


def _known(experiment: Experiment) -> list[str]:
    content = experiment.model_dump()
    return [f"{section}.{name}" for section in SECTIONS for name in content[section]]
