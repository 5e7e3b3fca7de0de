"""The configs of the baselines' rows in the paper's tables."""

from typing import Any

from courant.baselines import OWN
from courant.model_config import ModelConfig
from courant.models import parse_config

CASES: dict[str, dict[str, Any]] = {
    "Cyl.Flow": {"num_features": 18, "num_outputs": 2, "num_query_features": 16, "transient": True},
    "Br.Pipe": {"num_features": 14, "num_outputs": 2, "num_query_features": 12},
    "Ctr.Pump": {"num_features": 8, "num_outputs": 4, "num_query_features": 4},
}
"""What the paper's models read and predict, by case; its baselines read no design parameters"""


def published(kind: str, case: str) -> ModelConfig:
    """Return the config of a row of the paper's tables."""
    return parse_config({"kind": kind, **CASES[case], **OWN.get((kind, case), {})})
