"""What is drawn of a 3D case: one layer of cells, and nothing across a hole in it."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.tri import LinearTriInterpolator, Triangulation

import simgen
from simgen.case import Field
from simgen.imports import imported_schema
from simgen.imports.importing import SourceCase, import_cases
from simgen.point_cloud import BoundaryCloud, PointCloud
from simgen.publish.card import write_card
from simgen.publish.figures import (
    Line,
    Triangles,
    body_window,
    draw_field,
    grid_triangles,
    layer,
    middle_plane,
    section,
    spanning,
    triangulate,
)
from simgen.store.schema import Source


def cloud_of(points: np.ndarray, size: float | np.ndarray = 1.0) -> PointCloud:
    """Cells of one size, without a boundary."""
    return PointCloud(points, np.full(len(points), size**3), None, None, (), None, {}, None)


def test_the_middle_plane_of_a_block_with_a_hole_is_one_layer_that_leaves_the_hole_out():
    axes = np.meshgrid(np.arange(20.0), np.arange(5.0), np.arange(12.0))
    points = np.stack(axes, axis=-1).reshape(-1, 3)
    # A cylinder along y is missing.
    points = points[np.hypot(points[:, 0] - 10, points[:, 2] - 6) > 3.5]
    triangles = middle_plane(cloud_of(points))
    assert (triangles.axes, triangles.plane) == ((0, 2), "y = 2 m")
    assert triangles.aspect == pytest.approx(11 / 19)
    assert set(points[triangles.cell][:, 1]) == {2.0}
    shape = triangles.triangulation
    corners = np.stack([shape.x, shape.y], axis=1)[shape.get_masked_triangles()]
    first, second = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    area = 0.5 * np.abs(first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0]).sum()
    assert area == pytest.approx(19 * 11 - np.pi * 3.5**2, rel=0.1)


@pytest.mark.parametrize(
    ("dimension", "points"),
    [(1, [[0.0], [2], [1]]), (2, [[0.0, 0]]), (2, [[1.0, 0], [1, 3], [1, 1]]),
     (3, [[0.0, 0, 0], [0, 0, 1]])],
)  # fmt: skip
def test_points_that_span_no_area_are_drawn_as_a_line(tmp_path, dimension, points):
    schema = imported_schema(
        "probes", dimension=dimension, fields=[Field("t", "K", ("t",))],
        source=Source("probes", "here", "CC0"), splits="drawn",
    )  # fmt: skip
    cases = [
        SourceCase(f"c{at}", np.array(points), {"t": at + np.arange(len(points), dtype=float)})
        for at in range(4)
    ]
    dataset = simgen.open_dataset(import_cases(str(tmp_path / "probes"), schema, cases).url)
    drawn = layer(dataset[0])
    assert isinstance(drawn, Line)
    assert drawn.x.tolist() == sorted(np.array(points)[:, drawn.axes[0]].tolist())
    write_card(dataset, tmp_path / "card")
    assert (tmp_path / "card" / "samples.png").is_file()


def loop(centre: tuple[float, float], width: float, height: float) -> np.ndarray:
    """An ellipse of 40 lines (40, 2, 2)."""
    turn = np.linspace(0, 2 * np.pi, 41)
    ends = np.array(centre) + 0.5 * np.stack([width * np.cos(turn), height * np.sin(turn)], 1)
    return np.stack([ends[:-1], ends[1:]], axis=1)


@pytest.mark.parametrize(
    ("body", "sides", "window"),
    [
        ((2.0, 0.2), ("inlet", "farfield", "outlet", "farfield"), [[27, 17.9], [33, 22.1]]),
        ((2.0, 2.0), ("inlet", "open", "outlet", "wall"), [[24, 14], [36, 26]]),  # on a ground
        ((2.0, 0.2), ("inlet", "wall", "outlet", "wall"), None),  # a channel
        ((30.0, 20.0), ("inlet", "farfield", "outlet", "farfield"), None),  # large enough
    ],
)
def test_an_external_flow_is_seen_in_a_window_around_the_body(
    body: tuple[float, float], sides: tuple[str, ...], window: list[list[float]] | None
) -> None:
    corners = np.array([[0, 0], [0, 40], [60, 40], [60, 0]], float)
    outside = np.stack([corners, np.roll(corners, -1, axis=0)], axis=1)
    lines = np.concatenate([outside, loop((30, 20), *body)])
    found = body_window(lines, np.array([*sides, *["wall"] * 40]), 1e-6)
    assert (found is None) == (window is None)
    if window is None:
        return
    np.testing.assert_allclose(found, window, atol=0.01)
    shape = Triangulation([0, 60, 60, 0, 30], [0, 0, 40, 40, 20])
    plane, axes = Triangles(shape, np.arange(5), window=found), Figure().subplots()
    draw_field(axes, plane, np.arange(5.0), limits=(0, 4), cmap="viridis")
    np.testing.assert_allclose([axes.get_xlim(), axes.get_ylim()], np.transpose(window), atol=0.01)
    assert plane.drawn.tolist() == [4]


def test_a_field_along_thin_cells_has_no_combs_across() -> None:
    x, y = np.meshgrid(np.linspace(0, 1, 8), np.linspace(0, 0.3, 80), indexing="ij")
    plane = grid_triangles(np.stack([x.ravel(), y.ravel()], axis=1), x.shape)
    axes, values = Figure().subplots(), np.sin(9 * x.ravel())
    artist = draw_field(axes, plane, values, limits=(-1, 1), cmap="viridis")
    drawn = np.asarray(artist.get_array())  # type: ignore[union-attr]
    assert drawn.shape[1] > 1000 and np.ptp(drawn, axis=0).max() < 1e-12
    overlapping = Triangles(
        Triangulation([0, 1, 0, 1], [0, 0, 1, 1], [[0, 1, 2], [0, 1, 3]]), np.arange(4)
    )
    assert overlapping.pixels is None
    draw_field(Figure().subplots(), overlapping, np.arange(4.0), limits=(0, 3), cmap="viridis")


def test_the_middle_plane_is_that_in_which_the_fields_vary_most() -> None:
    """A room that is half as high as wide, y up, with a column of hot air in the middle."""
    x, y, z = (axis.ravel() for axis in np.meshgrid(*[np.arange(n) + 0.5 for n in (10, 5, 10)]))
    points = np.stack([x, y, z], axis=1)
    hot = 1.0 * (np.hypot(x - 5, z - 5) < 1) * (6 - y)
    across = {"pressure": [-9.81 * y], "both": [-9.81 * y, hot], "temperature": [hot], "none": []}
    for fields, axes in zip(across.values(), [(0, 1), (0, 1), (0, 1), (0, 2)], strict=True):
        columns = [of[:, None] for of in fields]
        assert middle_plane(cloud_of(points), columns).axes == axes
    # The velocity along y of a jet varies as much in its cross-section: the largest picture.
    jet = np.stack([0 * x, 1.0 * (x < 5), 0 * x], axis=1)
    assert middle_plane(cloud_of(points), [jet]).axes == (0, 2)
    assert spanning(-24.5 + 1e-4 * hot)[0] < -24.5021, "rounding does not fill a scale"
    assert spanning(300 + 0.2 * hot) == pytest.approx((300, 301), abs=0.2)
    assert spanning(np.zeros(9)) == (-1.0, 1.0)


def test_a_section_holds_the_cells_around_its_plane_and_no_others() -> None:
    axes = [(np.arange(each) + 0.5) / 12 for each in (48, 24, 12)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    cloud = cloud_of(points, 1 / 12)
    found = section(cloud, axis=0, position=1.04)
    np.testing.assert_allclose(points[found.cell, 0], 12.5 / 12)
    assert len(found.cell) == 24 * 12
    sizes = np.where(points[:, 1] < 1, 1 / 12, 1 / 20)  # those at the back are higher than wide
    between = section(cloud_of(points, sizes), axis=0, position=1.0)
    assert len(between.cell) == 24 * 12 and np.ptp(points[between.cell, 0]) == 0
    with pytest.raises(ValueError, match="no cells around x = 9 m"):
        section(cloud, axis=0, position=9.0)


@pytest.mark.parametrize("stretched", [4.0, 30.0])
def test_cells_that_are_stretched_in_a_plane_are_drawn(stretched: float) -> None:
    """Points without volumes, whose spacing is that of the nearest one; and thin layers."""
    axis = np.arange(24.0)
    x, y, z = np.meshgrid(axis, axis / stretched, [0.0, 1 / stretched], indexing="ij")
    points = np.stack([x.ravel(), y.ravel(), z.ravel()], axis=1)
    shape = section(cloud_of(points, 1 / stretched), 2, 0.0).triangulation
    assert len(shape.get_masked_triangles()) > 0.9 * 2 * 23 * 23


def test_long_thin_cells_at_a_wall_are_drawn_by_their_own_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A channel flow, across cells that are some 50 times as long as high, is seen as one."""
    width, height = np.cumsum(1.2 ** np.arange(13)), np.cumsum(0.9 ** np.arange(12)) / 30
    middle = [(of[:-1] + of[1:]) / 2 for of in (width, height)]
    x, y = (of.ravel() for of in np.meshgrid(*middle, indexing="ij"))
    rows = [np.stack([width, 0 * width + end, 0 * width], axis=1) for end in height[[0, -1]]]
    rows += [np.stack([0 * height + end, height, 0 * height], axis=1) for end in width[[0, -1]]]
    lines = np.concatenate([np.stack([row[:-1], row[1:]], axis=1) for row in rows])
    monkeypatch.setattr(
        "simgen.publish.figures.crossings", lambda *_: (lines, np.arange(len(lines)))
    )
    middles, centre = lines.mean(axis=1), [width.mean(), height.mean(), 0]
    normals = np.where(np.ptp(lines, axis=1) > 0, 0, np.sign(middles - centre)) * [1, 1, 0]
    kinds = np.zeros(len(lines), np.uint8)
    boundary = BoundaryCloud(middles, normals, np.ones(len(lines)), kinds, {})
    cloud = PointCloud(np.stack([x, y, 0 * x], 1), None, None, None, ("wall",), None, {}, boundary)
    drawn = triangulate(cloud)
    inside = (np.linspace(*of[[0, -1]], 300)[1:-1] for of in (width, height))
    places = np.meshgrid(*inside)
    profiles = [1 - (2 * (of - centre[1]) / np.ptp(height)) ** 2 for of in (y, places[1])]
    found = LinearTriInterpolator(drawn.triangulation, profiles[0][drawn.cell])(*places)
    assert not found.mask.any() and np.abs(found - profiles[1]).max() < 0.35


def test_a_baffle_bounds_nothing() -> None:
    middle = (np.arange(20) + 0.5) / 20
    x, y = (each.ravel() for each in np.meshgrid(middle, middle))
    ends, zero, one = np.zeros_like(middle), np.zeros(10), np.ones_like(middle)
    sides = [(ends, middle, -one, ends), (one, middle, one, ends)]
    sides += [(middle, ends, ends, -one), (middle, one, ends, one)]
    low = middle[:10]
    sides += [(zero + 0.5, low, zero + sign, zero) for sign in (1, -1)]  # one place, two faces
    faces = np.concatenate([np.stack([a, b, 0 * a, n, m, 0 * a], axis=1) for a, b, n, m in sides])
    boundary = BoundaryCloud(
        faces[:, :3], faces[:, 3:], np.ones(len(faces)), np.zeros(len(faces), np.uint8), {}
    )
    points = np.stack([x, y, 0 * x], axis=1)
    cloud = PointCloud(points, None, None, None, ("wall",), None, {}, boundary)
    assert not np.any(triangulate(cloud).triangulation.mask)
