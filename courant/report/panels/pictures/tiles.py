"""Draw the faces of a 3D boundary as shaded squares, since their corners are not stored."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from mpl_toolkits.mplot3d import Axes3D
from mpl_toolkits.mplot3d.art3d import Poly3DCollection

LIGHT = np.array([0.4, -0.5, 0.77])
VIEW = {"elev": 28.0, "azim": -55.0}


def squares(centres: np.ndarray, normals: np.ndarray, areas: np.ndarray) -> np.ndarray:
    """Return the corners (F, 4, 3) of squares of areas (F,) across unit normals (F, 3)."""
    helper = np.eye(3)[np.abs(normals).argmin(axis=1)]
    first = np.cross(normals, helper)
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    second = np.cross(normals, first)
    half = 0.5 * np.sqrt(areas)[:, None]
    signs = ((-1, -1), (1, -1), (1, 1), (-1, 1))
    return np.stack([centres + half * (a * first + b * second) for a, b in signs], axis=1)


def draw_tiles(axis: Axes, tiles: np.ndarray, colors: np.ndarray, named: bool = True) -> None:
    """Draw squares (F, 4, 3) in colours (F, 3), with or without names of the axes."""
    assert isinstance(axis, Axes3D)
    normals = np.cross(tiles[:, 1] - tiles[:, 0], tiles[:, 2] - tiles[:, 1])
    normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-300)
    shade = 0.65 + 0.35 * np.abs(normals @ LIGHT)
    axis.add_collection3d(Poly3DCollection(tiles, facecolors=colors * shade[:, None], lw=0))
    low, high = tiles.min(axis=(0, 1)), tiles.max(axis=(0, 1))
    axis.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]))
    if named:
        axis.set(xlabel="x (m)", ylabel="y (m)", zlabel="z (m)")
        axis.tick_params(labelsize=6)
    else:
        axis.set_axis_off()
    axis.set_box_aspect(np.maximum(high - low, 1e-9), zoom=1.1 if named else 1.15)
    axis.view_init(**VIEW)
