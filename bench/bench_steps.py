"""What parts of a training step cost on one thread: Gaussian windows, a deeper decoder, and the
optimiser alone.

Windows are measured where a CPU keeps subnormal numbers and where not. The optimisers are AdamW,
torch's Muon matrix by matrix, and Muon with stacked matrices. Models are those of recipes and the
paper's Transolver; weights, clouds and gradients are random. The processor time counts, so that
other work on the machine does not.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch.optim import AdamW, Muon

from bench.measure import processor_seconds, race
from bench.report import publish
from courant.experiment import Experiment
from courant.field_model import Inputs, Queries
from courant.model import CourantConfig
from courant.model_config import ModelConfig
from courant.models import build
from courant.recipes import get_recipe
from courant.recipes.variants import WINDOW_SCALE
from courant.training.optimiser import MuonWithAdamW, hidden_matrices

ROLLOUT_STEPS = 4
RATE, DECAY = 1e-5, 0.01
WINDOWED = ("cylinder-flow-small", "branched-pipe-small", "centrifugal-pump-small")
OPTIMISED = ("cylinder-flow-demo", "cylinder-flow-small", "branched-pipe-small")


def main(out: Path, short: bool) -> None:
    """Print the tables, write windows.json and optimiser.json."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    windows = [
        measure_windows(get_recipe(name), 64 if short else None, 1 if short else 8)
        for name in WINDOWED
    ]
    publish(out, "windows", windows, "Gaussian windows")
    configs = {name: get_recipe(name).model for name in OPTIMISED}
    configs["Transolver, Br.Pipe"] = get_recipe("branched-pipe-transolver").model
    rows = [measure_optimiser(name, config, 2 if short else 30) for name, config in configs.items()]
    publish(out, "optimiser", rows, "Optimisers")


def measure_windows(experiment: Experiment, points: int | None, repeats: int) -> dict[str, Any]:
    """Least seconds of a step, and its ratio to the step without windows."""
    plain = cast(CourantConfig, experiment.model)
    batch = experiment.training.batch_size
    num = points or experiment.data.points_per_sample or 1024
    configs = {
        "no windows": replace(plain, gaussian_window="none"),
        "windows": replace(plain, gaussian_window="both"),
        "narrow windows": replace(plain, gaussian_window="both", window_scale=WINDOW_SCALE),
        "decoder of depth 2": replace(plain, gaussian_window="none", decoder_depth=2),
    }
    calls: dict[tuple[str, bool], Callable[[], None]] = {}
    for name, config in configs.items():
        places, asked = (2 * torch.rand(batch, num, plain.dimension) - 1 for _ in range(2))
        parameters = torch.randn(batch, plain.num_parameters) if plain.num_parameters else None
        queried = plain.num_query_features
        features = torch.randn(batch, num, queried) if queried else None
        inputs = Inputs(places, torch.randn(batch, num, plain.num_features), parameters=parameters)
        model, steps = build(config), ROLLOUT_STEPS if plain.transient else 1

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


def measure_optimiser(name: str, config: ModelConfig, repeats: int) -> dict[str, Any]:
    """Least milliseconds of each step."""
    model = build(config)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    matrices, others = hidden_matrices(model)
    parts = (
        Muon(matrices, lr=RATE, weight_decay=DECAY, adjust_lr_fn="match_rms_adamw"),
        AdamW(others, lr=RATE, weight_decay=DECAY),
    )
    contenders: dict[str, Callable[[], object]] = {
        "AdamW": AdamW(model.parameters(), lr=RATE, weight_decay=DECAY).step,
        "torch's Muon": lambda: [part.step() for part in parts],
        "stacked": MuonWithAdamW(model, lr=RATE, weight_decay=DECAY).step,
    }
    least = race(contenders, repeats, processor_seconds)
    return {
        "model": name,
        "hidden matrices": len(matrices),
        **{f"{contender}, ms": 1e3 * value for contender, value in least.items()},
        "stacked / torch's": least["stacked"] / least["torch's Muon"],
    }
