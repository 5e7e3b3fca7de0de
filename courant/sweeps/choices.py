"""Name changes of several keys at once: the rows of an ablation table.

    choices:
      - full mesh: {data.encoder: mesh, model.num_features: fields + distance}

A choice may give `model.num_features` in words, because its number depends on the family. A choice
that means nothing to an experiment is left out of its sweep, with the reason in one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field, field_validator, model_serializer, model_validator

from courant.experiment import Experiment
from courant.sweeps.domains import CONFIG
from courant.sweeps.keys import is_of_another_task, is_without_effect, value_of
from courant.sweeps.setting import BASELINE, Value, as_number
from simgen.errors import InputError

SIZE = "model.num_features"
FIELDS, WITH_DISTANCE = "fields", "fields + distance"
"""Words for SIZE: the modelled channels at each encoder point, without or with the distance field
"""
MAX_NAME = 80
_NAME = re.compile(r"[^\W_][^\x00-\x1f\x7f]*")


class Choice(BaseModel):
    """A name, and the values that its keys get together: `{name: {key: value, ...}}`."""

    model_config = CONFIG
    name: str = Field(max_length=MAX_NAME)
    values: dict[str, Value] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _named(cls, entry: Any) -> Any:
        if isinstance(entry, dict) and len(entry) == 1:
            ((name, values),) = entry.items()
            if isinstance(name, str) and isinstance(values, dict) and values:
                return {"name": name, "values": values}
        raise ValueError("an entry is a name and what it sets, `- name: {key: value, ...}`")

    @field_validator("name")
    @classmethod
    def _readable(cls, name: str) -> str:
        if name == BASELINE:
            raise ValueError(f"the name {BASELINE} stands for the experiment itself")
        if not _NAME.fullmatch(name):
            raise ValueError("a name is one line that begins with a letter or a digit")
        return name

    @field_validator("values", mode="before")
    @classmethod
    def _numbers(cls, values: Any) -> Any:
        return {key: as_number(value) for key, value in values.items()}

    @model_serializer
    def _as_written(self) -> dict[str, dict[str, Value]]:
        return {self.name: self.values}

    @property
    def slug(self) -> str:
        """Return the name as a part of a run's: `no-global-data`."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")

    def changes(self, experiment: Experiment) -> dict[str, Value]:
        """Return what differs from the experiment, with sizes as numbers."""
        wanted = {
            key: _size(value, experiment) if key == SIZE else value
            for key, value in self.values.items()
        }
        return {key: new for key, new in wanted.items() if new != value_of(experiment, key)}


def fitting(
    choices: Iterable[Choice], experiment: Experiment
) -> tuple[tuple[Choice, ...], tuple[str, ...]]:
    """Return the choices that apply to an experiment, and a line for each of the others."""
    kept: list[Choice] = []
    left_out: list[str] = []
    for choice in choices:
        reason = _meaningless(choice, kept, experiment)
        if reason:
            left_out.append(f"{choice.name} does not apply to {experiment.name}: {reason}")
        else:
            kept.append(choice)
    return tuple(kept), tuple(left_out)


def check_choices(choices: Sequence[Choice], free: Mapping[str, object]) -> None:
    """Raise ValueError for two choices of one name, or a key that is also varied on its own."""
    names = [choice.name for choice in choices]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"choices: two entries are called {', '.join(twice)}")
    both = sorted({key for choice in choices for key in choice.values} & set(free))
    if both:
        raise ValueError(
            f"{', '.join(both)}: in choices and in parameters; a key is varied in one of them"
        )


def _meaningless(choice: Choice, before: Iterable[Choice], experiment: Experiment) -> str:
    """Say why an experiment has no use for a choice; empty where it has."""
    for key in choice.values:
        if is_of_another_task(experiment, key):
            return f"{experiment.task} experiments have no {key}"
        if is_without_effect(experiment, key):
            return f"{key} decides nothing in a {experiment.task} model"
    changes = choice.changes(experiment)
    if not changes:
        return "it is so already"
    same = next((each.name for each in before if each.changes(experiment) == changes), "")
    return f"it comes to the same as {same}" if same else ""


def _size(value: Value, experiment: Experiment) -> Value:
    """Return a number of encoder channels; InputError for unknown words."""
    if not isinstance(value, str):
        return value
    model = experiment.model
    known = model.num_outputs * getattr(experiment.data, "input_steps", 1)
    if value not in (FIELDS, WITH_DISTANCE):
        raise InputError(
            f"{SIZE}: '{value}' is no size; give {FIELDS}, {WITH_DISTANCE} or a number"
        )
    if value == FIELDS:
        return known
    distance = model.num_query_features or model.num_features - known
    if distance <= 0:
        raise InputError(
            f"{SIZE}: {experiment.name} has no distance field that {WITH_DISTANCE} could be counted"
            " by; give a number"
        )
    return known + distance
