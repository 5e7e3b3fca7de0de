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
the baseline, or one of the named changes of several keys at once. A choice may give
`model.num_features` in words, because its number depends on the family. One that means nothing to
an experiment is left out of its sweep, with the reason in one line.

Spaces are YAML files: those of the package, and your own.
"""

from __future__ import annotations

import difflib
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Annotated, Any, Literal

import numpy as np
import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    Tag,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)

from courant.experiment import DATA, Experiment
from courant.runs.directory import RunDirectory
from simgen.errors import InputError, SimgenError
from simgen.store.local_files import local_path

Value = bool | int | float | str | None
Setting = dict[str, Value]
"""Such as {"model.num_anchors": 16}; the key `choice` holds the name of a choice."""

CHOICE = "choice"
BASELINE = "baseline"
"""The choice that changes nothing."""


def label(key: str) -> str:
    """Return the name of a key's column: `num_anchors` for `model.num_anchors`."""
    return key.rpartition(".")[2]


def describe(setting: Setting) -> str:
    """`num_anchors 16, num_levels 3`"""
    return ", ".join(f"{label(key)} {show(value)}" for key, value in setting.items())


def show(value: Value) -> str:
    """Format a value for figures and tables."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def as_number(value: object) -> object:
    """Parse numbers that YAML takes for words, such as 1e-4 without a point."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


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


CONFIG = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
_LARGEST = 1e15


class Values(BaseModel):
    """A list to choose from."""

    model_config = CONFIG
    values: tuple[Value, ...] = Field(min_length=1)
    when: dict[str, tuple[Value, ...]] = {}
    """The key counts only where these other keys have one of these values"""

    @field_validator("values", mode="before")
    @classmethod
    def _numbers(cls, values: Any) -> Any:
        return _numbers_of(values)

    @field_validator("when", mode="before")
    @classmethod
    def _numbers_of_others(cls, when: Any) -> Any:
        return _numbers_by_key(when)

    def draw(self, generator: np.random.Generator) -> Value:
        return self.values[int(generator.integers(len(self.values)))]


class Range(BaseModel):
    """Numbers between two bounds, integers if both bounds are."""

    model_config = CONFIG
    min: int | float
    max: int | float
    log: bool = False
    when: dict[str, tuple[Value, ...]] = {}

    @field_validator("when", mode="before")
    @classmethod
    def _numbers_of_others(cls, when: Any) -> Any:
        return _numbers_by_key(when)

    @model_validator(mode="after")
    def _ordered(self) -> Range:
        if max(abs(self.min), abs(self.max)) > _LARGEST:
            raise ValueError(f"min and max lie within {-_LARGEST:g} and {_LARGEST:g}")
        if not self.min < self.max or (self.log and self.min <= 0):
            raise ValueError(
                f"min {self.min:g} and max {self.max:g} make no range; min < max, and 0 < min"
                " where log"
            )
        return self

    def draw(self, generator: np.random.Generator) -> Value:
        low, high = (math.log(self.min), math.log(self.max)) if self.log else (self.min, self.max)
        drawn = float(generator.uniform(low, high))
        number = math.exp(drawn) if self.log else drawn
        return (
            round(number)
            if isinstance(self.min, int) and isinstance(self.max, int)
            else float(f"{number:.4g}")
        )


def _numbers_of(values: Any) -> Any:
    return [as_number(value) for value in values] if isinstance(values, list) else values


def _numbers_by_key(when: Any) -> Any:
    if not isinstance(when, dict):
        return when
    return {key: _numbers_of(values) for key, values in when.items()}


_KIND = Discriminator(
    lambda item: (
        "range"
        if isinstance(item, Range) or (isinstance(item, dict) and {"min", "max"} & set(item))
        else "values"
    )
)
Domain = Annotated[Annotated[Values, Tag("values")] | Annotated[Range, Tag("range")], _KIND]


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


MAX_YAML_BYTES = 1_000_000


def shipped_spaces() -> list[str]:
    """Name the spaces that come with the package."""
    folder = files("courant.sweeps") / "spaces"
    return sorted(
        item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml")
    )


def load_space(name: str) -> SearchSpace:
    """Load a shipped space by its name, or one of your own by its file's path.

    InputError names what is wrong in it.
    """
    if name in shipped_spaces():
        return parse_space(name, (files("courant.sweeps") / "spaces" / f"{name}.yaml").read_text())
    path = local_path(name)
    if path.suffix not in (".yaml", ".yml"):
        raise InputError(
            f"space '{name}' is unknown; choose one of {', '.join(shipped_spaces())}, or give a"
            " .yaml file"
        )
    if not path.exists():
        raise InputError(f"space {name} cannot be read: there is no such file")
    try:
        text = RunDirectory(path.parent).read_bytes(path.name, limit=MAX_YAML_BYTES).decode()
    except (SimgenError, UnicodeDecodeError) as error:
        raise InputError(f"space {name} cannot be read: {error}") from error
    return parse_space(path.stem.lower().replace("_", "-"), text)


class _PlainLoader(yaml.SafeLoader):
    """YAML without aliases.

    A few of them, each doubling the one before, would exceed any memory.
    """

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not allowed here; write the values out")
        return super().compose_node(parent, index)


def parse_space(name: str, text: str) -> SearchSpace:
    """Parse a SearchSpace from YAML; InputError in one line."""
    try:
        content = yaml.load(text, Loader=_PlainLoader)
    except (
        yaml.YAMLError,
        ValueError,
        OverflowError,
    ) as error:  # numbers and dates that YAML knows and Python does not
        raise InputError(
            f"space {name} is not valid YAML: {' '.join(str(error).split())[:500]}"
        ) from error
    except RecursionError as error:
        raise InputError(f"space {name} is nested too deeply") from error
    if not isinstance(content, dict):
        raise InputError(
            f"space {name} must be a mapping with design and parameters, see docs/sweeps.md"
        )
    try:
        return SearchSpace.model_validate({"name": name, **content})
    except ValidationError as error:
        found = error.errors(include_url=False)[:20]
        wrong = "; ".join(
            dict.fromkeys(f"{_place(item['loc'])[:100]}: {item['msg']}" for item in found)
        )
        raise InputError(f"space {name}: {' '.join(wrong.split())}") from error
    except (TypeError, RecursionError) as error:
        raise InputError(
            f"space {name} must be a mapping with design and parameters, see docs/sweeps.md"
        ) from error


def _place(location: Sequence[int | str]) -> str:
    """Name the place in the file; pydantic appends the kind that it took the item for."""
    kind = 2 if location[:1] == ("parameters",) else -1
    return ".".join(str(part) for index, part in enumerate(location) if index != kind) or "space"
