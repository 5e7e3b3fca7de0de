"""Describe what commands and stages are asked for: once, for the command line and for Prefect.

A request is a frozen, validated dataclass, with an option of typer on each field. `with_options_of`
makes of it the options of a command, `flows.prefect_flows` the parameters of a flow.

The name is not `requests`: Prefect puts the folder of a flow's file before all others on Python's
path, where this file would be taken for the package of that name.
"""

import inspect
import json
import re
import typing
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Literal, TypeVar, dataclass_transform

import typer
from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass
from typer.models import OptionInfo, ParameterInfo

from courant.runs.record import find_run
from flows.settings import MAX_SEED, MOST_TIME_S, STORE, absolute
from simgen.errors import InputError

Class = TypeVar("Class", bound=type)


def option(text: str, *names: str, **how: Any) -> Any:
    """Describe an option; a flag without a name has no opposite."""
    return typer.Option(*names, help=text, **how)


def argument(text: str, **how: Any) -> Any:
    """Describe an argument."""
    return typer.Argument(help=text, **how)


@dataclass_transform(frozen_default=True, field_specifiers=(Field,))
def request(described: Class) -> Class:
    """Make a class a request: wrong values are an InputError of one line."""
    config = ConfigDict(extra="forbid", use_attribute_docstrings=True)
    made: Any = dataclass(frozen=True, config=config)(described)
    validate = made.__init__

    def init(self: Any, *given: Any, **named: Any) -> None:
        try:
            validate(self, *given, **named)
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(map(str, first["loc"]))
            raise InputError(f"{name} = {first['input']!r}: {first['msg']}") from None

    init.__signature__ = inspect.signature(validate)  # type: ignore[attr-defined]
    made.__init__ = init
    return made


def _found(run: str) -> str:
    return find_run(absolute(run)).url


RunUrl = Annotated[
    str,
    argument(
        "Run directory of a trained model, the beginning of its name, or a packed run.",
        callback=_found,
    ),
]
RunUrls = Annotated[
    list[str], argument("Two run directories or more.", callback=lambda runs: [*map(_found, runs)])
]
Dataset = Annotated[str, argument("The dataset, such as demo-run/store/cylinder-flow.")]
MovedDataset = Annotated[
    str | None,
    option(
        "Where the dataset of the training lies now, if it was moved; checked to be the same.",
        "--dataset",
        callback=lambda url: url and absolute(url),
    ),
]
AllowedHosts = Annotated[
    list[str] | None,
    option(
        "Name that requests may be for, as a proxy passes it on; repeat for several. On"
        " loopback, and where names are given, requests for others are rejected."
    ),
]
Host = Annotated[str, option("Address to listen on; 0.0.0.0 lets other machines in.")]
Port = Annotated[int, option("Port; 0 takes a free one.", min=0, max=65535)]
Version = Annotated[str | None, option("Dataset version, such as v2; the newest where not given.")]
Split = Annotated[Literal["train", "validation", "test"], option("The cases that errors are of.")]
Recipe = Annotated[
    str | None,
    option(
        "Training recipe, as `courant recipes` lists them. Where not given, FAMILY-demo for"
        " the main job, else FAMILY-small, of the pipe with all fields; for imported data and a"
        " family without a recipe one that is fitted to the data."
    ),
]
ExperimentFile = Annotated[str | None, option("A JSON file with an experiment, not a recipe.")]
TrainingBudget = Annotated[
    str | None,
    option(
        "Wall time of the training, such as 3min: as many of the experiment's epochs as"
        " fit, by the pace of the first steps. Default: all of them; 3min where it is fitted to the"
        " data."
    ),
]
Quantities = Annotated[
    list[str] | None,
    option(
        "A quantity of interest as NAME=EXPRESSION:UNIT, as in the example below; repeat for"
        " several. Default: pressure drop, greatest speed and a temperature, as far as there are"
        " any.",
        metavar="NAME=...",
    ),
]
Runs = Annotated[
    str | None,
    option("Folder or URL of runs. Default: COURANT_RUNS, or runs/ beside the dataset's store."),
]
Ranges = dict[str, tuple[float, float]]
Store = Annotated[str | None, option(f"Folder or URL; COURANT_STORE, default: {STORE}.")]
ReportFolder = Annotated[
    str | None,
    option("Folder or URL; default: in COURANT_REPORTS, or in reports/ beside the runs/.", "--out"),
]
NumTrials = Annotated[
    int | None, Field(description="Trials of the sweep; where not given, each setting once.", ge=1)
]
Seed = Annotated[int, Field(description="Seed of all that is drawn.", ge=0, le=MAX_SEED)]
TimeLimit = Annotated[
    float | None,
    option("Seconds of a case's meshing, and of its solver.", "--time-limit"),
    Field(gt=0.0, le=MOST_TIME_S),
]
Cores = Annotated[int, Field(description="Cores of each case; above 1 it runs under MPI.", ge=1)]
CpusPerTrial = Annotated[
    float | None, Field(description="CPU cores of each trial; default: one if there is.", ge=0.0)
]
GpusPerTrial = Annotated[
    float | None, Field(description="GPUs of each trial, such as 0.25; default: one.", ge=0.0)
]


@request
class CaseRequest:
    """What `generate` and `generate-and-train` both take."""

    family: str = "cylinder-flow"
    """The case family, as `courant families` lists them; the name of a template's."""
    template: str | None = None
    """An OpenFOAM case that becomes a family: the numbers of --vary are its parameters."""
    vary: Annotated[
        list[str] | None,
        option(
            "With --template, a parameter's name, place, range and unit, as in the example below;"
            " repeat for several.",
            metavar="NAME=...",
        ),
    ] = None
    fields: list[str] | None = None
    """With --template, OpenFOAM's names of the fields to store, of those that the solver writes.
    Default: those of 0, without turbulence."""
    quantity: Quantities = None
    cases: int = Field(default=8, ge=1, le=1_000_000)
    """Number of design points (grid: at least this many)."""
    sampler: Literal["sobol", "latin-hypercube", "uniform", "grid"] = "sobol"
    """How designs are sampled in the design space."""
    seed: Seed = 42
    preset: str | None = None
    """Solver settings of the family: `trial` is coarse and short, `paper` is the paper's. Where not
    given, `trial` or the family's first."""
    settings: Annotated[
        dict[str, float] | None,
        option(
            "Solver settings that replace those of the preset, such as end_time=120 (s) or"
            " mesh_size=0.5 (m).",
            "--set",
        ),
    ] = None
    designs: str | None = None
    """CSV file of design parameters to solve, instead of sampling; or a dataset, whose test designs
    are solved with its settings and those that are given."""
    store: Store = None
    time_limit_s: TimeLimit = None
    retry_failed: bool = False
    """Solve cases again that failed before."""
    cores: Cores = 1
    archive_raw: bool = False
    """Keep accepted cases' directories in STORE/raw/."""


@request
class GenerationRequest(CaseRequest):
    """Solve what the dataset does not have yet, and publish a version if that is anything new."""

    design_parameters: list[dict[str, float]] | None = None
    """Designs by their parameters, to solve instead of sampled ones."""
    split: Literal["train", "validation", "test", "calibration"] | None = None
    """The split of the cases that are new, such as calibration; drawn where not given."""
    note: str | None = None
    """A line for the record of these cases, such as what they are solved for."""
    until: Annotated[
        dict[str, str] | None,
        option(
            "Solve further designs until the band of 90 % around a regression of this quantity is"
            " as narrow as a share of its mean, such as pressure_loss=5%; repeat for several.",
            "--until",
        ),
    ] = None
    most: int = Field(default=256, ge=1, le=1_000_000)
    """With --until, the most designs that are sampled."""


@request
class TrainingRequest:
    """Fit a recipe, or the experiment in a JSON file, to a dataset version, unless it was."""

    dataset: Dataset
    version: Version = None
    recipe: Recipe = None
    experiment: ExperimentFile = None
    settings: Annotated[
        dict[str, Any] | None,
        option("Values that replace those of the experiment, such as training.epochs=5.", "--set"),
    ] = None
    budget: TrainingBudget = None
    runs: Runs = None


@request
class SweepRequest(TrainingRequest):
    """Try a space's settings around a recipe or experiment; finished trials are not repeated."""

    space: str = "anchors"
    """ablations, anchors, anchors-demo, features, gwa, heads, joint, legibility, levels, loops, or
    a YAML file of your own."""
    trials: NumTrials = None
    seed: Seed = 42
    early_stopping: Annotated[
        bool,
        option(
            "End trials early that do worse than others, or none, as the paper's figures need it.",
            "--early-stopping/--to-the-end",
        ),
    ] = True
    cpus_per_trial: CpusPerTrial = None
    gpus_per_trial: GpusPerTrial = None


@request
class EvaluationRequest:
    """Measure a run on a split beside its references, and write the report's folder."""

    run: RunUrl
    report: ReportFolder = None
    split: Split = "test"
    dataset: MovedDataset = None


@request
class OptimisationRequest:
    """Find the best designs by a run's quantities, solve each, and learn from it."""

    run: RunUrl
    maximise: list[str] | None = None
    """Quantities to maximise, such as efficiency."""
    minimise: list[str] | None = None
    """Quantities to minimise. With several objectives in all, designs form a Pareto front."""
    subject_to: list[str] | None = None
    """Limits of quantities, such as head>=60,shaft_power<=900."""
    solves: int = Field(default=5, ge=1, le=1000)
    """Candidates that are solved; those that are rejected or fail count."""
    seed: Seed = 42
    out: Annotated[
        str | None,
        option("Folder or URL of the search; default: one in optimisations/ beside the runs/."),
    ] = None
    dataset: MovedDataset = None
    time_limit_s: TimeLimit = None
    cores: Cores = 1


@request
class BenchmarkRequest(TrainingRequest):
    """Compare models on a dataset version at an equal budget. Finished trials are not repeated."""

    models: list[str] | None = None
    """Models with commas between them: courant, courant-gwa, courant-learned-anchors,
    courant-placed-anchors, courant-legible, courant-abstract-queries, transolver, fno, upt, enf,
    mgn, factformer, or kinds of your own. NAME-x2 averages two of them within the same budget, up
    to -x64. Default: courant,transolver,upt."""
    space: str | None = None
    """Compare the settings of a search space instead: features, ablations, anchors, or a YAML file
    of your own."""
    budget: str = "30min"
    """What each training may spend: 40epochs, or processor time such as 90s, 30min, 2h."""
    rates: list[float] | None = None
    """Learning rates that are tried for each model; one alone is taken as it is. Default:
    3e-4,1e-3,3e-3."""
    seeds: int = Field(default=1, ge=1)
    """Trainings of each model."""
    best: int | None = Field(default=None, ge=1)
    """So many models get all seeds, by the first one's validation error; all where not given."""
    sizes: str | None = None
    """A JSON file of model sizes, such as {"transolver": {"width": 64}}."""
    out: str | None = None
    """The benchmark's folder or s3://bucket/prefix; one among the runs where not given."""
    cpus_per_trial: CpusPerTrial = None
    gpus_per_trial: GpusPerTrial = None


@request
class MainJobRequest(CaseRequest):
    """Sample and solve designs, publish a version, train on it, evaluate, report; or some of it."""

    settings: Annotated[
        dict[str, Any] | None,
        option(
            "Solver settings that replace those of the preset, such as end_time=120 (s) or"
            " mesh_size=0.5 (m); and values of the experiment, such as training.epochs=5.",
            "--set",
        ),
    ] = None
    recipe: Recipe = None
    experiment: ExperimentFile = None
    budget: TrainingBudget = None
    sweep: str | None = None
    """Try this search space first, and train its best setting; as in `courant sweep`."""
    trials: NumTrials = None
    runs: Runs = None
    report: ReportFolder = None
    dataset: str | None = None
    """Generate nothing: train on this dataset."""
    version: Version = None
    run: str | None = None
    """Train nothing: evaluate this run and write its report."""
    until: Literal["dataset", "run", "report"] = "report"
    """The last stage to execute."""


def options_of(asked: Any) -> dict[str, Any]:
    """Return the option, or argument, of each field: that of its type, or made of its docstring."""
    found: dict[str, Any] = {}
    texts = {  # of a class's own fields alone: those of its bases are described there
        name: " ".join(field.description.split())
        for base in reversed(asked.__mro__)
        for name, field in getattr(base, "__pydantic_fields__", {}).items()
        if field.description
    }
    for name, field in asked.__pydantic_fields__.items():
        described = [each for each in field.metadata if isinstance(each, ParameterInfo)]
        limits = {
            name: getattr(each, bound)
            for each in field.metadata
            for name, bound in (("min", "ge"), ("max", "le"))
            if hasattr(each, bound)
        }
        found[name] = described[0] if described else option(texts[name], **limits)
        if isinstance(found[name], OptionInfo) and found[name].default is ...:
            found[name].default = f"--{name.replace('_', '-')}"  # typer has its name here
    return found


def with_options_of(asked: Any, *without: str) -> Callable[[Callable[..., None]], Any]:
    """Give a command the request's fields as arguments and options.

    The command is called with a mapping of them first, and with its own parameters, which take the
    place of fields of the same name. A mapping is given as NAME=VALUE, several times, and a list as
    A,B,..., or several times.
    """

    def decorate(command: Callable[..., None]) -> Any:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        left_out = {*without, *(each.name for each in own)}
        hints, options = typing.get_type_hints(asked), options_of(asked)
        asked_for = [name for name in options if name not in left_out]
        made = []
        parsers: dict[str, Callable[[Any], Any]] = {}
        for name in asked_for:
            hint, field = hints[name], asked.__pydantic_fields__[name]
            kinds = [typing.get_origin(part) for part in (hint, *typing.get_args(hint))]
            if dict in kinds:
                kind = next(filter(_PARSERS.get, typing.get_args(hint)))
                parsers[name] = partial(_PARSERS[kind], option=options[name].default)
                options[name].metavar = options[name].metavar or "NAME=VALUE"
                hint = list[str] | None
            elif list in kinds:
                parsers[name] = parse_list
                options[name].metavar = options[name].metavar or "A,B,..."
                hint = list[str] | None
            default = inspect.Parameter.empty if field.is_required() else field.default
            keyword, annotation = inspect.Parameter.KEYWORD_ONLY, Annotated[hint, options[name]]
            made.append(inspect.Parameter(name, keyword, default=default, annotation=annotation))
        made += [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]

        def run(**given: Any) -> None:
            parsed = {name: given.pop(name) for name in asked_for}
            parsed |= {name: parse(parsed[name]) or None for name, parse in parsers.items()}
            command(parsed, **given)

        run.__signature__ = inspect.Signature(made)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in made}
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        return run

    return decorate


def parse_list(texts: list[str] | None) -> list[str]:
    """Parse A,B,... options into a list; commas in parentheses and of NAME=... are kept."""
    split = (re.split(r",(?![^(]*\))", text) if "=" not in text else [text] for text in texts or ())
    return [part.strip() for parts in split for part in parts if part.strip()]


def parse_pairs(
    texts: list[str] | None,
    option: str,
    parse: Callable[[str], Any] = str,
    form: str = "NAME=VALUE",
) -> dict[str, Any]:
    """Parse `name=value` options into a mapping."""
    found = {}
    for text in texts or []:
        name, _, value = (part.strip() for part in text.partition("="))
        try:
            if not name or not value or name in found:
                raise ValueError
            found[name] = parse(value)
        except ValueError:
            why = "is given twice" if name in found else f"is not {form}"
            raise typer.BadParameter(f"'{text}' {why}", param_hint=option) from None
    return found


def _json_or_text(text: str) -> Any:
    with suppress(ValueError):
        return json.loads(text)
    return text


def _bounds(text: str) -> tuple[float, float]:
    low, high = map(float, text.split(":"))
    return low, high


parse_settings = partial(parse_pairs, parse=float, form="NAME=VALUE with a number")
_PARSERS: dict[Any, Callable[..., Any]] = {
    dict[str, str]: parse_pairs,
    dict[str, float]: parse_settings,
    dict[str, Any]: partial(parse_pairs, parse=_json_or_text),
    Ranges: partial(parse_pairs, parse=_bounds, form="NAME=LOW:HIGH with numbers"),
}
"""By the type of a request's field; values that are no JSON are texts"""
