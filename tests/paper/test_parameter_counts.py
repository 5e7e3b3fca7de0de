"""tab:cf-hparams, tab:hvac-hparams, tab:pump-hparams: the parameter counts that the paper
prints.
"""

from collections.abc import Callable

import pytest

from courant.model import Courant, CourantConfig, presets
from courant.model.presets import ABLATIONS, PUBLISHED


@pytest.mark.parametrize(("variant", "count"), PUBLISHED.items())
def test_published_variants_have_the_published_number_of_parameters(
    variant: tuple[Callable[[], CourantConfig], str | None], count: int
) -> None:
    preset, ablation = variant
    config = ABLATIONS[ablation](preset()) if ablation else preset()
    assert sum(parameter.numel() for parameter in Courant(config).parameters()) == count


@pytest.mark.parametrize("name", ABLATIONS)
def test_every_ablation_changes_the_model(name: str) -> None:
    baseline = presets.cylinder_flow() if name == "MLP ODE integrator" else presets.branched_pipe()
    assert ABLATIONS[name](baseline) != baseline
    Courant(ABLATIONS[name](baseline))


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
    config = preset()
    shared = (
        config.width,
        config.num_heads,
        config.num_levels,
        config.ffn_multiple,
        config.bandwidth,
    )
    assert shared == (128, 3, 6, 2, 0.3)
    assert (config.num_features, config.num_outputs, config.num_anchors) == (
        features,
        outputs,
        anchors,
    )
    assert (config.dimension, config.transient) == (dimension, anchors == 64)
