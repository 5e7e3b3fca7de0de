"""What is drawn of a domain: colours, fields on a grid, sections, streamlines, faces, pictures."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from matplotlib.colors import ListedColormap
from PIL import Image

from courant.data.normalisation import Channel
from courant.report.anchors import positions
from courant.report.context import ERRORS, NO_FLUID, SIGNED, Raster
from courant.report.fields import in_plane, scale_of, shown_channel, squares
from courant.report.page import data_url, small_png, webp, webp_of
from simgen.publish.figures import grid_triangles, middle_plane, open_triangles, thinnest_axis


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
    with Image.open(io.BytesIO(webp_of(small_png(pixels), 10))) as image:
        assert image.size == (10, 5)


def box(num: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Cells of a box of 4 x 2 x 1 m, with their widths."""
    axes = [(np.arange(each) + 0.5) / num for each in (4 * num, 2 * num, num)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    return points, np.full(len(points), 1 / num)


def test_the_middle_plane_cuts_the_thinnest_axis_and_sections_divide_it_evenly() -> None:
    points, sizes = box()
    assert thinnest_axis(points) == 2 == 3 - sum(middle_plane(points, sizes).axes)
    low, high = points[:, 2].min(), points[:, 2].max()
    assert positions(points, 2) == pytest.approx(
        [low + s * (high - low) for s in (0.25, 0.5, 0.75)]
    )


def channels(*names: str) -> list[Channel]:
    parts = [name.split(".") for name in names]
    return [Channel(field, part, 0, "m/s") for field, part in parts]


def test_streamlines_need_both_velocities_of_their_plane() -> None:
    known = channels("kinematic_pressure.p", "velocity.x", "velocity.z")
    assert in_plane(known, (0, 2)) == [1, 2] and in_plane(known, (0, 1)) is None
    assert shown_channel(known) == 0 and shown_channel(known[1:]) == 0
    assert shown_channel(channels("velocity.x", "kinematic_pressure.p")) == 1


def test_a_face_is_a_square_of_its_area_across_its_normal() -> None:
    generator = np.random.default_rng(0)
    normals = generator.normal(size=(50, 3))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    normals[0] = (0, 0, 1)
    centres, areas = generator.normal(size=(50, 3)), generator.uniform(0.1, 2, 50)
    corners = squares(centres, normals, areas)
    np.testing.assert_allclose(corners.mean(axis=1), centres, atol=1e-12)
    sides = np.roll(corners, -1, axis=1) - corners
    np.testing.assert_allclose(np.linalg.norm(sides, axis=2), np.sqrt(areas)[:, None] * [[1] * 4])
    np.testing.assert_allclose(np.einsum("fsd,fd->fs", sides, normals), 0, atol=1e-12)
    np.testing.assert_allclose((sides[:, 0] * sides[:, 1]).sum(axis=1), 0, atol=1e-12)


def test_rounding_on_the_drawn_layer_does_not_fill_the_scale() -> None:
    values = np.random.default_rng(0).normal(size=1000)
    values[:100] *= 1e-8  # a component that vanishes on the middle plane
    (low, high), _ = scale_of(values, np.arange(100))
    assert -low == high == pytest.approx(0.05 * np.abs(values).max())
    (low, high), _ = scale_of(values, np.arange(100, 1000))
    assert high > 2
