"""What is drawn of a domain: sections where they are asked for, streamlines, faces of a surface."""

from __future__ import annotations

import numpy as np
import pytest

from courant.data.normalisation import Channel
from courant.report.anchors import positions, shown_channel
from courant.report.drawing import Raster
from courant.report.fields import ACROSS, in_plane, scale_of, squares
from simgen.publish.field_plots import middle_plane, open_triangles, section, thinnest_axis


def box(num: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Cells of a box of 4 x 2 x 1 m, with their widths."""
    axes = [(np.arange(each) + 0.5) / num for each in (4 * num, 2 * num, num)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    return points, np.full(len(points), 1 / num)


def test_a_section_holds_the_cells_around_its_plane_and_no_others() -> None:
    points, sizes = box()
    found = section(points, sizes, axis=0, position=1.04)
    assert found.axes == (1, 2) and found.plane == "x = 1.04 m"
    np.testing.assert_allclose(points[found.cell, 0], 12.5 / 12)
    assert len(found.cell) == 24 * 12
    with pytest.raises(ValueError, match="no cells around x = 9 m"):
        section(points, sizes, axis=0, position=9.0)


def test_the_middle_plane_cuts_the_thinnest_axis_and_sections_divide_it_evenly() -> None:
    points, sizes = box()
    assert thinnest_axis(points) == 2 == 3 - sum(middle_plane(points, sizes).axes)
    low, high = points[:, 2].min(), points[:, 2].max()
    assert positions(points, 2) == pytest.approx(
        [low + s * (high - low) for s in (0.25, 0.5, 0.75)]
    )


def test_a_linear_velocity_is_exact_on_the_grid_of_streamlines_and_nowhere_beyond_it() -> None:
    points = box()[0][::12]  # of one layer
    plane = open_triangles(points[np.hypot(points[:, 0] - 2, points[:, 1] - 1) > 0.5])
    x, y = plane.triangulation.x, plane.triangulation.y
    raster = Raster.of(plane, ACROSS)
    columns, rows = raster.x, raster.y
    sampled = raster.sample(np.stack([1 + 2 * x - y, 3 * y], axis=1))
    inside = np.isfinite(sampled[..., 0])
    expected = np.stack(
        [1 + 2 * columns[None] - rows[:, None], np.broadcast_to(3 * rows[:, None], inside.shape)],
        axis=-1,
    )
    np.testing.assert_allclose(sampled[inside], expected[inside], atol=1e-9)
    away = np.hypot(columns[None] - 2, rows[:, None] - 1)
    assert not inside[away < 0.4].any() and inside[away > 0.7].mean() > 0.97


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


@pytest.mark.parametrize("stretched", [4.0, 30.0])
def test_cells_that_are_stretched_in_a_plane_are_drawn(stretched: float) -> None:
    """Points without volumes, whose spacing is that of the nearest one; and thin layers."""
    axis = np.arange(24.0)
    x, y, z = np.meshgrid(axis, axis / stretched, [0.0, 1 / stretched], indexing="ij")
    points = np.stack([x.ravel(), y.ravel(), z.ravel()], axis=1)
    sizes = np.full(len(points), 1 / stretched)
    shape = section(points, sizes, 2, 0.0).triangulation
    assert len(shape.get_masked_triangles()) > 0.9 * 2 * 23 * 23
