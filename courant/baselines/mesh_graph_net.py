"""MeshGraphNet: messages along the edges of a mesh.

T. Pfaff, M. Fortunato, A. Sanchez-Gonzalez and P. Battaglia, Learning Mesh-Based Simulation with
Graph Networks, ICLR 2021.

An edge knows the vector between its points and its length; a node its position, features and design
parameters. Queries are ghosts, which send no messages. Where training draws a part of the points,
their graph is sparser than that of the whole mesh, and what is learned on the one does not hold on
the other: `num_nodes` thins every cloud to as many. No noise is added, unlike in the paper, since
training sees whole rollouts. The counts are in docs/baselines.md.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from courant.baselines import baseline
from courant.model_config import choice, size
from courant.models import register

Edges = Literal["mesh", "nearest"]
_WAVES, _SCATTER = (129.898, 782.33, 377.19), 43_758.5453
"""Numbers without a meaning, such that the digits of neighbouring places have nothing in common"""


@dataclass(frozen=True)
class MeshGraphNetConfig(baseline.GhostConfig):
    """Sizes of a MeshGraphNet; the defaults are those of the cylinder."""

    kind: ClassVar[str] = "mgn"

    width: int = size(128, 1, 4096)
    #: Rounds of messages.
    num_layers: int = size(12, 1, 64)
    #: Edges into each node, from its nearest points.
    neighbours: int = size(6, 1, 256)
    #: Nodes of the graph at most, chosen of a larger cloud; its other points are ghosts. 0 takes
    #: every point.
    num_nodes: int = size(0, 0, 100_000_000)
    #: What connects the points of a cloud: the faces of its case's mesh, or nearness.
    edges: Edges = choice("nearest", "mesh")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reads_edges and self.num_nodes:
            raise ValueError(
                f'MeshGraphNetConfig.num_nodes = {self.num_nodes} with edges = "mesh": a part of'
                " the points has no edges of the whole; set it to 0"
            )

    @property
    def reads_edges(self) -> bool:
        return self.edges == "mesh"


class Graph(NamedTuple):
    """The edges into every site, and their features."""

    neighbours: baseline.Neighbours
    edges: Tensor  # (B, S, k, d + 1)
    num_cloud: int


class MessageRound(nn.Module):
    """Update every edge from its ends, then every node from the sum of its edges."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.edge_ends = nn.Linear(3 * width, width)
        self.edge_rest = nn.Sequential(nn.ReLU(), nn.Linear(width, width), nn.LayerNorm(width))
        self.node = _network(2 * width, width)

    def forward(self, nodes: Tensor, edges: Tensor, graph: Graph) -> tuple[Tensor, Tensor]:
        # One map of edge, sender and receiver together, without a joined copy for each edge.
        of_edge, of_sender, of_receiver = self.edge_ends.weight.split(self.width, dim=1)
        received = graph.neighbours.gather(linear(nodes[:, : graph.num_cloud], of_sender))
        ends = linear(edges, of_edge, self.edge_ends.bias) + received
        edges = edges + self.edge_rest(ends + linear(nodes, of_receiver)[:, :, None])
        arriving = (edges * graph.neighbours.there[..., None]).sum(2)
        return nodes + self.node(torch.cat([nodes, arriving], dim=-1)), edges


class MeshGraphNet(baseline.GhostModel):
    """Encode nodes and edges, pass messages, decode nodes."""

    config: MeshGraphNetConfig

    def __init__(self, config: MeshGraphNetConfig) -> None:
        super().__init__()
        self.config = config
        width = config.width
        known = config.dimension + config.num_features + config.num_parameters
        self.node = _network(known, width)
        self.edge = _network(config.dimension + 1, width)
        self.rounds = nn.ModuleList(MessageRound(width) for _ in range(config.num_layers))
        self.decoder = nn.Sequential(
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, config.num_outputs),
        )

    def choose(self, sites: baseline.Sites, asked: slice) -> tuple[baseline.Sites, slice]:
        """Leave `num_nodes` of the cloud's points in the graph; what is predicted are ghosts."""
        num, most = sites.num_cloud, self.config.num_nodes
        if not 0 < most < num:
            return sites, asked
        nodes = _scattered(sites.points[:, :num], sites.writes[:, :num], most)

        def kept(values: Tensor) -> Tensor:
            chosen = nodes[..., None].expand(-1, -1, values.shape[-1])
            return torch.cat([values[:, :num].gather(1, chosen), values[:, asked]], dim=1)

        points = kept(sites.points)
        writes = torch.zeros_like(points[..., 0], dtype=torch.bool)
        writes[:, :most] = sites.writes[:, :num].gather(1, nodes)
        chosen = baseline.Sites(points, kept(sites.features), writes, most, sites.parameters)
        return chosen, slice(most, None)

    def prepare(self, sites: baseline.Sites) -> Graph:
        cloud, mask = sites.points[:, : sites.num_cloud], sites.writes[:, : sites.num_cloud]
        num = self.config.neighbours
        if sites.neighbours is None:
            near = baseline.find_nearest(sites.points, cloud, mask, num, others=True)
        else:
            # A ghost at a point of the mesh has that point's edges, any other one its nearest.
            ghosts, width = sites.points[:, sites.num_cloud :], max(num, sites.neighbours.shape[2])
            listed = baseline.connected(sites.neighbours, cloud, mask).widened(width)
            other = baseline.find_nearest(ghosts, cloud, mask, num, others=True).widened(width)
            nearest = baseline.find_nearest(ghosts, cloud, mask, 1)
            near = baseline.Neighbours(
                *(
                    torch.cat([of, torch.where(nearest.squared == 0, met, elsewhere)], dim=1)
                    for of, met, elsewhere in zip(
                        listed, (nearest.gather(of)[:, :, 0] for of in listed), other, strict=True
                    )
                )
            )
        vector = near.gather(cloud) - sites.points[:, :, None]
        edges = torch.cat([vector, vector.norm(dim=-1, keepdim=True)], dim=-1)
        return Graph(near, edges, sites.num_cloud)

    def field(self, sites: baseline.Sites, features: Tensor, prepared: Graph) -> Tensor:
        nodes, edges = self.node(sites.known(features)), self.edge(prepared.edges)
        for each in self.rounds:
            if self.config.transient:
                nodes, edges = baseline.recomputed(each, nodes, edges, prepared)
            else:
                nodes, edges = each(nodes, edges, prepared)
        decoded = self.decoder(nodes)
        # As in the paper, a transient model predicts what is added to the state.
        if not self.config.transient:
            return decoded
        return baseline.newest(features, decoded.shape[-1], self.config.input_steps) + decoded


def _scattered(points: Tensor, real: Tensor, num: int) -> Tensor:
    """Choose (B, num) of the real points (B, N, d), as good as at random.

    The choice hangs on their places alone, so neither order nor padding has an influence.
    """
    waves = points.new_tensor(_WAVES, dtype=torch.float64)[: points.shape[-1]]
    drawn = torch.frac(torch.sin(points.detach().double() @ waves) * _SCATTER).abs()
    return drawn.masked_fill(~real, math.inf).argsort(dim=1)[:, :num]


def _network(inputs: int, width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.LayerNorm(width)
    )


register(MeshGraphNetConfig, MeshGraphNet)
