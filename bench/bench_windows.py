"""What Gaussian windows cost in a training step, where a CPU keeps subnormal numbers and not.

Models are those of the small recipes, weights and clouds random. The processor time of one thread
counts, so that other work on the machine does not.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from bench.measure import processor_seconds, show_and_write
from courant.experiment import Experiment
from courant.field_model import Inputs, Queries
from courant.model import CourantConfig
from courant.models import build
from courant.recipes.branched_pipe import branched_pipe_small
from courant.recipes.centrifugal_pump import centrifugal_pump_small
from courant.recipes.cylinder_flow import cylinder_flow_small
from courant.recipes.legible import WINDOW_SCALE

CPU = torch.device("cpu")
STEPS = 4  # of a rollout, where there is one


def main(out: Path, short: bool) -> None:
    """Print the table, write windows.json."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = [
        measure(make(), points=64 if short else None, repeats=1 if short else 8)
        for make in (cylinder_flow_small, branched_pipe_small, centrifugal_pump_small)
    ]
    show_and_write(rows, out / "windows.json", width=140)


def measure(experiment: Experiment, points: int | None, repeats: int) -> dict[str, Any]:
    """Least seconds of a step, and its ratio to the step without windows.

    All take turns, so that a busy spell weighs on all.
    """
    plain = cast(CourantConfig, experiment.model)
    configs = {
        "no windows": replace(plain, gaussian_window="none"),
        "windows": replace(plain, gaussian_window="both"),
        "narrow windows": replace(plain, gaussian_window="both", window_scale=WINDOW_SCALE),
    }
    steps = {
        name: partial(step, build(config), *clouds(experiment, points))
        for name, config in configs.items()
    }
    taken: dict[tuple[str, bool], list[float]] = {}
    for _ in range(repeats + 1):
        for name, call in steps.items():
            for as_zero in (False, True):
                torch.set_flush_denormal(as_zero)
                taken.setdefault((name, as_zero), []).append(processor_seconds(call, CPU))
    torch.set_flush_denormal(False)
    least = {key: min(values[1:]) for key, values in taken.items()}
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


def clouds(experiment: Experiment, points: int | None) -> tuple[Inputs, Queries, int]:
    """One batch of the recipe's size."""
    config, batch = cast(CourantConfig, experiment.model), experiment.training.batch_size
    num = points or experiment.data.points_per_sample or 1024

    def cloud(num_channels: int) -> torch.Tensor:
        return torch.randn(batch, num, num_channels)

    places, asked = (2 * torch.rand(batch, num, config.dimension) - 1 for _ in range(2))
    parameters = torch.randn(batch, config.num_parameters) if config.num_parameters else None
    features = cloud(config.num_query_features) if config.num_query_features else None
    return (
        Inputs(places, cloud(config.num_features), parameters=parameters),
        Queries(asked, features),
        STEPS if config.transient else 1,
    )


def step(model: Any, inputs: Inputs, queries: Queries, num_steps: int) -> None:
    model(inputs, queries, num_steps).square().mean().backward()
