"""Name the baselines whose parameter counts the paper prints, with the sizes that it had.

Each reads 3 coordinates, also in 2D, but for the FNO, whose grid is flat; and the fields and the
distance field of its case.
`COUNTS` maps a row of tab:cf-hparams, tab:hvac-hparams or tab:pump-hparams to the paper's number.
"""

from __future__ import annotations

from typing import Any

from courant.model_config import ModelConfig
from courant.models import parse_config

CASES: dict[str, dict[str, Any]] = {
    "Cyl.Flow": {"num_features": 18, "num_outputs": 2, "num_query_features": 16, "transient": True},
    "Br.Pipe": {"num_features": 14, "num_outputs": 2, "num_query_features": 12},
    "Ctr.Pump": {"num_features": 8, "num_outputs": 4, "num_query_features": 4},
}
"""What the paper's models read and predict, by case; its baselines read no design parameters."""

COUNTS: dict[tuple[str, str], int] = {
    ("transolver", "Cyl.Flow"): 3_867_458,
    ("transolver", "Br.Pipe"): 3_865_410,
    ("transolver", "Ctr.Pump"): 3_862_852,
    ("fno", "Cyl.Flow"): 1_598_148,
    ("enf", "Cyl.Flow"): 1_156_546,
    ("upt", "Cyl.Flow"): 5_158_290,
    ("upt", "Br.Pipe"): 5_181_838,
    ("upt", "Ctr.Pump"): 5_180_296,
    ("mgn", "Cyl.Flow"): 1_437_572,
    ("mgn", "Br.Pipe"): 878_210,
}
"""By kind and case"""

OWN: dict[tuple[str, str], dict[str, Any]] = {
    ("fno", "Cyl.Flow"): {"dimension": 2},
    ("upt", "Br.Pipe"): {"num_latents": 384},
    ("upt", "Ctr.Pump"): {"num_latents": 384},
    ("mgn", "Br.Pipe"): {"num_layers": 7},
}
"""What a kind's config has for a case, where its defaults are not the paper's sizes"""


def published(kind: str, case: str) -> ModelConfig:
    """Return the config of a row of the paper's tables."""
    return parse_config({"kind": kind, **CASES[case], **OWN.get((kind, case), {})})
