"""Sample fields on a regular grid of a layer, and colour them: many pictures in little time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import Colormap

from simgen.publish.field_plots import Triangles

NO_FLUID = (200, 200, 200)


@dataclass(frozen=True)
class Raster:
    """Where a regular grid of Y rows and X columns lies in a triangulation, the lowest row first.

    Built once for a layer; each field then takes three products.
    """

    x: np.ndarray
    """(X,) m"""
    y: np.ndarray
    """(Y,) m"""
    cells: np.ndarray
    """(Y, X, 3), the cells at the corners of the triangle of each grid point"""
    weights: np.ndarray
    """(Y, X, 3), one in sum; NaN outside the fluid"""

    @classmethod
    def of(cls, plane: Triangles, columns: int) -> Raster:
        """Lay a grid of so many columns over a layer, its pixels about square."""
        shape = plane.triangulation
        rows = max(8, round(columns * plane.aspect))
        x = np.linspace(shape.x.min(), shape.x.max(), columns)
        y = np.linspace(shape.y.min(), shape.y.max(), rows)
        across, up = np.meshgrid(x, y)
        found = np.asarray(shape.get_trifinder()(across, up))
        corners = shape.triangles[np.maximum(found, 0)]
        weights = _barycentric(shape.x[corners], shape.y[corners], across, up)
        weights[found < 0] = np.nan
        return cls(x, y, plane.cell[corners], weights)

    def sample(self, field: np.ndarray) -> np.ndarray:
        """Interpolate values (N, ...) of the cells linearly: (Y, X, ...), NaN outside the fluid."""
        corners = field[self.cells]
        weights = self.weights.reshape(*self.weights.shape, *(1,) * (field.ndim - 1))
        return np.asarray((weights * corners).sum(axis=2))

    def color(
        self, field: np.ndarray, limits: tuple[float, float], cmap: str | Colormap
    ) -> np.ndarray:
        """Return a picture (Y, X, 3) of 8 bits, the highest row first; grey outside the fluid."""
        low, high = limits
        values = self.sample(field)[::-1]
        chosen = colormaps[cmap] if isinstance(cmap, str) else cmap
        pixels = chosen((values - low) / ((high - low) or 1.0), bytes=True)[..., :3]
        return np.where(np.isfinite(values)[..., None], pixels, np.array(NO_FLUID, np.uint8))


def _barycentric(
    corners_x: np.ndarray, corners_y: np.ndarray, x: np.ndarray, y: np.ndarray
) -> np.ndarray:
    """Return the weights (..., 3) of a point in triangles with corners (..., 3)."""
    ax, bx, cx = np.moveaxis(corners_x, -1, 0)
    ay, by, cy = np.moveaxis(corners_y, -1, 0)
    area = (by - cy) * (ax - cx) + (cx - bx) * (ay - cy)
    area = np.where(area == 0, 1.0, area)
    first = ((by - cy) * (x - cx) + (cx - bx) * (y - cy)) / area
    second = ((cy - ay) * (x - cx) + (ax - cx) * (y - cy)) / area
    return np.stack([first, second, 1 - first - second], axis=-1)
