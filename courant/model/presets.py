"""Model configurations of the paper's tables, one function for each baseline.

The number of encoder features follows from the published parameter counts: the field-like channels,
and on a full mesh also the distance field. A boundary cloud has the field-like channels alone.
Tests pin every count.
"""

from typing import Any

from courant.model.config import CourantConfig


def cylinder_flow() -> CourantConfig:
    """Baseline of tab:cf-hparams: 1,298,354 parameters; reads u_x, u_y and 16 of the distance."""
    return CourantConfig(
        num_features=18, num_outputs=2, num_query_features=16, transient=True, num_anchors=64
    )


def branched_pipe() -> CourantConfig:
    """Baseline of tab:hvac-hparams, which encodes the boundary cloud: 1,151,410 parameters."""
    return CourantConfig(
        num_features=2, num_outputs=2, num_query_features=12, num_parameters=5, num_anchors=256
    )


def centrifugal_pump() -> CourantConfig:
    """Baseline of tab:pump-hparams, which encodes the boundary cloud: 1,152,548 parameters."""
    return CourantConfig(
        num_features=4, num_outputs=4, num_query_features=4, num_parameters=4, num_anchors=256
    )


def _community(num_features: int, num_outputs: int, dimension: int, **sizes: Any) -> CourantConfig:
    """All public benchmarks (tab:courant-shared-hparams); coordinates are features as well."""
    return CourantConfig(
        num_features, num_outputs, dimension=dimension, num_levels=6, bandwidth=0.3, **sizes
    )


def elasticity() -> CourantConfig:
    """The same for pipe and airfoil."""
    return _community(2, 1, 2, num_anchors=256)


pipe_flow = airfoil = elasticity


def darcy_flow() -> CourantConfig:
    """Encoder and decoder read the permeability."""
    return _community(1, 1, 2, num_query_features=1, num_anchors=256)


def diffusion_sorption() -> CourantConfig:
    """Ten input frames of one channel."""
    return _community(10, 1, 1, num_anchors=64, transient=True)


def compressible_flow_3d() -> CourantConfig:
    """Ten input frames of five channels."""
    return _community(50, 5, 3, num_anchors=64, transient=True)
