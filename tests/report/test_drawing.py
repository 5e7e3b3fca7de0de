"""What is drawn of a domain: colours, fields on a grid, streamlines, faces, pictures, scales."""

from __future__ import annotations

import numpy as np
import pytest

from courant.data.normalisation import Channel
from courant.report.drawing import NO_FLUID, FieldMap, Raster, draw_maps
from courant.report.fields import in_plane, scale_of, shown_channel, squares
from simgen.publish import colours
from simgen.publish.figures import grid_triangles, open_triangles


def test_a_linear_field_is_exact_on_the_grid_and_grey_where_there_is_no_fluid() -> None:
    generator = np.random.default_rng(0)
    points = np.zeros((3000, 3))
    points[:, :2] = generator.uniform((0, 0), (3, 1), (3000, 2))
    points = points[np.hypot(points[:, 0] - 1.5, points[:, 1] - 0.5) > 0.3]
    raster = Raster.of(open_triangles(points), 60)
    field = 1 + 2 * points[:, 0] - points[:, 1]
    sampled = raster.sample(field).filled(np.nan)
    x, y = np.meshgrid(raster.x, raster.y)
    inside = np.isfinite(sampled)
    np.testing.assert_allclose(sampled[inside], (1 + 2 * x - y)[inside], atol=1e-9)
    away = np.hypot(x - 1.5, y - 0.5)
    assert not inside[away < 0.2].any() and inside[away > 0.5].mean() > 0.75
    picture = raster.color(field, (-1.0, 8.0), "viridis")
    assert picture.dtype == np.uint8 and picture.shape == (*x.shape, 3)
    assert picture[4, :, 1].mean() < picture[-5, :, 1].mean(), "the highest row first"
    assert (picture[::-1][~inside] == np.round(255 * np.array(NO_FLUID))).all()


def square() -> np.ndarray:
    """Nine points (9, 3)."""
    y, x = np.meshgrid([0.0, 1.0, 2.0], [0.0, 1.0, 2.0])
    return np.stack([x.ravel(), y.ravel(), np.zeros(9)], axis=1)


@pytest.mark.parametrize(("bars", "num"), [("each", 4), ("row", 2), ("column", 2), ("all", 1)])
def test_maps_share_colour_bars_and_mark_an_anchor_where_it_is_or_at_the_nearest_edge(
    bars: str, num: int
) -> None:
    plane = grid_triangles(square(), (3, 3))
    inside, outside = np.array([0.5, 1.5, 0.0]), np.array([5.0, 1.0, 0.0])
    rows = [
        [FieldMap(plane, square()[:, 0], label="x (m)", place=place) for place in (inside, outside)]
        for _ in range(2)
    ]
    figure = draw_maps(rows, bars)  # type: ignore[arg-type]
    maps, beside = figure.axes[:4], figure.axes[4:]
    assert len(beside) == num
    assert {axis.get_xlabel() or axis.get_ylabel() for axis in beside} == {"x\n(m)"}
    marks = [axis.lines[0] for axis in maps]
    assert [mark.get_marker() for mark in marks] == ["o", "x", "o", "x"]
    np.testing.assert_allclose(marks[0].get_xydata(), [inside[:2]])
    np.testing.assert_allclose(marks[1].get_xydata(), [[2.0, 1.0]])


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
    (low, high), _ = scale_of(values, np.arange(100), True)
    assert -low == high == pytest.approx(0.05 * np.abs(values).max())
    (low, high), _ = scale_of(values, np.arange(100, 1000), True)
    assert high > 2


@pytest.mark.parametrize(
    ("component", "mean", "std", "signed"),
    [("x", 9.0, 1.0, True), ("xy", 9.0, 1.0, True), ("p", 0.5, 1.0, True), ("T", 300, 8, False)],
)
def test_a_component_has_one_map_in_every_case(
    component: str, mean: float, std: float, signed: bool
) -> None:
    chosen = colours.colour_map(component, mean, std)
    assert (chosen is colours.SIGNED) == signed == colours.is_signed(component, mean, std)
    assert signed == (chosen(0.5)[:3] == pytest.approx((0.97, 0.97, 0.97), abs=0.03))
