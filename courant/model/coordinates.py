"""What becomes of coordinates: random Fourier features, and anchors sampled from a cloud.

Farthest point sampling is batched, on the device, and deterministic.
"""

import math

import torch
from torch import Tensor, nn

TIE = 1e-3
"""Points whose distances differ by less than this share of the largest are as good: of the cells of
a regular grid, which are equally far apart but for rounding, the first is taken."""


class FourierFeatures(nn.Module):
    """gamma(x) = [cos(2 pi sigma B x), sin(2 pi sigma B x)]. (Eq. rff)

    B is learnable, drawn from N(0, 1). `bandwidth` is sigma, in cycles per unit of the normalised
    coordinates.
    """

    def __init__(self, dimension: int, width: int, bandwidth: float) -> None:
        super().__init__()
        self.frequencies = nn.Parameter(torch.randn(width // 2, dimension))  # B
        self.bandwidth = bandwidth

    def forward(self, points: Tensor) -> Tensor:
        """Map (..., d_c) coordinates to (..., width).

        In full precision even under autocast: a phase loses its meaning in bf16.
        """
        with torch.autocast(points.device.type, enabled=False):
            scaled = (2 * math.pi * self.bandwidth) * self.frequencies
            phase = points.to(scaled.dtype) @ scaled.T
            return torch.cat((phase.cos(), phase.sin()), dim=-1)


def farthest_point_sampling(points: Tensor, num: int, mask: Tensor | None = None) -> Tensor:
    """Return indices (B, num) of points that are far apart.

    The first is the point nearest to the centroid, each further one the point farthest from all
    chosen so far. `points` (B, N, d_c); `mask` (B, N) is True at real points, and padding is never
    chosen. A cloud of fewer than `num` distinct points repeats some of them; one without any real
    point gives index 0.
    """
    sample = _operator if torch.compiler.is_compiling() else _farthest_points
    return sample(points.detach(), num, mask)


def _farthest_points(points: Tensor, num: int, mask: Tensor | None) -> Tensor:
    real = points.new_ones(points.shape[:2], dtype=torch.bool) if mask is None else mask
    # (d_c, B, N): each pass over the cloud then reads contiguous rows
    coordinates = points.movedim(-1, 0).masked_fill(~real, 0.0).contiguous()
    weight = real.to(points.dtype) / real.sum(1, keepdim=True).clamp(min=1)
    centroid = (coordinates * weight).sum(2)  # (d_c, B)
    away = _squared_distance(coordinates, centroid)
    slack = TIE**2 * away.masked_fill(~real, 0.0).amax(1, keepdim=True)
    start = away.masked_fill(~real, float("inf"))
    chosen = (start <= start.amin(1, keepdim=True) + slack).byte().argmax(1)  # (B,), the first one
    indices = torch.empty(points.shape[0], num, dtype=torch.long, device=points.device)
    nearest = torch.full_like(start, float("inf")).masked_fill(~real, -1.0)
    for i in range(num):
        indices[:, i] = chosen
        newest = coordinates.gather(2, chosen.expand(len(coordinates), -1)[..., None])[..., 0]
        torch.minimum(nearest, _squared_distance(coordinates, newest), out=nearest)
        chosen = (nearest >= (1 - 2 * TIE) * nearest.amax(1, keepdim=True)).byte().argmax(1)
    return indices


#: One opaque operator: torch.compile neither breaks at the loop nor unrolls it. Its first call
#: imports the compiler, for two seconds of a core, so it is not used without one.
_operator = torch.library.custom_op("courant::farthest_points", _farthest_points, mutates_args=())


@_operator.register_fake
def _(points: Tensor, num: int, mask: Tensor | None) -> Tensor:
    return points.new_empty((points.shape[0], num), dtype=torch.long)


def _squared_distance(coordinates: Tensor, centre: Tensor) -> Tensor:
    """(d_c, B, N), (d_c, B) -> (B, N)."""
    return (coordinates - centre[..., None]).square_().sum(0)


def gather_points(points: Tensor, indices: Tensor) -> Tensor:
    """(B, N, d_c), (B, L) -> (B, L, d_c)."""
    return points.gather(1, indices[..., None].expand(-1, -1, points.shape[-1]))
