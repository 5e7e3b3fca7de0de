"""Define what a sweep varies: values and ranges for an experiment's keys, and their settings.

    about: number of anchors, a panel of fig:ablations
    design: isolated
    parameters:
      model.num_anchors: [16, 32, 64]
      training.learning_rate: {min: 1.0e-4, max: 3.0e-3, log: true}
    choices:
      full mesh: {data.encoder: mesh, model.num_features: fields + distance}

`isolated` is the paper's design: the baseline, and from it one key changed at a time. `grid` is
every combination, `random` draws (the only one for ranges). `choices` are one further key,
`choice`: the baseline, or one of the named changes of several keys at once. A choice may give
`model.num_features` in words, because its number depends on the family.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from importlib.resources import files
from typing import Annotated, Any, Literal, Self

import numpy as np
import yaml
from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from courant.experiment import DATA, Experiment, Frozen, wrong_keys
from simgen.errors import InputError, did_you_mean
from simgen.whole_file import local_path

Value = bool | int | float | str | None
Setting = dict[str, Value]
"""Such as {"model.num_anchors": 16}; the key `choice` holds the name of a choice."""

CHOICE, BASELINE = "choice", "baseline"  # The key of choices, and its value that changes nothing
SECTIONS = ("model", "data", "training")
FIXED = {
    "training": "seed epochs budget_s patience validate_every validation_windows checkpoint_every"
    " keep_checkpoints workers use_gpu",
    "data": "window_steps input_steps step_s start_s",
    "model": "input_steps",
}
"""Keys that a sweep sets itself, or by which its trials are compared, by section"""
TRANSIENT = ("model.processor", "model.solver", "model.step_size", "model.solver_tolerance")
"""Keys without effect in a steady model; they stay as in the baseline there"""
SIZE = "model.num_features"
FIELDS, WITH_DISTANCE = "fields", "fields + distance"
"""Words for SIZE: the modelled channels at each encoder point, without or with the distance field
"""
MAX_SETTINGS = 10_000  # of an isolated design or a grid: each is an experiment to train
LARGEST = 1e15  # Bound of a range's numbers


def label(key: str) -> str:
    """Return the name of a key's column: `num_anchors` for `model.num_anchors`."""
    return key.rpartition(".")[2]


def describe(setting: Setting) -> str:
    """`num_anchors 16, num_levels 3`"""
    return ", ".join(f"{label(key)} {show(value)}" for key, value in setting.items())


def show(value: Value) -> str:
    """Format a value for figures and tables."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _as_number(value: Any) -> Any:
    """Parse numbers that YAML takes for words, such as 1e-4 without a point."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


_Value = Annotated[Value, BeforeValidator(_as_number)]
_Name = Annotated[str, Field(pattern=r"^[^\W_][^\x00-\x1f\x7f]*$", max_length=80)]
_Bound = Annotated[int | float, Field(ge=-LARGEST, le=LARGEST)]


class Domain(Frozen):
    """The values of a key: a list to choose from, or the numbers between two bounds."""

    values: tuple[_Value, ...] = ()
    min: _Bound | None = None
    max: _Bound | None = None
    log: bool = False

    @model_validator(mode="after")
    def _list_or_range(self) -> Self:
        if self.values and self.min is None and self.max is None:
            return self
        if self.values or self.min is None or self.max is None:
            raise ValueError("give a list of values, or min and max")
        if not self.min < self.max or (self.log and self.min <= 0):
            raise ValueError(
                f"min {self.min:g} and max {self.max:g} make no range; min < max, and 0 < min"
                " where log"
            )
        return self

    def draw(self, generator: np.random.Generator) -> Value:
        """Draw a value; whole numbers between whole bounds."""
        if self.min is None or self.max is None:
            return self.values[int(generator.integers(len(self.values)))]
        low, high = (math.log(self.min), math.log(self.max)) if self.log else (self.min, self.max)
        drawn = float(generator.uniform(low, high))
        number = math.exp(drawn) if self.log else drawn
        is_whole = isinstance(self.min, int) and isinstance(self.max, int)
        return round(number) if is_whole else float(f"{number:.4g}")


class SearchSpace(Frozen):
    """Keys of an experiment with their possible values."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    about: str = ""
    design: Literal["isolated", "grid", "random"]
    parameters: dict[str, Domain] = Field(default={})
    choices: dict[_Name, dict[str, _Value]] = Field(default={}, max_length=MAX_SETTINGS)
    """By name, the values that its keys get together"""

    @field_validator("parameters", mode="before")
    @classmethod
    def _lists_are_values(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {key: {"values": of} if isinstance(of, list) else of for key, of in value.items()}

    @model_validator(mode="after")
    def _design_fits(self) -> Self:
        if not (self.parameters or self.choices):
            raise ValueError("parameters: nothing is varied; name a key, or give choices")
        ranges = [key for key, item in self.parameters.items() if not item.values]
        if ranges and self.design != "random":
            raise ValueError(
                f"{', '.join(ranges)}: a range needs `design: random`;"
                f" {self.design} takes lists of values"
            )
        if BASELINE in self.choices:
            raise ValueError(f"the name {BASELINE} is that of the experiment itself")
        for values in self.choices.values():
            if both := sorted(set(values) & set(self.parameters)):
                raise ValueError(f"{', '.join(both)}: in choices and in parameters; leave one out")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """The keys of a setting, in tables' order; Prefect would take `keys` for a mapping."""
        return (*self.parameters, CHOICE) if self.choices else tuple(self.parameters)

    def baseline(self, experiment: Experiment) -> Setting:
        """Return the experiment's own values; InputError for a key that experiments do not have."""
        content = experiment.model_dump()
        own = {f"{part}.{name}": of for part in SECTIONS for name, of in content[part].items()}
        # A choice of the other task, steady or transient, is left out of the sweep.
        others = {f"data.{name}" for kind in DATA.values() for name in kind.model_fields} - set(own)
        linked = [key for values in self.choices.values() for key in values if key not in others]
        for key in (*self.parameters, *linked):
            section, _, name = key.partition(".")
            if name in FIXED.get(section, "").split():
                raise InputError(
                    f"space {self.name}: {key} cannot be swept: trials are compared by it, or the"
                    " sweep sets it; leave it to the experiment"
                )
            if key not in own:
                near = did_you_mean(key, own) or f"give {' or '.join(SECTIONS)}, and .NAME"
                raise InputError(f"space {self.name}: an experiment has no key {key}; {near}")
        setting: Setting = {key: own[key] for key in self.parameters}
        return {**setting, CHOICE: BASELINE} if self.choices else setting

    def applied_to(
        self, experiment: Experiment, check: Callable[[Experiment], object] = lambda made: None
    ) -> tuple[Self, tuple[str, ...]]:
        """Return this space with the choices that change the experiment, and a line for each other.

        `check` raises InputError for an experiment that does not fit the data, such as by its
        sizes. InputError where nothing remains to be varied.
        """
        baseline, task = self.baseline(experiment), experiment.task
        known = {f"data.{name}" for name in DATA[task].model_fields}
        kept: dict[str, Experiment] = {}
        left_out = []
        for name, values in self.choices.items():
            try:
                for key in values:
                    if key.startswith("data.") and key not in known:
                        raise InputError(f"{task} experiments have no {key}")
                    if task == "steady" and key in TRANSIENT:
                        raise InputError(f"{key} decides nothing in a steady model")
                made = self.apply(experiment, {**baseline, CHOICE: name})
                if made == experiment:
                    raise InputError("it is so already")
                if same := [other for other in kept if kept[other] == made]:
                    raise InputError(f"it comes to the same as {same[0]}")
                check(made)
                kept[name] = made
            except InputError as error:
                left_out.append(f"{name} does not apply to {experiment.name}: {error}")
        if left_out and not kept and not self.parameters:
            raise InputError(f"space {self.name}: {left_out[0]}")
        choices = {name: self.choices[name] for name in kept}
        return self.model_copy(update={"choices": choices}), tuple(left_out)

    def count(self, experiment: Experiment) -> int | None:
        """Return the number of different settings; None where values are drawn."""
        return None if self.design == "random" else len(self._all(experiment))

    def settings(self, experiment: Experiment, seed: int) -> Iterator[Setting]:
        """Yield settings without end, the first n of them the same for every n.

        They are in random order, which early stopping relies on, and none repeats before all have
        come. `isolated` begins with the baseline, so that it is trained first.
        """
        generator = np.random.default_rng(seed)
        if self.design == "random":
            domains, baseline = self._domains(experiment), self.baseline(experiment)
            while True:
                yield {**baseline, **{key: item.draw(generator) for key, item in domains.items()}}
        found = self._all(experiment)
        first = 1 if self.design == "isolated" else 0
        while True:
            order = [*range(first), *(first + generator.permutation(len(found) - first))]
            yield from (found[index] for index in order)

    def apply(self, experiment: Experiment, setting: Setting) -> Experiment:
        """Apply a setting to the experiment; InputError for values that it cannot have."""
        values = {**setting, **self.choices.get(str(setting.get(CHOICE)), {})}
        values.pop(CHOICE, None)
        if (size := values.get(SIZE)) in (FIELDS, WITH_DISTANCE):
            model = experiment.model
            fields = model.num_outputs * getattr(experiment.data, "input_steps", 1)
            distance = model.num_query_features or model.num_features - fields
            if size == WITH_DISTANCE and distance <= 0:
                raise InputError(
                    f"{SIZE}: {experiment.name} has no distance field that {WITH_DISTANCE} could be"
                    " counted by; give a number"
                )
            values[SIZE] = fields + distance if size == WITH_DISTANCE else fields
        try:
            return experiment.with_values(values)
        except InputError as error:
            raise InputError(f"setting {describe(setting)} is impossible: {error}") from error

    def _domains(self, experiment: Experiment) -> dict[str, Domain]:
        """Return the values of each key of a setting that change anything in the experiment."""
        baseline, domains = self.baseline(experiment), dict(self.parameters)
        if experiment.task == "steady":
            domains |= {key: Domain(values=(baseline[key],)) for key in TRANSIENT if key in domains}
        if self.choices:
            # Unparsed: a name may look like a number.
            domains[CHOICE] = Domain.model_construct(values=(BASELINE, *self.choices))
        return domains

    def _all(self, experiment: Experiment) -> list[Setting]:
        """Return the different settings of a design that does not draw."""
        baseline = self.baseline(experiment)
        lists = {key: item.values for key, item in self._domains(experiment).items()}
        count = math.prod if self.design == "grid" else sum
        num = count(map(len, lists.values()))
        if num > MAX_SETTINGS:
            raise InputError(
                f"space {self.name}: {num:,} settings, {MAX_SETTINGS:,} at most; give fewer values,"
                " or draw them with design: random"
            )
        changed: Iterable[Setting]
        if self.design == "isolated":
            changed = ({}, *({key: value} for key in lists for value in lists[key]))
        else:
            combined = itertools.product(*lists.values())
            changed = (dict(zip(lists, chosen, strict=True)) for chosen in combined)
        made: list[Setting] = [{**baseline, **change} for change in changed]
        return list({tuple(setting.items()): setting for setting in made}.values())


def shipped_spaces() -> list[str]:
    """Name the spaces that come with the package."""
    folder = files("courant.sweeps") / "spaces"
    return sorted(
        item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml")
    )


def load_space(name: str) -> SearchSpace:
    """Load a shipped space by name, or your own by its file's path; InputError names the fault."""
    if name in shipped_spaces():
        return parse_space(name, (files("courant.sweeps") / "spaces" / f"{name}.yaml").read_text())
    path = local_path(name)
    if path.suffix not in (".yaml", ".yml"):
        raise InputError(
            f"space '{name}' is unknown; choose one of {', '.join(shipped_spaces())}, or give a"
            " .yaml file"
        )
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"space {name} cannot be read: {error}") from error
    return parse_space(path.stem.lower().replace("_", "-"), text)


def parse_space(name: str, text: str) -> SearchSpace:
    """Parse a SearchSpace from YAML; InputError in one line."""
    try:
        content = yaml.safe_load(text)
    # YAML has numbers and dates that Python does not.
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise InputError(
            f"space {name} is not valid YAML: {' '.join(str(error).split())[:500]}"
        ) from error
    if not isinstance(content, dict):
        raise InputError(f"space {name} must map design and parameters, see docs/sweeps.md")
    try:
        return SearchSpace.model_validate({"name": name, **content})
    except ValidationError as error:
        raise InputError(f"space {name}: {wrong_keys(error)}") from error
