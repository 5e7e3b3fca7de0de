"""Fields whose scores are known in closed form."""

from __future__ import annotations

import numpy as np

from courant.analysis.scores import AnchorFields


def grid(num: int = 40, length: float = 1.0) -> np.ndarray:
    """Centres of num x num square cells of a square domain, (num^2, 3) m, in the plane z = 0."""
    middle = (np.arange(num) + 0.5) * length / num
    x, y = np.meshgrid(middle, middle, indexing="ij")
    return np.stack([x.ravel(), y.ravel(), np.zeros(num * num)], axis=1)


def tiles(per_side: int, num: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Split the unit square into square tiles: points, the tiles' centres, each point's tile."""
    points = grid(num)
    column, row = (points[:, :2] * per_side).astype(int).T
    middle = (np.arange(per_side) + 0.5) / per_side
    centres = np.array([(x, y, 0.0) for x in middle for y in middle])
    return points, centres, column * per_side + row


def one_hot(labels: np.ndarray, num: int) -> np.ndarray:
    """Fields (L, M, 1), each one in its own cells and zero elsewhere."""
    return (labels == np.arange(num)[:, None])[..., None].astype(float)


def tile_fields(per_side: int, num: int = 40) -> AnchorFields:
    """Fields that are one on their own tile, with the anchor in its middle."""
    points, centres, labels = tiles(per_side, num)
    return AnchorFields.of(one_hot(labels, len(centres)), points, np.ones(len(points)), centres)
