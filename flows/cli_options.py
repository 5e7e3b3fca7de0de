"""What several commands ask for: their options, and the checks that refuse a bad request before anything is started."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from flows.settings import absolute
from flows.terminal import one_line_errors


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


class StageChoice(StrEnum):
    """Where the main job may end, as typer wants them."""

    dataset = "dataset"
    run = "run"
    report = "report"


Family = Annotated[str, typer.Argument(help="Case family, such as cylinder-flow.")]
Cases = Annotated[int, typer.Option(min=1, help="Number of design points (grid: at least this many).")]
SamplerOption = Annotated[SamplerChoice, typer.Option(help="How the design space is sampled.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the sampler.")]
Preset = Annotated[
    str, typer.Option(help="Solver settings of the family: trial (500 s) or paper (1000 s) for cylinder-flow.")
]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Replace one solver setting, such as end_time=120 (s) or mesh_size=0.5 (m).")
]  # fmt: skip
Designs = Annotated[Path | None, typer.Option(help="CSV file of design parameters to solve, instead of sampling.")]
Runs = Annotated[
    str | None, typer.Option(help="Where trained models live: a folder or s3://bucket/prefix. [env: COURANT_RUNS]")
]
TimeLimit = Annotated[
    float | None, typer.Option(min=1.0, help="Wall time that one case's solver may take, in seconds.")
]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="Solve cases again that failed before.")]
Cores = Annotated[
    int, typer.Option(min=1, help="Cores of each case, on one machine; above 1 its solver runs under MPI.")
]
ArchiveRaw = Annotated[
    bool, typer.Option("--archive-raw", help="Keep the OpenFOAM directories of accepted cases too, in STORE/raw/.")
]
Recipe = Annotated[
    str | None,
    typer.Option(
        help="Training recipe; `courant recipes` lists them. Default: FAMILY-demo for `run`, else FAMILY-small."
    ),
]
Trials = Annotated[
    int | None, typer.Option(min=1, help="Trials of the sweep; default: each setting of the space once.")
]
ExperimentFile = Annotated[Path | None, typer.Option(help="A JSON file with an experiment, instead of a recipe.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show Prefect's own log.")]
RunUrl = Annotated[str, typer.Argument(help="Run directory of a trained model: a folder or s3://bucket/prefix.")]


def check_request(
    family: str,
    cases: int,
    sampler: SamplerChoice,
    seed: int,
    preset: str,
    settings: list[str] | None,
    designs: Path | None,
) -> None:
    """Refuse a bad request before anything is started."""
    with one_line_errors():
        from simgen.cases import get_family

        of = get_family(family)
        of.settings(preset, parse_settings(settings))
        if designs:
            of.design_space.read_csv(designs)
        else:
            of.design_space.sample(cases, sampler.value, seed)  # type: ignore[arg-type]


def check_dataset(dataset: str, version: str | None) -> None:
    """Refuse a dataset or version that does not exist before anything is started."""
    with one_line_errors():
        import simgen

        simgen.open_dataset(absolute(dataset), version)


def parse_settings(changes: list[str] | None, option: str = "--set") -> dict[str, float] | None:
    """`name=value` options as a mapping."""
    settings = {}
    for change in changes or []:
        name, _, value = change.partition("=")
        try:
            settings[name.strip()] = float(value)
        except ValueError:
            raise typer.BadParameter(f"'{change}' is not NAME=VALUE with a number", param_hint=option) from None
    return settings or None
