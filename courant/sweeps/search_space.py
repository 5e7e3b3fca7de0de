"""What a sweep varies: a YAML file of values and ranges for an experiment's keys, and the settings that it stands for.

    about: number of anchors, a panel of fig:ablations
    design: isolated
    parameters:
      model.num_anchors: [16, 32, 64]
      training.learning_rate: {min: 1.0e-4, max: 3.0e-3, log: true}
      model.window_scale: {values: [0.5, 1], when: {model.gaussian_window: [encoder, decoder, both]}}

`isolated` is the paper's way: the baseline, and from it one key changed at a time. `grid` is every combination, `random`
draws (the only one for ranges). A key whose `when` does not hold stays as in the baseline, so that no two settings mean the same.
"""

from __future__ import annotations

import difflib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, field_validator, model_validator

from courant.experiment import Experiment
from courant.runs.directory import RunDirectory
from simgen.errors import InputError, SimgenError

Value = bool | int | float | str | None
Setting = dict[str, Value]
"""A value for each key of the space, such as {"model.num_anchors": 16}."""

SECTIONS = ("model", "data", "training")
FIXED = {
    "training.seed": "every further trial of a setting takes the next seed by itself",
    "training.epochs": "trials are compared epoch by epoch",
    "training.validate_every": "trials are compared epoch by epoch",
    "training.workers": "a trial is one process",
    "training.validation_windows": "it would change what trials are measured by",
    "data.window_steps": "it would change what trials are measured by",
    "data.step_s": "it would change what trials are measured by",
    "data.start_s": "it would change what trials are measured by",
}
TRANSIENT = ("model.processor", "model.solver", "model.step_size", "model.solver_tolerance")
"""Keys that decide nothing in a steady model; they stay as in the baseline there."""
MAX_YAML_BYTES = 1_000_000
MAX_SETTINGS = 10_000
"""Of an isolated design or a grid; each is an experiment to train."""
_LARGEST = 1e15
_CONFIG = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Values(BaseModel):
    """A list to choose from."""

    model_config = _CONFIG
    values: tuple[Value, ...] = Field(min_length=1)
    when: dict[str, tuple[Value, ...]] = {}
    """The key counts only where these other keys have one of these values"""

    @field_validator("values", mode="before")
    @classmethod
    def _numbers(cls, values: Any) -> Any:
        """YAML takes 1e-4, without a point, for a word."""
        return [_number(value) for value in values] if isinstance(values, list) else values

    def draw(self, generator: np.random.Generator) -> Value:
        return self.values[int(generator.integers(len(self.values)))]


class Range(BaseModel):
    """Numbers between two bounds, whole ones where both bounds are."""

    model_config = _CONFIG
    min: int | float
    max: int | float
    log: bool = False
    when: dict[str, tuple[Value, ...]] = {}

    @model_validator(mode="after")
    def _ordered(self) -> Range:
        if max(abs(self.min), abs(self.max)) > _LARGEST:
            raise ValueError(f"min and max lie within {-_LARGEST:g} and {_LARGEST:g}")
        if not self.min < self.max or (self.log and self.min <= 0):
            raise ValueError(f"min {self.min:g} and max {self.max:g} make no range; min < max, and 0 < min where log")
        return self

    def draw(self, generator: np.random.Generator) -> Value:
        low, high = (math.log(self.min), math.log(self.max)) if self.log else (self.min, self.max)
        drawn = float(generator.uniform(low, high))
        number = math.exp(drawn) if self.log else drawn
        return round(number) if isinstance(self.min, int) and isinstance(self.max, int) else float(f"{number:.4g}")


_KIND = Discriminator(
    lambda item: (
        "range" if isinstance(item, Range) or (isinstance(item, dict) and {"min", "max"} & set(item)) else "values"
    )
)


class SearchSpace(BaseModel):
    """Keys of an experiment with the values that they may take."""

    model_config = _CONFIG
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    about: str = ""
    design: Literal["isolated", "grid", "random"]
    parameters: dict[str, Annotated[Annotated[Values, Tag("values")] | Annotated[Range, Tag("range")], _KIND]] = Field(
        min_length=1
    )

    @field_validator("parameters", mode="before")
    @classmethod
    def _lists_are_values(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {key: {"values": item} if isinstance(item, list) else item for key, item in value.items()}

    @model_validator(mode="after")
    def _design_fits(self) -> SearchSpace:
        ranges = [key for key, item in self.parameters.items() if isinstance(item, Range)]
        if ranges and self.design != "random":
            raise ValueError(
                f"{', '.join(ranges)}: a range needs `design: random`; {self.design} takes lists of values"
            )
        for key, item in self.parameters.items():
            unknown = sorted(set(item.when) - set(self.parameters))
            if unknown:
                raise ValueError(f"{key}: its `when` names {', '.join(unknown)}, which the space does not vary")
        return self

    def baseline(self, experiment: Experiment) -> Setting:
        """The values that the experiment itself has; InputError for a key that experiments do not have."""
        content = experiment.model_dump()
        known = [f"{section}.{name}" for section in SECTIONS for name in content[section]]
        for key in self.parameters:
            if key in FIXED:
                raise InputError(f"space {self.name}: {key} cannot be swept: {FIXED[key]}")
            if key not in known:
                near = difflib.get_close_matches(key, known, 1) or [f"{section}.*" for section in SECTIONS]
                raise InputError(f"space {self.name}: an experiment has no key {key}; did you mean {', '.join(near)}?")
        return {key: content[key.partition(".")[0]][key.partition(".")[2]] for key in self.parameters}

    def count(self, experiment: Experiment) -> int | None:
        """Different settings; None where values are drawn."""
        return None if self.design == "random" else len(self._fitting(experiment)._all(self.baseline(experiment)))

    def settings(self, experiment: Experiment, seed: int) -> Iterator[Setting]:
        """Settings without end, the first n of them the same whatever n is: in random order, which early stopping relies
        on, and all of them before any comes again. `isolated` begins with the baseline, so that it is trained first.
        """
        generator = np.random.default_rng(seed)
        space, baseline = self._fitting(experiment), self.baseline(experiment)
        if self.design == "random":
            while True:
                drawn = {key: item.draw(generator) for key, item in space.parameters.items()}
                yield space._in_force(drawn, baseline)
        found = space._all(baseline)
        first = 1 if self.design == "isolated" else 0
        while True:
            order = [*range(first), *(first + generator.permutation(len(found) - first))]
            yield from (found[index] for index in order)

    def _fitting(self, experiment: Experiment) -> SearchSpace:
        """This space without values that would change nothing."""
        if experiment.task == "transient":
            return self
        baseline = self.baseline(experiment)
        fixed = {key: Values(values=(baseline[key],)) for key in self.parameters if key in TRANSIENT}
        return self.model_copy(update={"parameters": {**self.parameters, **fixed}})

    def _all(self, baseline: Setting) -> list[Setting]:
        lists = {key: item.values for key, item in self.parameters.items() if isinstance(item, Values)}
        num = math.prod(map(len, lists.values())) if self.design == "grid" else sum(map(len, lists.values()))
        if num > MAX_SETTINGS:
            raise InputError(
                f"space {self.name}: {num:,} settings, {MAX_SETTINGS:,} at most; give fewer values, or draw them with design: random"
            )
        if self.design == "isolated":
            made = [baseline, *({**baseline, key: value} for key, values in lists.items() for value in values)]
        else:
            made = [dict(zip(lists, chosen, strict=True)) for chosen in itertools.product(*lists.values())]
        return _different([self._in_force(setting, baseline) for setting in made])

    def _in_force(self, setting: Setting, baseline: Setting) -> Setting:
        def holds(when: Mapping[str, Sequence[Value]]) -> bool:
            return all(setting[key] in values for key, values in when.items())

        return {key: value if holds(self.parameters[key].when) else baseline[key] for key, value in setting.items()}


def apply_setting(experiment: Experiment, setting: Setting) -> Experiment:
    """The experiment with a setting's values; InputError for one that it cannot have."""
    sections: dict[str, dict[str, Value]] = {section: {} for section in SECTIONS}
    for key, value in setting.items():
        section, _, name = key.partition(".")
        sections[section][name] = value
    try:
        return experiment.derive(model=sections["model"], data=sections["data"], training=sections["training"])
    except InputError as error:
        raise InputError(f"setting {describe(setting)} is impossible: {error}") from error


def describe(setting: Setting) -> str:
    """`num_anchors 16, num_levels 3`"""
    return ", ".join(f"{key.partition('.')[2]} {show(value)}" for key, value in setting.items())


def show(value: Value) -> str:
    """A value as figures and tables print it."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def shipped_spaces() -> list[str]:
    """Names of the spaces that come with the package."""
    folder = files("courant.sweeps") / "spaces"
    return sorted(item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml"))


def load_space(name: str) -> SearchSpace:
    """A shipped space by its name, or one of your own by its file's path; InputError names what is wrong in it."""
    if name in shipped_spaces():
        return parse_space(name, (files("courant.sweeps") / "spaces" / f"{name}.yaml").read_text())
    path = Path(name).expanduser()
    if path.suffix not in (".yaml", ".yml"):
        raise InputError(
            f"space '{name}' is unknown; choose one of {', '.join(shipped_spaces())}, or give a .yaml file"
        )
    if not path.exists():
        raise InputError(f"space {name} cannot be read: there is no such file")
    try:
        text = RunDirectory(path.parent).read_bytes(path.name, limit=MAX_YAML_BYTES).decode()
    except (SimgenError, UnicodeDecodeError) as error:
        raise InputError(f"space {name} cannot be read: {error}") from error
    return parse_space(path.stem.lower().replace("_", "-"), text)


class _PlainLoader(yaml.SafeLoader):
    """YAML without aliases: a few of them, each of the one before, stand for more than any memory holds."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not allowed here; write the values out")
        return super().compose_node(parent, index)


def parse_space(name: str, text: str) -> SearchSpace:
    """A SearchSpace from YAML; InputError with one line."""
    try:
        content = yaml.load(text, Loader=_PlainLoader)
    except (
        yaml.YAMLError,
        ValueError,
        OverflowError,
    ) as error:  # numbers and dates that YAML knows and Python does not
        raise InputError(f"space {name} is not valid YAML: {' '.join(str(error).split())[:500]}") from error
    except RecursionError as error:
        raise InputError(f"space {name} is nested too deeply") from error
    if not isinstance(content, dict):
        raise InputError(f"space {name} must be a mapping with design and parameters, see docs/sweeps.md")
    try:
        return SearchSpace.model_validate({"name": name, **content})
    except ValidationError as error:
        found = error.errors(include_url=False)[:20]
        wrong = "; ".join(dict.fromkeys(f"{_place(item['loc'])[:100]}: {item['msg']}" for item in found))
        raise InputError(f"space {name}: {' '.join(wrong.split())}") from error
    except (TypeError, RecursionError) as error:
        raise InputError(f"space {name} must be a mapping with design and parameters, see docs/sweeps.md") from error


def _place(location: Sequence[int | str]) -> str:
    """Where in the file; pydantic puts the kind that it took the item for behind the key."""
    kind = 2 if location[:1] == ("parameters",) else -1
    return ".".join(str(part) for index, part in enumerate(location) if index != kind) or "space"


def _number(value: Any) -> Any:
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _different(settings: Sequence[Setting]) -> list[Setting]:
    found: dict[tuple[tuple[str, Value], ...], Setting] = {}
    for setting in settings:
        found.setdefault(tuple(setting.items()), setting)
    return list(found.values())
