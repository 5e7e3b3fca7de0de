"""What Gaussian windows cost in a training step, where a CPU keeps subnormal numbers and not.

Models are those of the small recipes, weights and clouds random. The processor time of one thread
counts, so that other work on the machine does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from bench.measure import processor_seconds, race
from bench.report import publish
from courant.experiment import Experiment
from courant.field_model import Inputs, Queries
from courant.model import CourantConfig
from courant.models import build
from courant.recipes import get_recipe
from courant.recipes.variants import WINDOW_SCALE

STEPS = 4  # of a rollout, where there is one


def main(out: Path, short: bool) -> None:
    """Print the table, write windows.json."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = [
        measure(get_recipe(name), points=64 if short else None, repeats=1 if short else 8)
        for name in ("cylinder-flow-small", "branched-pipe-small", "centrifugal-pump-small")
    ]
    publish(out, "windows", rows)


def measure(experiment: Experiment, points: int | None, repeats: int) -> dict[str, Any]:
    """Least seconds of a step, and its ratio to the step without windows."""
    plain = cast(CourantConfig, experiment.model)
    batch = experiment.training.batch_size
    num = points or experiment.data.points_per_sample or 1024
    configs = {
        "no windows": replace(plain, gaussian_window="none"),
        "windows": replace(plain, gaussian_window="both"),
        "narrow windows": replace(plain, gaussian_window="both", window_scale=WINDOW_SCALE),
    }
    calls: dict[tuple[str, bool], Callable[[], None]] = {}
    for name, config in configs.items():
        places, asked = (2 * torch.rand(batch, num, plain.dimension) - 1 for _ in range(2))
        parameters = torch.randn(batch, plain.num_parameters) if plain.num_parameters else None
        queried = plain.num_query_features
        features = torch.randn(batch, num, queried) if queried else None
        inputs = Inputs(places, torch.randn(batch, num, plain.num_features), parameters=parameters)
        model, steps = build(config), STEPS if plain.transient else 1

        def step(as_zero: bool, model: Any, inputs: Inputs, queries: Queries, steps: int) -> None:
            torch.set_flush_denormal(as_zero)
            model(inputs, queries, steps).square().mean().backward()

        for as_zero in (False, True):
            calls[name, as_zero] = partial(
                step, as_zero, model, inputs, Queries(asked, features), steps
            )
    least = race(calls, repeats, processor_seconds)
    torch.set_flush_denormal(False)
    unit = least["no windows", True]
    return {
        "recipe": experiment.name,
        "no windows, s": unit,
        **{
            f"{name}, {'as zero' if as_zero else 'kept'}": seconds / unit
            for (name, as_zero), seconds in least.items()
            if name != "no windows"
        },
    }
