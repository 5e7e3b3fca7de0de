"""tab:cf-hparams, tab:hvac-hparams, tab:pump-hparams: the parameter counts that the paper
prints.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from courant.model import Courant, CourantConfig, presets

#: The rows of tab:feature_ablation_nmae as changes to a baseline; the full mesh is `full_mesh`.
ABLATIONS: dict[str, dict[str, Any]] = {
    "GWA (enc + dec)": {"gaussian_window": "both"},
    "GWA in decoder only": {"gaussian_window": "decoder"},
    "GWA in encoder only": {"gaussian_window": "encoder"},
    "Learned anchors": {"anchor_kind": "learned"},
    "Abstract learned queries": {"anchor_kind": "abstract"},
    "No shared coord emb.": {"shared_embedding": False},
    "No distance field": {"num_query_features": 0},
    "No global data": {"num_parameters": 0},
    "No boundary PC (full-mesh)": {},
    "MLP ODE integrator": {"processor": "mlp"},
}


def ablated(baseline: CourantConfig, name: str) -> CourantConfig:
    """A row of the table; on a full mesh the encoder reads the distance field as well."""
    full = {"num_features": baseline.num_outputs + baseline.num_query_features}
    return replace(baseline, **(ABLATIONS[name] or full))


@pytest.mark.parametrize(
    ("preset", "ablation", "count"),
    [
        (presets.cylinder_flow, None, 1_298_354),
        (presets.branched_pipe, None, 1_151_410),
        (presets.branched_pipe, "GWA (enc + dec)", 1_220_286),
        (presets.branched_pipe, "No boundary PC (full-mesh)", 1_163_602),
        (presets.centrifugal_pump, None, 1_152_548),
        (presets.centrifugal_pump, "GWA (enc + dec)", 1_221_424),
        (presets.centrifugal_pump, "No boundary PC (full-mesh)", 1_156_612),
    ],
)
def test_published_variants_have_the_published_number_of_parameters(
    preset: Callable[[], CourantConfig], ablation: str | None, count: int
) -> None:
    config = ablated(preset(), ablation) if ablation else preset()
    assert sum(parameter.numel() for parameter in Courant(config).parameters()) == count


@pytest.mark.parametrize("name", ABLATIONS)
def test_every_ablation_changes_the_model(name: str) -> None:
    baseline = presets.cylinder_flow() if name == "MLP ODE integrator" else presets.branched_pipe()
    assert ablated(baseline, name) != baseline
    Courant(ablated(baseline, name))


@pytest.mark.parametrize(
    ("preset", "features", "outputs", "anchors", "dimension"),
    [
        (presets.elasticity, 2, 1, 256, 2),
        (presets.pipe_flow, 2, 1, 256, 2),
        (presets.airfoil, 2, 1, 256, 2),
        (presets.darcy_flow, 1, 1, 256, 2),
        (presets.diffusion_sorption, 10, 1, 64, 1),
        (presets.compressible_flow_3d, 50, 5, 64, 3),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_community_benchmarks_share_one_configuration(
    preset: Callable[[], CourantConfig], features: int, outputs: int, anchors: int, dimension: int
) -> None:
    """tab:courant-shared-hparams and tab:community-benchmarks-overview."""
    made = preset()
    shared = (made.width, made.num_heads, made.num_levels, made.ffn_multiple, made.bandwidth)
    assert shared == (128, 3, 6, 2, 0.3)
    sizes = (made.num_features, made.num_outputs, made.num_anchors)
    assert sizes == (features, outputs, anchors)
    assert (made.dimension, made.transient) == (dimension, anchors == 64)
    # Darcy's permeability is known at the queries as well.
    assert made.num_query_features == (1 if preset is presets.darcy_flow else 0)
