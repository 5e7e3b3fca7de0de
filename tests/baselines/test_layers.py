"""Parts of the baselines against what they compute; a graph of as many nodes as training had."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from courant.baselines import baseline
from courant.baselines.baseline import Box, find_nearest, place, split_heads
from courant.baselines.enf import Enf, find_nearby
from courant.baselines.fno import FnoConfig, SpectralConvolution
from courant.baselines.mesh_graph_net import (
    Graph,
    MeshGraphNet,
    MeshGraphNetConfig,
    MessageRound,
    _scattered,
)
from courant.baselines.upt import embed_positions
from courant.field_model import Inputs, Queries
from courant.models import build
from tests.baselines.tiny import tiny
from tests.model.clouds import random_inputs


def test_a_spectral_convolution_passes_low_frequencies_of_both_signs_and_stops_the_others() -> None:
    config = FnoConfig(
        num_features=1, num_outputs=1, dimension=2, width=1, num_modes=3, resolution=16
    )
    convolution = SpectralConvolution(config)
    with torch.no_grad():
        convolution.weights.copy_(torch.tensor([1.0, 0.0]).expand_as(convolution.weights))
    angle = 2 * math.pi * torch.arange(16) / 16
    x, y = torch.meshgrid(angle, angle, indexing="ij")
    for low in (x.cos(), (2 * x + y).sin(), (2 * y - 2 * x).cos(), torch.ones_like(x)):
        torch.testing.assert_close(convolution(low[None, None])[0, 0], low, atol=1e-5, rtol=0)
    for high in ((4 * x).cos(), (5 * x + y).sin(), (3 * y).cos()):
        assert convolution(high[None, None]).abs().max() < 1e-5


def test_a_grid_spans_the_real_points_and_gives_linear_fields_back_exactly() -> None:
    torch.manual_seed(1)
    for dimension in (1, 2, 3):
        points = torch.rand(2, 30, dimension)
        mask = torch.ones(2, 30, dtype=torch.bool)
        mask[0, 20:] = False
        points[0, 20:] = 100.0
        box = Box(points, mask)
        nodes = box.nodes(5)
        torch.testing.assert_close(nodes[0].amax(0), points[0, :20].amax(0))
        field = nodes @ torch.arange(1.0, dimension + 1) + 2
        grid = field[:, None].unflatten(2, [5] * dimension)
        places = points[:, :20]
        expected = places @ torch.arange(1.0, dimension + 1) + 2
        torch.testing.assert_close(box.sample(grid, places)[..., 0], expected)


def test_interpolation_meets_the_points_and_never_uses_padding() -> None:
    torch.manual_seed(2)
    points, values = torch.rand(1, 12, 2), torch.rand(1, 12, 3)
    mask = torch.arange(12)[None] < 2  # fewer real points than neighbours
    near = find_nearest(points, points, mask, 3)
    carried = near.interpolate(values)
    torch.testing.assert_close(carried[:, :2], values[:, :2])
    between = values[:, :2].aminmax(dim=1, keepdim=True)
    assert (carried >= between.min - 1e-6).all() and (carried <= between.max + 1e-6).all()
    others = find_nearest(points, points, None, 3, others=True)
    assert (others.numbers != torch.arange(12)[None, :, None]).all()


@pytest.mark.parametrize("others", [False, True])
def test_trees_and_distances_find_the_same_neighbours(others: bool) -> None:
    torch.manual_seed(5)
    points, places = torch.rand(2, 40, 3), torch.rand(2, 25, 3)
    points[:, 1:8] = points[:, :1]  # more coincide than are asked for
    places[:, :10] = points[:, :10]
    mask = torch.arange(40)[None] < torch.tensor([[40], [9]])
    places.requires_grad_()
    for given in (None, mask):
        with torch.no_grad():
            tree = find_nearest(places, points, given, 4, others=others)
            direct = baseline._by_distances(places, points, given, 4, others)
        torch.testing.assert_close(tree.squared, direct.squared)
        assert given is None or given.gather(1, tree.numbers.flatten(1)).all()
        found = (tree.gather(points) - places[:, :, None]).square().sum(-1)
        torch.testing.assert_close(found[tree.there], tree.squared[tree.there])


def test_a_round_of_messages_is_the_papers() -> None:
    torch.manual_seed(4)
    points, nodes = torch.rand(1, 9, 2), torch.randn(1, 9, 6)
    near = find_nearest(points, points, None, 3, others=True)
    edges = torch.randn(1, 9, 3, 6)
    layer = MessageRound(6)
    after, updated = layer(nodes, edges, Graph(near, edges, 9))
    heard, own = near.gather(nodes), nodes[:, :, None].expand(-1, -1, 3, -1)
    expected = edges + layer.edge_rest(layer.edge_ends(torch.cat([edges, heard, own], -1)))
    torch.testing.assert_close(updated, expected)
    torch.testing.assert_close(
        after, nodes + layer.node(torch.cat([nodes, expected.sum(2)], dim=-1))
    )


def test_attention_between_slices_is_the_papers() -> None:
    torch.manual_seed(7)
    model = build(tiny("transolver", "steady 3D"))
    layer: Any = model.blocks[0].attention  # type: ignore[index]
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    x, writes = torch.randn(2, 9, 16), torch.rand(2, 9) < 0.7
    assigned, carried = (split_heads(each(x), 2) for each in (layer.assigned, layer.carried))
    weights = (layer.slices(assigned) / layer.temperature.clamp(0.1, 5.0)).softmax(-1)
    written = weights * writes[:, None, :, None]
    tokens = written.transpose(-1, -2) @ carried / (written.sum(2)[..., None] + 1e-5)
    made = scaled_dot_product_attention(*(f(tokens) for f in (layer.query, layer.key, layer.value)))
    expected = layer.output((weights @ made).transpose(1, 2).flatten(2))
    torch.testing.assert_close(layer(x, writes), expected)


def test_messages_to_supernodes_are_averaged_over_those_within_the_radius() -> None:
    torch.manual_seed(8)
    model: Any = build(tiny("upt", "steady 3D"))
    inputs = random_inputs(model.config, points=40).cloud
    near = find_nearest(place(inputs, 5), inputs.points, None, model.config.max_degree)
    reached = near.squared <= model.config.radius**2
    assert not reached.all()
    pooling = model.pooling
    senders = pooling.embedding(inputs.features) + embed_positions(inputs.points, 8)
    received = near.gather(senders)
    messages = pooling.message(torch.cat([received, received[:, :, :1].expand_as(received)], -1))
    expected = (messages * reached[..., None]).sum(2) / reached.sum(2)[..., None]
    torch.testing.assert_close(pooling(inputs, near), expected)


def test_the_fit_of_enf_brings_its_field_nearer_to_the_input() -> None:
    torch.manual_seed(6)
    model = build(tiny("enf", "steady 3D"))
    assert isinstance(model, Enf)
    inputs = random_inputs(model.config).cloud  # type: ignore[arg-type]
    positions = place(inputs, model.config.num_latents)

    def wrong(steps: int) -> float:
        model.config = replace(model.config, fit_steps=steps)
        with torch.no_grad():
            context = model._fit(inputs, positions)
            nearby = find_nearby(inputs.points, positions, model.config.num_nearest)
            read = model.fitted(model.attention(context, nearby))
        return float((read - inputs.features).square().mean())

    assert wrong(8) < wrong(3) < wrong(1)


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
