"""An optimiser's step alone: AdamW, torch's Muon matrix by matrix, and Muon with stacked matrices.

The models are those of recipes and the paper's Transolver, gradients are random. The processor time
of one thread counts, so that other work on the machine does not.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.optim import AdamW, Muon

from bench.measure import processor_seconds, show_and_write
from courant.baselines import published
from courant.model_config import ModelConfig
from courant.models import build
from courant.recipes.branched_pipe import branched_pipe_small
from courant.recipes.cylinder_flow import cylinder_flow_demo, cylinder_flow_small
from courant.training.optimiser import MuonWithAdamW, hidden_matrices

CPU = torch.device("cpu")
RATE, DECAY = 1e-5, 0.01


def main(out: Path, short: bool) -> None:
    """Print the table, write optimiser.json."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = [measure(name, config, repeats=2 if short else 30) for name, config in configs().items()]
    show_and_write(rows, out / "optimiser.json", width=110)


def configs() -> dict[str, ModelConfig]:
    return {
        "cylinder-flow-demo": cylinder_flow_demo().model,
        "cylinder-flow-small": cylinder_flow_small().model,
        "branched-pipe-small": branched_pipe_small().model,
        "Transolver, Br.Pipe": published("transolver", "Br.Pipe"),
    }


def measure(name: str, config: ModelConfig, repeats: int) -> dict[str, str | int | float]:
    """Least milliseconds of each step; they take turns, so that a busy spell weighs on all."""
    model = build(config)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    matrices, _ = hidden_matrices(model)
    contenders = {
        "AdamW": adamw(model),
        "torch's Muon": one_by_one(model),
        "stacked": stacked(model),
    }
    taken: dict[str, list[float]] = {contender: [] for contender in contenders}
    for _ in range(repeats + 1):
        for contender, step in contenders.items():
            taken[contender].append(1e3 * processor_seconds(step, CPU))
    # The first step makes the state.
    least = {contender: min(values[1:]) for contender, values in taken.items()}
    return {
        "model": name,
        "hidden matrices": len(matrices),
        **{f"{contender}, ms": value for contender, value in least.items()},
        "stacked / torch's": least["stacked"] / least["torch's Muon"],
    }


def adamw(model: nn.Module) -> Callable[[], object]:
    return AdamW(model.parameters(), lr=RATE, weight_decay=DECAY).step


def stacked(model: nn.Module) -> Callable[[], object]:
    return MuonWithAdamW(model, lr=RATE, weight_decay=DECAY).step


def one_by_one(model: nn.Module) -> Callable[[], object]:
    matrices, others = hidden_matrices(model)
    parts = (
        Muon(matrices, lr=RATE, weight_decay=DECAY, adjust_lr_fn="match_rms_adamw"),
        AdamW(others, lr=RATE, weight_decay=DECAY),
    )
    return lambda: [part.step() for part in parts]
