"""Define options that several commands share."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from flows.settings import MAX_SEED, MOST_TIME_S, RUNS, STORE


class SamplerChoice(StrEnum):
    """Samplers, as typer wants them."""

    sobol = "sobol"
    latin_hypercube = "latin-hypercube"
    uniform = "uniform"
    grid = "grid"


class SplitChoice(StrEnum):
    """Splits, as typer wants them."""

    train = "train"
    validation = "validation"
    test = "test"


class NewSplitChoice(StrEnum):
    """Splits that new cases may be published in, as typer wants them."""

    train = "train"
    validation = "validation"
    test = "test"
    calibration = "calibration"


class StageChoice(StrEnum):
    """Where the main job may end, as typer wants them."""

    dataset = "dataset"
    run = "run"
    report = "report"


Family = Annotated[str, typer.Argument(help="Case family, such as cylinder-flow.")]
Cases = Annotated[
    int,
    typer.Option(min=1, max=1_000_000, help="Number of design points (grid: at least this many)."),
]
SamplerOption = Annotated[SamplerChoice, typer.Option(help="How the design space is sampled.")]
Seed = Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of the sampler.")]
Preset = Annotated[
    str | None,
    typer.Option(
        help="Solver settings of the family: trial (500 s) or paper (1000 s) for cylinder-flow.",
        show_default="trial, or the family's first",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Replace one solver setting, such as end_time=120 (s) or mesh_size=0.5 (m).",
    ),
]
Designs = Annotated[
    str | None,
    typer.Option(
        help=(
            "CSV file of design parameters to solve, instead of sampling; or a dataset, whose test"
            " designs are solved with its settings and those of --set."
        )
    ),
]
Runs = Annotated[
    str | None,
    typer.Option(
        help=(
            "Where trained models live: a folder or s3://bucket/prefix."
            f" [env: COURANT_RUNS; default: {RUNS}]"
        )
    ),
]
TimeLimit = Annotated[
    float | None,
    typer.Option(
        min=1.0,
        max=MOST_TIME_S,
        help="Wall time of a case's meshing, and of its solver, in seconds.",
    ),
]
RetryFailed = Annotated[
    bool, typer.Option("--retry-failed", help="Solve cases again that failed before.")
]
Cores = Annotated[
    int,
    typer.Option(
        min=1, help="Cores of each case, on one machine; above 1 its solver runs under MPI."
    ),
]
ArchiveRaw = Annotated[
    bool,
    typer.Option(
        "--archive-raw", help="Keep the OpenFOAM directories of accepted cases too, in STORE/raw/."
    ),
]
Recipe = Annotated[
    str | None,
    typer.Option(
        help=(
            "Training recipe; `courant recipes` lists them. Default: FAMILY-demo for `run`,"
            " else FAMILY-small; for imported data and a family without a recipe one that is"
            " fitted to the data."
        )
    ),
]
Trials = Annotated[
    int | None,
    typer.Option(min=1, help="Trials of the sweep; default: each setting of the space once."),
]
CpusPerTrial = Annotated[
    float | None,
    typer.Option(min=0.0, help="CPU cores of each trial; default: one where nodes have any."),
]
GpusPerTrial = Annotated[
    float | None,
    typer.Option(
        min=0.0, help="GPUs of each trial, such as 0.25; default: one where there are any."
    ),
]
ExperimentFile = Annotated[
    Path | None, typer.Option(help="A JSON file with an experiment, instead of a recipe.")
]


def file_of(experiment: Path | None, recipe: str | None) -> str | None:
    """Return the experiment's file; a recipe beside it would not be used."""
    if experiment is not None and recipe is not None:
        raise typer.BadParameter(f"--experiment and --recipe {recipe} are given; leave one out")
    return None if experiment is None else str(experiment)


Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show Prefect's own log.")]
RunUrl = Annotated[
    str,
    typer.Argument(
        help="Run directory of a trained model: a folder, s3://bucket/prefix or a packed run."
    ),
]
Store = Annotated[
    str | None,
    typer.Option(
        help=(
            "Where datasets live: a folder or s3://bucket/prefix."
            f" [env: COURANT_STORE; default: {STORE}]"
        )
    ),
]
DatasetUrl = Annotated[
    str,
    typer.Argument(
        help="Dataset: a folder or s3://bucket/prefix, such as demo-run/store/cylinder-flow."
    ),
]
MovedDataset = Annotated[
    str | None,
    typer.Option(
        "--dataset",
        metavar="URL",
        help="Where the dataset of the training lies now, if it was moved; checked to be the same.",
    ),
]
AllowedHosts = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help=(
            "Name that requests may be for, as a proxy passes it on; repeat for several. On"
            " loopback, and where names are given, requests for others are refused."
        ),
    ),
]
Version = Annotated[
    str | None, typer.Option(help="Dataset version, such as v2; default: the newest.")
]


def allowed_hosts(names: list[str] | None) -> tuple[str, ...]:
    """Return the names given for --allow-host; BadParameter for what is no host's name."""
    for name in names or ():
        if not re.fullmatch(r"(\*\.)?[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]", name):
            raise typer.BadParameter(
                f"'{name}' is not the name of a host: write it without scheme and port, such as"
                " courant.example.com or *.example.com",
                param_hint="--allow-host",
            )
    return tuple(names or ())


def parse_settings(changes: list[str] | None, option: str = "--set") -> dict[str, float] | None:
    """Parse `name=value` options into a mapping."""
    settings = {}
    for change in changes or []:
        name, _, value = change.partition("=")
        try:
            settings[name.strip()] = float(value)
        except ValueError:
            raise typer.BadParameter(
                f"'{change}' is not NAME=VALUE with a number", param_hint=option
            ) from None
    return settings or None
