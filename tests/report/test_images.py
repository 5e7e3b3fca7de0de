"""Colour maps that change evenly, fields on a grid, and pictures as parts of a page."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from matplotlib.colors import ListedColormap
from PIL import Image

from courant.report.drawing import (
    ERRORS,
    NO_FLUID,
    SIGNED,
    Raster,
    data_url,
    small_png,
    webp,
    webp_of_png,
)
from simgen.publish.field_plots import grid_triangles, open_triangles


def oklab(rgb: np.ndarray) -> np.ndarray:
    """sRGB (n, 3) to OKLab (n, 3), by the numbers of its definition in that direction."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    to_cones = [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
    to_lab = [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
    found: np.ndarray = np.cbrt(linear @ np.transpose(to_cones)) @ np.transpose(to_lab)
    return found


@pytest.mark.parametrize("cmap", [SIGNED, ERRORS], ids=lambda each: each.name)
def test_a_step_looks_alike_everywhere_and_signs_are_equally_strong(cmap: ListedColormap) -> None:
    lab = oklab(cmap(np.arange(cmap.N))[:, :3])
    steps = np.linalg.norm(np.diff(lab, axis=0), axis=1)
    np.testing.assert_allclose(steps, steps.mean(), rtol=0.02)
    np.testing.assert_allclose(lab[:, 0], lab[::-1, 0], atol=1e-6)
    assert lab[cmap.N // 2, 0] > 0.97 > 0.45 > lab[0, 0]


def test_a_linear_field_is_exact_on_the_grid_and_grey_where_there_is_no_fluid() -> None:
    generator = np.random.default_rng(0)
    points = np.zeros((3000, 3))
    points[:, :2] = generator.uniform((0, 0), (3, 1), (3000, 2))
    points = points[np.hypot(points[:, 0] - 1.5, points[:, 1] - 0.5) > 0.3]
    raster = Raster.of(open_triangles(points), 60)
    field = 1 + 2 * points[:, 0] - points[:, 1]
    sampled = raster.sample(np.stack([field, -field], axis=1))
    x, y = np.meshgrid(raster.x, raster.y)
    inside = np.isfinite(sampled[..., 0])
    np.testing.assert_allclose(sampled[inside, 0], (1 + 2 * x - y)[inside], atol=1e-9)
    np.testing.assert_allclose(sampled[inside, 1], -(1 + 2 * x - y)[inside], atol=1e-9)
    away = np.hypot(x - 1.5, y - 0.5)
    assert not inside[away < 0.2].any() and inside[away > 0.5].mean() > 0.75
    picture = raster.color(field, (-1.0, 8.0), "viridis")
    assert picture.dtype == np.uint8 and picture.shape == (*x.shape, 3)
    assert (picture[::-1][~inside] == NO_FLUID).all()


def test_a_picture_has_its_highest_row_first() -> None:
    y, x = np.meshgrid([0.0, 1.0, 2.0], [0.0, 1.0, 2.0])
    points = np.stack([x.ravel(), y.ravel(), np.zeros(9)], axis=1)
    raster = Raster.of(grid_triangles(points, (3, 3)), 9)
    picture = raster.color(points[:, 1], (0.0, 2.0), "gray")
    assert picture[0].min() == 255 and picture[-1].max() == 0


def test_pictures_survive_their_encoding() -> None:
    pixels = np.zeros((20, 40, 4), np.uint8)
    pixels[:, 20:] = (200, 30, 40, 255)
    for encode, kind in ((webp, "webp"), (small_png, "png")):
        url = data_url(encode(pixels))
        head, _, text = url.partition(",")
        assert head == f"data:image/{kind};base64"
        with Image.open(io.BytesIO(base64.b64decode(text))) as image:
            found = np.asarray(image.convert("RGB")).astype(int)
        assert found.shape == (20, 40, 3)
        assert np.abs(found - pixels[..., :3]).mean() < 4
    with Image.open(io.BytesIO(webp_of_png(small_png(pixels), 10))) as image:
        assert image.size == (10, 5)
