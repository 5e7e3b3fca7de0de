"""An optimiser's step alone: AdamW, torch's Muon matrix by matrix, and Muon with stacked matrices.

The models are those of recipes and the paper's Transolver, gradients are random. The processor time
of one thread counts, so that other work on the machine does not.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.optim import AdamW, Muon

from bench.measure import processor_seconds, race
from bench.report import publish
from courant.baselines import published
from courant.model_config import ModelConfig
from courant.models import build
from courant.recipes import get_recipe
from courant.training.optimiser import MuonWithAdamW, hidden_matrices

RATE, DECAY = 1e-5, 0.01


def main(out: Path, short: bool) -> None:
    """Print the table, write optimiser.json."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    configs = {
        "cylinder-flow-demo": get_recipe("cylinder-flow-demo").model,
        "cylinder-flow-small": get_recipe("cylinder-flow-small").model,
        "branched-pipe-small": get_recipe("branched-pipe-small").model,
        "Transolver, Br.Pipe": published("transolver", "Br.Pipe"),
    }
    rows = [measure(name, config, repeats=2 if short else 30) for name, config in configs.items()]
    publish(out, "optimiser", rows)


def measure(name: str, config: ModelConfig, repeats: int) -> dict[str, Any]:
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
