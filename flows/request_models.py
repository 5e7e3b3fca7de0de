"""Describe what each stage is asked for: once, for the command line and for Prefect's flows.

A request is a frozen, validated dataclass, with a description on each field. `with_options_of`
makes of it the options of a command, `flows.prefect_flows` the parameters of a flow.

The name is not `requests`: Prefect puts the folder of a flow's file before all others on Python's
path, where this file would be taken for the package of that name.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Annotated, Any, Literal, TypeVar, dataclass_transform

import typer
from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo

from flows.settings import MAX_SEED, MOST_TIME_S, REPORTS, RUNS, STORE
from simgen.errors import InputError

Class = TypeVar("Class", bound=type)
MOST_CASES = 1_000_000


@dataclass_transform(frozen_default=True)
def request(described: Class) -> Class:
    """Make a class a request: wrong values are an InputError of one line."""
    made: Any = dataclass(frozen=True, config=ConfigDict(extra="forbid"))(described)
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


def about(
    text: str, option: str | None = None, metavar: str | None = None, **limits: Any
) -> FieldInfo:
    """Describe a field; `option` is its name on the command line, where that is another one.

    A field without a default is an argument of the command, or an option where that is named.
    """
    extra: Any = {"option": option, "metavar": metavar} if option else None
    info: FieldInfo = Field(description=text, json_schema_extra=extra, **limits)
    return info


Dataset = Annotated[
    str, about("The dataset: a folder or s3://bucket/prefix, such as demo-run/store/cylinder-flow.")
]
Version = Annotated[str | None, about("Dataset version, such as v2; the newest where not given.")]
Recipe = Annotated[
    str | None,
    about(
        "Training recipe, as `courant recipes` lists them. Where not given, FAMILY-demo for the"
        " main job, else FAMILY-small; for imported data and a family without a recipe one that is"
        " fitted to the data."
    ),
]
ExperimentFile = Annotated[
    str | None, about("A JSON file with an experiment, in place of a recipe.")
]
Runs = Annotated[
    str | None,
    about(
        "Where trained models are: a folder or s3://bucket/prefix. COURANT_RUNS where not given;"
        f" default: {RUNS}."
    ),
]
Store = Annotated[
    str | None,
    about(
        "Where datasets are: a folder or s3://bucket/prefix. COURANT_STORE where not given;"
        f" default: {STORE}."
    ),
]
ReportFolder = Annotated[
    str | None,
    about(
        "Folder or s3://bucket/prefix of the report. Where not given, a folder of the run's name"
        f" in COURANT_REPORTS; default: {REPORTS}."
    ),
]
Trials = Annotated[
    int | None, about("Trials of the sweep; each setting of the space once where not given.", ge=1)
]
CpusPerTrial = Annotated[
    float | None, about("CPU cores of each trial; one where not given and nodes have any.", ge=0.0)
]
GpusPerTrial = Annotated[
    float | None,
    about("GPUs of each trial, such as 0.25; one where not given and there are any.", ge=0.0),
]


@request
class CaseRequest:
    """What `generate` and `generate-and-train` both take."""

    family: Annotated[str, about("The case family, as `courant families` lists them.")] = (
        "cylinder-flow"
    )
    cases: Annotated[
        int, about("Number of design points (grid: at least this many).", ge=1, le=MOST_CASES)
    ] = 8
    sampler: Annotated[
        Literal["sobol", "latin-hypercube", "uniform", "grid"],
        about("How designs are sampled in the design space."),
    ] = "sobol"
    seed: Annotated[int, about("Seed of the sampler.", ge=0, le=MAX_SEED)] = 42
    preset: Annotated[
        str | None,
        about(
            "Solver settings of the family: `trial` is coarse and short, `paper` is the paper's."
            " Where not given, `trial` or the family's first."
        ),
    ] = None
    settings: Annotated[
        dict[str, float] | None,
        about(
            "Solver settings that replace those of the preset, such as end_time=120 (s) or"
            " mesh_size=0.5 (m).",
            option="--set",
        ),
    ] = None
    designs: Annotated[
        str | None,
        about(
            "CSV file of design parameters to solve, instead of sampling; or a dataset, whose test"
            " designs are solved with its settings and those that are given."
        ),
    ] = None
    store: Store = None
    time_limit_s: Annotated[
        float | None,
        about(
            "Wall time of a case's meshing, and of its solver, in seconds.",
            option="--time-limit",
            gt=0.0,
            le=MOST_TIME_S,
        ),
    ] = None
    retry_failed: Annotated[bool, about("Solve cases again that failed before.")] = False
    cores: Annotated[
        int, about("Cores of each case, on one machine; above 1 its solver runs under MPI.", ge=1)
    ] = 1
    archive_raw: Annotated[
        bool, about("Keep the OpenFOAM directories of accepted cases too, in STORE/raw/.")
    ] = False


@request
class GenerationRequest(CaseRequest):
    """Solve what the dataset does not have yet, and publish a version if that is anything new."""

    design_parameters: Annotated[
        list[dict[str, float]] | None,
        about("Designs by their parameters, to solve instead of sampled ones."),
    ] = None
    split: Annotated[
        Literal["train", "validation", "test", "calibration"] | None,
        about("The split of the cases that are new, such as calibration; drawn where not given."),
    ] = None


@request
class TrainingRequest:
    """Fit a recipe, or the experiment in a JSON file, to a dataset version.

    A finished run is not repeated.
    """

    dataset: Dataset
    version: Version = None
    recipe: Recipe = None
    experiment: ExperimentFile = None
    runs: Runs = None


@request
class SweepRequest(TrainingRequest):
    """Try a space's settings around a recipe or the experiment in a JSON file.

    Finished trials are not repeated.
    """

    space: Annotated[
        str,
        about(
            "ablations, anchors, features, gwa, heads, legibility, levels, loops, or a YAML file"
            " of your own."
        ),
    ] = "anchors"
    trials: Trials = None
    seed: Annotated[
        int, about("Seed of settings' order and of drawn values.", ge=0, le=MAX_SEED)
    ] = 42
    early_stopping: Annotated[
        bool,
        about(
            "End trials early that do worse than others, or none, as the paper's figures need it.",
            option="--early-stopping/--to-the-end",
        ),
    ] = True
    cpus_per_trial: CpusPerTrial = None
    gpus_per_trial: GpusPerTrial = None


@request
class EvaluationRequest:
    """Measure a run on a split beside its references, and write the report's folder."""

    run: Annotated[
        str, about("The trained model: a run directory, s3://bucket/prefix or a packed run.")
    ]
    report: ReportFolder = None
    split: Annotated[
        Literal["train", "validation", "test"], about("The cases that errors are measured on.")
    ] = "test"
    dataset: Annotated[
        str | None,
        about(
            "Where the dataset of the training lies now, if it was moved; checked to be the same."
        ),
    ] = None


@request
class BenchmarkRequest(TrainingRequest):
    """Compare models on a dataset version at an equal budget. Finished trials are not repeated."""

    models: Annotated[
        list[str] | None,
        about(
            "Models with commas between them: courant, courant-gwa, courant-learned-anchors,"
            " courant-placed-anchors, courant-legible, courant-abstract-queries, transolver,"
            " fno, upt, enf, mgn, factformer, or kinds of your own."
            " NAME-x2 averages two of them within the same budget, up to -x64."
            " Default: courant,transolver,upt."
        ),
    ] = None
    space: Annotated[
        str | None,
        about(
            "Compare the settings of a search space instead: features, ablations, anchors, or a"
            " YAML file of your own."
        ),
    ] = None
    budget: Annotated[
        str,
        about("What each training may spend: 40epochs, or processor time such as 90s, 30min, 2h."),
    ] = "30min"
    rates: Annotated[
        list[float] | None,
        about(
            "Learning rates that are tried for each model; one alone is taken as it is."
            " Default: 3e-4,1e-3,3e-3."
        ),
    ] = None
    seeds: Annotated[int, about("Trainings of each model.", ge=1)] = 1
    best: Annotated[
        int | None,
        about(
            "So many models get all seeds, by the first one's validation error; all where not"
            " given.",
            ge=1,
        ),
    ] = None
    sizes: Annotated[
        str | None, about('A JSON file of model sizes, such as {"transolver": {"width": 64}}.')
    ] = None
    out: Annotated[
        str | None,
        about("The benchmark's folder or s3://bucket/prefix; one among the runs where not given."),
    ] = None
    cpus_per_trial: CpusPerTrial = None
    gpus_per_trial: GpusPerTrial = None


@request
class MainJobRequest(CaseRequest):
    """Sample and solve designs, publish a dataset version, train on it, evaluate, report.

    Stages that are done elsewhere are skipped.
    """

    recipe: Recipe = None
    experiment: ExperimentFile = None
    sweep: Annotated[
        str | None,
        about("Try this search space first, and train its best setting; as in `courant sweep`."),
    ] = None
    trials: Trials = None
    runs: Runs = None
    report: ReportFolder = None
    dataset: Annotated[str | None, about("Generate nothing: train on this dataset.")] = None
    version: Version = None
    run: Annotated[str | None, about("Train nothing: evaluate this run and write its report.")] = (
        None
    )
    until: Annotated[Literal["dataset", "run", "report"], about("The last stage to execute.")] = (
        "report"
    )


def info_of(asked: type) -> dict[str, FieldInfo]:
    """Return what is declared of each field: description, limits, option."""
    hints = typing.get_type_hints(asked, include_extras=True)
    return {each.name: typing.get_args(hints[each.name])[1] for each in fields(asked)}


def with_options_of(asked: type, *without: str) -> Callable[[Callable[..., None]], Any]:
    """Give a command the request's fields as arguments (those without a default) and options.

    The command is called with a mapping of them first, and with its own parameters, which take the
    place of fields of the same name.
    """

    def decorate(command: Callable[..., None]) -> Any:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        left_out = {*without, *(each.name for each in own)}
        hints, infos = typing.get_type_hints(asked), info_of(asked)
        names = [each.name for each in fields(asked) if each.name not in left_out]

        def run(**given: Any) -> None:
            parsed = {
                name: _parse(given.pop(name), hints[name], _option(name, infos[name]))
                for name in names
            }
            command(parsed, **given)

        made = [
            inspect.Parameter(
                each.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if each.default is MISSING else each.default,
                annotation=_typer_type(each.name, hints[each.name], infos[each.name], each.default),
            )
            for each in fields(asked)
            if each.name in names
        ]
        made += [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
        run.__signature__ = inspect.Signature(made)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in made}
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        return run

    return decorate


def _typer_type(name: str, hint: Any, info: FieldInfo, default: Any) -> Any:
    """Return the field's annotation for typer: the type of its text, and its help."""
    extra: Any = info.json_schema_extra or {}
    if default is MISSING and "option" not in extra:
        return Annotated[hint, typer.Argument(help=info.description)]
    named: dict[str, Any] = {"help": info.description, "metavar": extra.get("metavar")}
    for limit in info.metadata:
        named |= {"min": limit.ge} if hasattr(limit, "ge") else {}
        named |= {"max": limit.le} if hasattr(limit, "le") else {}
    if _holds(hint, dict):
        hint = list[str] | None
        named["metavar"] = named["metavar"] or "NAME=VALUE"
    elif _holds(hint, list):
        hint, named["metavar"] = str | None, "A,B,..."
    return Annotated[hint, typer.Option(_option(name, info), **named)]


def _option(name: str, info: FieldInfo) -> str:
    extra: Any = info.json_schema_extra or {}
    return str(extra.get("option", f"--{name.replace('_', '-')}"))


def _parse(value: Any, hint: Any, option: str) -> Any:
    """Return the field's value of what typer found."""
    if dict[str, str] in (hint, *typing.get_args(hint)):
        return parse_pairs(value, option)
    if _holds(hint, dict):
        return parse_settings(value, option)
    if _holds(hint, list):
        return [part.strip() for part in value.split(",") if part.strip()] if value else None
    return value


def _holds(hint: Any, kind: type) -> bool:
    """Check whether a type is a `kind`, or `kind | None`."""
    return any(typing.get_origin(each) is kind for each in (hint, *typing.get_args(hint)))


def parse_settings(changes: list[str] | None, option: str = "--set") -> dict[str, float] | None:
    """Parse `name=value` options into a mapping of numbers."""
    settings = {}
    for name, value in parse_pairs(changes, option).items():
        try:
            settings[name] = float(value)
        except ValueError:
            raise typer.BadParameter(
                f"'{name}={value}' is not NAME=VALUE with a number", param_hint=option
            ) from None
    return settings or None


def parse_pairs(texts: list[str] | None, option: str) -> dict[str, str]:
    """Parse `name=value` options into a mapping."""
    found = {}
    for text in texts or []:
        name, _, value = (part.strip() for part in text.partition("="))
        if not name or not value:
            raise typer.BadParameter(f"'{text}' is not NAME=VALUE", param_hint=option)
        found[name] = value
    return found
