"""Every baseline at tiny sizes, by kind; a new one adds its own sizes here."""

from typing import Any

from courant.model_config import ModelConfig
from courant.models import BASELINES, parse_config

OWN: dict[str, dict[str, Any]] = {
    "transolver": {"width": 16, "num_heads": 2, "num_layers": 2, "num_slices": 4},
    "fno": {"width": 8, "num_layers": 2, "num_modes": 2, "projection_width": 16, "resolution": 6},
    "upt": {
        "width": 24,
        "num_heads": 2,
        "num_layers": 1,
        "num_further_layers": 1,
        "num_latents": 6,
        "num_supernodes": 5,
        "supernode_width": 8,
        "radius": 1.0,
    },
    "enf": {"width": 12, "num_heads": 2, "num_latents": 5, "num_nearest": 3, "num_layers": 1},
    "mgn": {"width": 12, "num_layers": 2, "neighbours": 3},
    "factformer": {"width": 16, "num_heads": 2, "num_layers": 1, "resolution": 6},
}
"""What makes each kind small"""
SIZES = {"num_features": 6, "num_outputs": 2, "num_query_features": 4}
"""A distance field at points and queries; points also have a state, or boundary conditions"""
CHOICES: dict[str, dict[str, Any]] = {
    "steady 3D": {},
    "transient 2D": {"dimension": 2, "transient": True},
    "two known states": {"dimension": 2, "transient": True, "num_features": 8, "input_steps": 2},
    "design parameters": {"dimension": 2, "num_parameters": 3},
    "fewer features than outputs": {"dimension": 2, "num_features": 1, "num_query_features": 0},
}
"""The data that a baseline has to suit"""
EDGES: dict[str, dict[str, Any]] = {
    "mesh edges": {"dimension": 2, "transient": True, "edges": "mesh"},
    "few nodes": {"num_nodes": 12},
    "few nodes, transient": {"dimension": 2, "transient": True, "num_nodes": 12},
    "mesh edges, steady": {"edges": "mesh", "num_parameters": 1},
}
"""More choices, of the model that reads them"""
CASES = [
    *((kind, choice) for kind in BASELINES for choice in CHOICES),
    *(("mgn", choice) for choice in EDGES),
]


def tiny(kind: str, choice: str) -> ModelConfig:
    return parse_config({"kind": kind, **OWN[kind], **SIZES, **{**CHOICES, **EDGES}[choice]})
