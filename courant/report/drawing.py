"""Draw in one style: colours, sizes, rasters of fields, and pictures as files in a page.

The steps of colour maps look alike everywhere: equal distances in OKLab. Of values around zero
matplotlib's light-centred maps change up to six times as fast in one place as in another, which
shows edges that the field does not have; its even ones have a dark centre, so that most of a
picture would be black. Here each half is a straight line in OKLab (Ottosson, 2020) from white to a
colour, and both colours are equally dark: equal magnitudes of either sign look alike.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import Colormap, ListedColormap
from PIL import Image

from simgen.publish.field_plots import Layer, Triangles
from simgen.store.read import StoredCase

STEPS = 256
MAGNITUDES = "magma_r"
"""Of values from zero on"""
VALUES = "viridis"
"""Of values without a natural zero"""

_WHITE = (0.98, 0.0, 0.0)
# The rows are long, middle and short cones; numbers of the definition of OKLab.
_TO_CONES = np.array(
    [
        [1.0, 0.3963377774, 0.2158037573],
        [1.0, -0.1055613458, -0.0638541728],
        [1.0, -0.0894841775, -1.2914855480],
    ]
)
_TO_LINEAR = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.7076147010],
    ]
)


def _rgb(lab: np.ndarray) -> np.ndarray:
    """Return sRGB (n, 3) in 0..1 of OKLab (n, 3); colours of no screen are clipped."""
    linear = np.clip((lab @ _TO_CONES.T) ** 3 @ _TO_LINEAR.T, 0.0, 1.0)
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)


def _around_zero(
    name: str, low: tuple[float, float, float], high: tuple[float, float, float]
) -> ListedColormap:
    half = np.linspace(0.0, 1.0, STEPS)[:, None]
    white = np.array(_WHITE)
    down, up = white + half * (np.array(low) - white), white + half * (np.array(high) - white)
    return ListedColormap(_rgb(np.concatenate([down[::-1], up[1:]])), name)


#: Blue below zero, red above.
SIGNED = _around_zero("signed", (0.40, -0.03, -0.135), (0.40, 0.135, 0.055))
#: Purple below zero, brown above: errors, so that nobody takes them for a field.
ERRORS = _around_zero("errors", (0.40, 0.055, -0.135), (0.40, 0.065, 0.080))


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


QUALITY = 88
"""Of WebP: nobody sees a difference, and the page of all panels is a third as large as with PNG"""

_TYPES = {b"\x89PNG": "image/png", b"RIFF": "image/webp"}


def data_url(picture: bytes) -> str:
    """Return a PNG or WebP file as a URL that needs no server."""
    kind = _TYPES[picture[:4]]
    return f"data:{kind};base64,{base64.b64encode(picture).decode()}"


def webp(pixels: np.ndarray) -> bytes:
    """Return pixels (Y, X, 3) of 8 bits as a WebP file, the top row first."""
    return _saved(Image.fromarray(pixels[..., :3]), "WEBP", quality=QUALITY, method=4)


def webp_of_png(png: bytes, width: int | None = None) -> bytes:
    """Return a PNG file as WebP, not transparent; scaled down to a width in pixels if given."""
    with Image.open(io.BytesIO(png)) as opened:
        image = opened.convert("RGB")
    if width is not None and image.width > width:
        image = image.resize((width, max(1, round(image.height * width / image.width))))
    return _saved(image, "WEBP", quality=QUALITY, method=4)


def small_png(pixels: np.ndarray) -> bytes:
    """Return pixels (Y, X, 3) of 8 bits as a PNG of at most 32 colours: for icons in tables."""
    return _saved(Image.fromarray(pixels[..., :3]).quantize(32), "PNG", optimize=True)


def _saved(image: Image.Image, kind: str, **options: int) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=kind, **options)
    return buffer.getvalue()


#: The model's colour and its references', in order.
PALETTE = ("#0b5fa5", "#d9822b", "#7a7a7a", "#1a7f37", "#8250df")
MARKERS = ("o", "D", "_", "s", "^")
MODEL_COLOR = PALETTE[0]
WIDTH = 13.5
"""Inches"""


def colors(predictors: Sequence[str]) -> dict[str, str]:
    """Return a colour for each predictor, the model first."""
    return {name: PALETTE[place % len(PALETTE)] for place, name in enumerate(predictors)}


def markers(predictors: Sequence[str]) -> dict[str, str]:
    """Return a marker for each predictor, the model first."""
    return {name: MARKERS[place % len(MARKERS)] for place, name in enumerate(predictors)}


def height_of(aspect: float, per_aspect: float, low: float, high: float) -> float:
    """Return the height in inches of a picture with this aspect, within bounds."""
    return float(np.clip(per_aspect * aspect + 0.3, low, high))


def place(case: StoredCase, triangles: Layer) -> str:
    """Describe `the layer of cells at y = 0.5 m`; empty for 1D and 2D cases."""
    if case.dataset.schema.dimension < 3 or not isinstance(triangles, Triangles):
        return ""
    return f"the layer of cells at {triangles.plane}"
