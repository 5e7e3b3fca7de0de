"""A graph of as many nodes as training had, whatever the size of the mesh."""

from dataclasses import replace

import pytest
import torch

from courant.baselines.mesh_graph_net import MeshGraphNet, MeshGraphNetConfig, _scattered
from courant.field_model import Inputs, Queries
from courant.models import build
from tests.baselines.tiny import tiny

NODES = 12


@pytest.fixture(params=["steady 3D", "transient 2D"])
def thinned(request: pytest.FixtureRequest) -> MeshGraphNet:
    config = tiny("mgn", request.param)
    assert isinstance(config, MeshGraphNetConfig)
    torch.manual_seed(0)
    model = build(replace(config, num_nodes=NODES)).eval()
    assert isinstance(model, MeshGraphNet)
    return model


def _given(model: MeshGraphNet, num: int) -> tuple[Inputs, Queries]:
    torch.manual_seed(1)
    config = model.config
    points = 2 * torch.rand(2, num, config.dimension) - 1
    features = torch.randn(2, num, config.num_features)
    queries = Queries(points, features[..., -config.num_query_features :])
    return Inputs(points, features), queries


def _steps(model: MeshGraphNet) -> int:
    return 3 if model.config.transient else 1


@torch.no_grad()
def test_a_cloud_that_is_no_larger_is_read_whole(thinned: MeshGraphNet) -> None:
    whole = build(replace(thinned.config, num_nodes=0)).eval()
    whole.load_state_dict(thinned.state_dict())
    for num, same in ((NODES, True), (NODES + 1, False)):
        inputs, queries = _given(thinned, num)
        found = thinned(inputs, queries, _steps(thinned))
        expected = whole(inputs, queries, _steps(thinned))
        assert found.shape == expected.shape
        assert torch.allclose(found, expected, atol=1e-6) == same


def test_nodes_are_spread_like_the_points() -> None:
    """A chosen part of a regular grid has about as many nodes in each quarter."""
    axis = torch.linspace(-1, 1, 64)
    grid = torch.cartesian_prod(axis, axis)[None]
    chosen = grid[0, _scattered(grid, torch.ones(1, 4096, dtype=torch.bool), 1024)[0]]
    assert len(chosen.unique(dim=0)) == 1024
    for x in (-1, 1):
        for y in (-1, 1):
            assert 200 < int(((x * chosen[:, 0] > 0) & (y * chosen[:, 1] > 0)).sum()) < 312


@torch.no_grad()
def test_a_point_hears_its_mesh_and_nothing_else() -> None:
    """Two rounds of messages along a row of cells reach two cells, near or far as they may lie."""
    config = tiny("mgn", "mesh edges, steady")
    torch.manual_seed(0)
    model = build(config).eval()
    row = torch.arange(9)
    lists = torch.stack([row - 1, torch.where(row < 8, row + 1, -1)], dim=-1)[None].int()
    inputs = Inputs(
        torch.randn(1, 9, 3), torch.randn(1, 9, 6), parameters=torch.randn(1, 1), neighbours=lists
    )
    queries = Queries(inputs.points, inputs.features[..., -4:])
    expected = model(inputs, queries)
    features = inputs.features.clone()
    features[:, 4] += 1
    changed = (model(inputs._replace(features=features), queries) != expected).any(-1)[0, 0]
    assert changed.nonzero()[:, 0].tolist() == [2, 3, 4, 5, 6]
    bare = model(inputs._replace(neighbours=None), queries)
    assert not torch.allclose(bare, expected)
