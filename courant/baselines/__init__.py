"""Published models that Courant is compared with, one file each, with the paper's sizes.

Each file has a config, a model and the line that registers both, and is imported when an experiment
names its kind (`courant.models`). `baseline` has what they share: checked sizes, the window of
known states, nearest points, and how a model of mesh points or of a regular grid meets a cloud.

In the paper each reads 3 coordinates, also in 2D, but for the FNO, whose grid is flat; and the
fields and the distance field of its case.
"""

from typing import Any

from courant.model_config import ModelConfig
from courant.models import parse_config

CASES: dict[str, dict[str, Any]] = {
    "Cyl.Flow": {"num_features": 18, "num_outputs": 2, "num_query_features": 16, "transient": True},
    "Br.Pipe": {"num_features": 14, "num_outputs": 2, "num_query_features": 12},
    "Ctr.Pump": {"num_features": 8, "num_outputs": 4, "num_query_features": 4},
}
"""What the paper's models read and predict, by case; its baselines read no design parameters"""

OWN: dict[tuple[str, str], dict[str, Any]] = {
    ("fno", "Cyl.Flow"): {"dimension": 2},
    ("upt", "Br.Pipe"): {"num_latents": 384},
    ("upt", "Ctr.Pump"): {"num_latents": 384},
    ("mgn", "Br.Pipe"): {"num_layers": 7},
}
"""A kind's sizes for a case, where its defaults are not the paper's"""


def published(kind: str, case: str) -> ModelConfig:
    """Return the config of a row of the paper's tables."""
    return parse_config({"kind": kind, **CASES[case], **OWN.get((kind, case), {})})
