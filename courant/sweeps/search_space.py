"""Define what a sweep varies: values and ranges for an experiment's keys, and their settings.

    about: number of anchors, a panel of fig:ablations
    design: isolated
    parameters:
      model.num_anchors: [16, 32, 64]
      training.learning_rate: {min: 1.0e-4, max: 3.0e-3, log: true}
      model.window_scale: {values: [0.5, 1], when: {model.gaussian_window: [encoder, both]}}
    choices:
      - full mesh: {data.encoder: mesh, model.num_features: fields + distance}

`isolated` is the paper's design: the baseline, and from it one key changed at a time. `grid` is
every combination, `random` draws (the only one for ranges). A key whose `when` does not hold stays
as in the baseline, so that no two settings mean the same. `choices` are one further key, `choice`:
the baseline, or one of the named changes of several keys at once (`courant.sweeps.choices`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import (
    BaseModel,
    Field,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from courant.experiment import Experiment
from courant.sweeps.choices import Choice, check_choices, fitting
from courant.sweeps.domains import CONFIG, Domain, Range, Values
from courant.sweeps.keys import (
    SECTIONS,
    check_keys,
    is_of_another_task,
    is_without_effect,
    value_of,
)
from courant.sweeps.setting import BASELINE, CHOICE, Setting, Value, describe, show
from simgen.errors import InputError

MAX_SETTINGS = 10_000
"""The limit of an isolated design or a grid; each setting is an experiment to train"""


class SearchSpace(BaseModel):
    """Keys of an experiment with their possible values."""

    model_config = CONFIG
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    about: str = ""
    design: Literal["isolated", "grid", "random"]
    parameters: dict[str, Domain] = {}
    choices: tuple[Choice, ...] = Field(default=(), max_length=MAX_SETTINGS)
    _unfit: tuple[str, ...] = PrivateAttr(default=())
    """A line for each choice that was left out for the data's sake"""

    @field_validator("parameters", mode="before")
    @classmethod
    def _lists_are_values(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {
            key: {"values": item} if isinstance(item, list) else item for key, item in value.items()
        }

    @model_validator(mode="after")
    def _design_fits(self) -> SearchSpace:
        if not (self.parameters or self.choices):
            raise ValueError("parameters: nothing is varied; name a key, or give choices")
        ranges = [key for key, item in self.parameters.items() if isinstance(item, Range)]
        if ranges and self.design != "random":
            raise ValueError(
                f"{', '.join(ranges)}: a range needs `design: random`;"
                f" {self.design} takes lists of values"
            )
        for key, item in self.parameters.items():
            unknown = sorted(set(item.when) - set(self.parameters))
            if unknown:
                raise ValueError(
                    f"{key}: its `when` names {', '.join(unknown)}, which the space does not vary"
                )
            for other, wanted in item.when.items():
                taken = getattr(self.parameters[other], "values", None)
                if self.design == "isolated" or taken is None:
                    continue  # it may also have the recipe's value, or any of a range
                if never := [each for each in wanted if each not in taken]:
                    raise ValueError(
                        f"{key}: its `when` waits for {other} {show(never[0])}, which is none of"
                        f" its values ({', '.join(map(show, taken))})"
                    )
        check_choices(self.choices, self.parameters)
        return self

    @model_serializer(mode="wrap")
    def _as_before_there_were_choices(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Keep the old form for a space without choices: the ids of its sweeps are made from it."""
        content: dict[str, Any] = dump(self)
        if not self.choices:
            content.pop("choices", None)
        return content

    @property
    def columns(self) -> tuple[str, ...]:
        """The keys of a setting, in the order of tables.

        Not named `keys`: Prefect, for one, takes a task's argument with `keys` for a mapping.
        """
        return (*self.parameters, CHOICE) if self.choices else tuple(self.parameters)

    def baseline(self, experiment: Experiment) -> Setting:
        """Return the experiment's own values; InputError for a key that experiments do not have."""
        check_keys(experiment, self.parameters, self.name)
        linked = [key for choice in self.choices for key in choice.values]
        own = [key for key in linked if not is_of_another_task(experiment, key)]
        check_keys(experiment, own, self.name)
        setting = {key: value_of(experiment, key) for key in self.parameters}
        return {**setting, CHOICE: BASELINE} if self.choices else setting

    def for_data(
        self, experiment: Experiment, check: Callable[[Experiment], object]
    ) -> SearchSpace:
        """Return this space without the choices whose experiment `check` refuses by InputError.

        A choice's sizes may not be those of a dataset with given fields, or without a boundary.
        """
        baseline = self.baseline(experiment)
        applying, _ = fitting(self.choices, experiment)
        kept, unfit = [], []
        for choice in self.choices:
            try:
                if choice in applying:
                    check(self.apply(experiment, {**baseline, CHOICE: choice.name}))
                kept.append(choice)
            except InputError as error:
                unfit.append(f"{choice.name} does not apply to {experiment.name}: {error}")
        if unfit and not kept and not self.parameters:
            raise InputError(f"space {self.name}: {unfit[0]}")
        found = self.model_copy(update={"choices": tuple(kept)})
        found._unfit = tuple(unfit)
        return found

    def left_out(self, experiment: Experiment) -> tuple[str, ...]:
        """Return a line for each choice that means nothing to the experiment, or to the data."""
        self.baseline(experiment)
        return (*fitting(self.choices, experiment)[1], *self._unfit)

    def count(self, experiment: Experiment) -> int | None:
        """Return the number of different settings; None where values are drawn."""
        return (
            None
            if self.design == "random"
            else len(self._fitting(experiment)._all(self.baseline(experiment)))
        )

    def settings(self, experiment: Experiment, seed: int) -> Iterator[Setting]:
        """Yield settings without end, the first n of them the same for every n.

        They are in random order, which early stopping relies on, and none repeats before all have
        come. `isolated` begins with the baseline, so that it is trained first.
        """
        generator = np.random.default_rng(seed)
        space, baseline = self._fitting(experiment), self.baseline(experiment)
        if self.design == "random":
            while True:
                drawn = {key: item.draw(generator) for key, item in space._domains().items()}
                yield space._in_force({**baseline, **drawn}, baseline)
        found = space._all(baseline)
        first = 1 if self.design == "isolated" else 0
        while True:
            order = [*range(first), *(first + generator.permutation(len(found) - first))]
            yield from (found[index] for index in order)

    def apply(self, experiment: Experiment, setting: Setting) -> Experiment:
        """Apply a setting to the experiment; InputError for values that it cannot have."""
        values = {key: value for key, value in setting.items() if key != CHOICE}
        choice = self.choice(setting)
        if choice is not None:
            values.update(choice.changes(experiment))
        sections: dict[str, dict[str, Value]] = {section: {} for section in SECTIONS}
        for key, value in values.items():
            section, _, name = key.partition(".")
            sections[section][name] = value
        try:
            return experiment.derive(
                model=sections["model"], data=sections["data"], training=sections["training"]
            )
        except InputError as error:
            raise InputError(f"setting {describe(setting)} is impossible: {error}") from error

    def choice(self, setting: Setting) -> Choice | None:
        """Return the choice that a setting names; None for the baseline's."""
        return next((each for each in self.choices if each.name == setting.get(CHOICE)), None)

    def _fitting(self, experiment: Experiment) -> SearchSpace:
        """Return this space without values and choices that would change nothing."""
        baseline = self.baseline(experiment)
        fixed = {
            key: Values(values=(baseline[key],))
            for key in self.parameters
            if is_without_effect(experiment, key)
        }
        choices, _ = fitting(self.choices, experiment)
        parameters = {**self.parameters, **fixed}
        return self.model_copy(update={"parameters": parameters, "choices": choices})

    def _domains(self) -> dict[str, Domain]:
        """Return the domain of each key of a setting; the baseline is one of the choices."""
        if not self.choices:
            return dict(self.parameters)
        names = (BASELINE, *(choice.name for choice in self.choices))
        return {**self.parameters, CHOICE: Values(values=names)}

    def _all(self, baseline: Setting) -> list[Setting]:
        lists = {
            key: item.values for key, item in self._domains().items() if isinstance(item, Values)
        }
        num = (
            math.prod(map(len, lists.values()))
            if self.design == "grid"
            else sum(map(len, lists.values()))
        )
        if num > MAX_SETTINGS:
            raise InputError(
                f"space {self.name}: {num:,} settings, {MAX_SETTINGS:,} at most; give fewer values,"
                " or draw them with design: random"
            )
        if self.design == "isolated":
            made = [
                baseline,
                *({**baseline, key: value} for key, values in lists.items() for value in values),
            ]
        else:
            made = [
                {**baseline, **dict(zip(lists, chosen, strict=True))}
                for chosen in itertools.product(*lists.values())
            ]
        return _different([self._in_force(setting, baseline) for setting in made])

    def _in_force(self, setting: Setting, baseline: Setting) -> Setting:
        def holds(when: Mapping[str, Sequence[Value]]) -> bool:
            return all(setting[key] in values for key, values in when.items())

        # What one key's absence puts back may be another one's condition.
        for _ in setting:
            setting = {
                key: value if key == CHOICE or holds(self.parameters[key].when) else baseline[key]
                for key, value in setting.items()
            }
        return setting


def _different(settings: Sequence[Setting]) -> list[Setting]:
    found: dict[tuple[tuple[str, Value], ...], Setting] = {}
    for setting in settings:
        found.setdefault(tuple(setting.items()), setting)
    return list(found.values())
