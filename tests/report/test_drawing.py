"""What is drawn of a domain: colours, fields on a grid, streamlines, faces, pictures, scales."""

import io
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from courant.data.normalisation import Channel
from courant.report import drawing, flow
from courant.report import page as pages
from courant.report.context import Context, PlottedField, in_plane
from courant.report.data_and_training import odd_one
from courant.report.drawing import FieldMap, cut_panes, draw_maps, legend_above
from courant.report.dynamics import fading
from courant.report.fields import (
    HOLE,
    VIEW,
    draw_prediction,
    draw_streamlines,
    faces_of,
    scale_of,
    shown_channel,
    vorticity,
)
from courant.runs.directory import RunDirectory
from simgen.cases import get_family
from simgen.cell_mesh import CellMesh
from simgen.point_cloud import BoundaryCloud
from simgen.publish import colours
from simgen.publish.figures import axes_grid, grid_triangles, open_triangles, png_bytes
from simgen.store.read import StoredCase


def test_a_linear_field_is_exact_on_the_grid_and_nothing_where_there_is_no_fluid() -> None:
    generator = np.random.default_rng(0)
    points = np.zeros((3000, 3))
    points[:, :2] = generator.uniform((0, 0), (3, 1), (3000, 2))
    points = points[np.hypot(points[:, 0] - 1.5, points[:, 1] - 0.5) > 0.3]
    raster = open_triangles(points).raster(60)
    sampled = raster.image(1 + 2 * points[:, 0] - points[:, 1])
    x, y = np.meshgrid(raster.x, raster.y)
    inside = np.isfinite(sampled)
    np.testing.assert_allclose(sampled[inside], (1 + 2 * x - y)[inside], atol=1e-9)
    away = np.hypot(x - 1.5, y - 0.5)
    assert not inside[away < 0.2].any() and inside[away > 0.5].mean() > 0.75


def square() -> np.ndarray:
    """Nine points (9, 3)."""
    y, x = np.meshgrid([0.0, 1.0, 2.0], [0.0, 1.0, 2.0])
    return np.stack([x.ravel(), y.ravel(), np.zeros(9)], axis=1)


@pytest.mark.parametrize(("bars", "num"), [("each", 4), ("row", 2), ("all", 1)])
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
    maps = figure.axes[:4]
    beside = [*figure.axes[4:], *(bar for axis in maps for bar in axis.child_axes)]
    assert len(beside) == num
    assert {axis.get_xlabel() or axis.get_ylabel() for axis in beside} == {"x\n(m)"}
    marks = [axis.lines[0] for axis in maps]
    assert [mark.get_marker() for mark in marks] == ["o", "x", "o", "x"]
    np.testing.assert_allclose(marks[0].get_xydata(), [inside[:2]])
    np.testing.assert_allclose(marks[1].get_xydata(), [[2.0, 1.0]])


def channels(*names: str) -> list[Channel]:
    parts = [name.split(".") for name in names]
    return [Channel(field, part, 0, "m/s") for field, part in parts]


@pytest.mark.parametrize(("aspect", "columns"), [(1.0, 3), (0.25, 3), (0.1, 1)])
def test_solution_prediction_and_error_are_in_a_row_unless_they_would_be_stripes(
    aspect: float, columns: int
) -> None:
    points = np.array([[0.0, 0, 0], [0, aspect, 0], [1, 0, 0], [1, aspect, 0]])
    plotted = [PlottedField("u", (0,), True), PlottedField("temperature (K)", (1,), False)]
    truth = np.arange(8.0).reshape(4, 2)
    figure = draw_prediction(grid_triangles(points, (2, 2)), truth, truth + 1, plotted)
    places = [axis.get_subplotspec() for axis in figure.axes if axis.get_title("left")]
    assert len(places) == 6 and places[0].get_gridspec().ncols == columns
    # Each can be shown alone: on a phone they are one above the other.
    image = Image.open(io.BytesIO(png_bytes(figure, figure.dpi)))
    panes = cut_panes(figure, image)
    assert len({each.size for each in panes}) == 1 and len(panes) == 6
    assert 0.7 * image.width < columns * panes[0].width <= image.width


def test_streamlines_need_both_velocities_of_their_plane() -> None:
    known = channels("kinematic_pressure.p", "velocity.x", "velocity.z")
    assert in_plane(known, (0, 2)) == [1, 2] and in_plane(known, (0, 1)) is None
    assert shown_channel(known) == 0 and shown_channel(known[1:]) == 0
    assert shown_channel(channels("velocity.x", "kinematic_pressure.p")) == 1


def test_rounding_on_the_drawn_layer_does_not_fill_the_scale() -> None:
    values = np.random.default_rng(0).normal(size=(1000, 2))
    values[:, 1] += 40
    values[:100, 0] *= 1e-8  # a component that vanishes on the middle plane
    plotted = PlottedField("velocity x (m/s)", (0,), signed=True, vector=(0, 1))
    (low, high), _ = scale_of(plotted, values, np.arange(100))
    assert -low == high == pytest.approx(0.05 * np.linalg.norm(values, axis=1).max())
    (low, high), _ = scale_of(plotted, values, np.arange(100, 1000))
    assert high > 2.4


@pytest.mark.parametrize(
    ("low", "high", "signed"),
    [(-0.1, 1, False), (-0.3, 1, True), (-1, 0.1, True), (-2, -1, False), (290, 310, False)],
)
def test_values_mostly_on_one_side_have_no_colours_around_zero(
    low: float, high: float, signed: bool
) -> None:
    chosen = colours.colour_map(low, high)
    assert (chosen is colours.SIGNED) == signed == colours.is_signed(low, high)
    assert signed == (chosen(0.5)[:3] == pytest.approx((0.97, 0.97, 0.97), abs=0.03))


def cloud_case(points: np.ndarray, faces: BoundaryCloud, kinds: tuple[str, ...]) -> Any:
    """What the figures of a flow read of a case that is in no store."""
    schema = SimpleNamespace(boundary=True, volumes=False)
    case = SimpleNamespace(
        points=points,
        boundary=faces,
        patch_kinds=kinds,
        parameters={},
        settings={},
        dataset=SimpleNamespace(schema=schema, family=None),
    )
    case.cloud = partial(StoredCase.cloud, case)  # type: ignore[arg-type]
    return case


def test_profiles_are_linear_between_cells_and_have_gaps_where_there_is_no_fluid() -> None:
    points = np.random.default_rng(0).uniform((0, 0, 0), (4, 1, 0), (4000, 3))
    points = points[np.hypot(points[:, 0] - 2, points[:, 1] - 0.5) > 0.2]
    plane = open_triangles(points)
    lines = flow.sample_lines(cloud_case(points, None, ()), plane)  # type: ignore[arg-type]
    assert list(lines) == ["x = 1 m", "x = 2 m", "x = 3 m"]
    for name, ends in lines.items():
        line = np.linspace(ends[0], ends[1], 200)
        found = flow.along_line(plane, 1 + 2 * points[:, 0] - points[:, 1], line)
        gap = np.isnan(found) & (np.abs(line[:, 1] - 0.5) < 0.12)
        assert gap.any() == (name == "x = 2 m")
        known = np.isfinite(found)
        np.testing.assert_allclose(
            found[known], (1 + 2 * line[:, 0] - line[:, 1])[known], atol=1e-9
        )
    family = get_family("cylinder-flow")
    behind = family.lines({"radius": 1.5, "center_x": -2.0, "center_y": 0.0})
    assert [start[0] for start, _ in behind.values()] == [1.0, 4.0, 10.0]


def test_the_vorticity_of_a_turning_body_is_twice_its_rate() -> None:
    plane, velocity = grid_triangles(square(), (3, 3)), 3 * square()[:, [1, 0]] * [-1, 1]
    np.testing.assert_allclose(vorticity(plane, velocity), 6.0)


def test_figures_are_transparent_in_the_page_and_on_white_in_their_files(tmp_path: Path) -> None:
    with rc_context(drawing.STYLE):
        figure, _ = axes_grid(3, 3, 1.0, 1.0)
    panel = pages.Panel("one", "One", [pages.Picture("one.png", "Caption.", figure, "Look.", "1")])
    folder, lead = RunDirectory(tmp_path), pages.Lead("", "Verdict")
    drawn = pages.write_page(folder, "Run", [], lead, {"": [panel]})
    ((picture,),) = drawn["one.png"]
    assert Image.open(io.BytesIO(picture)).getpixel((1, 1))[3] == 0
    assert Image.open(tmp_path / "one.png").getpixel((1, 1)) == (255,) * 4
    assert "--columns: 3" in (tmp_path / pages.PAGE).read_text()


@pytest.mark.parametrize("width", [5.5, 13.5])
def test_a_legend_has_as_many_columns_as_are_in_sight_on_a_phone(width: float) -> None:
    figure = Figure(figsize=(width, 3), layout="constrained")
    axis = figure.subplots()
    for number in range(7):
        axis.plot([0, 1], label=f"a long predictor {number}")
    legend_above(figure, [axis])
    FigureCanvasAgg(figure).draw()
    box = figure.legends[0].get_window_extent()
    assert figure.bbox.x0 <= box.x0 and box.x1 <= max(3.5, 0.42 * width) * figure.dpi


def test_streamlines_leave_no_large_hole() -> None:
    x = np.linspace(0.0, 1, 60)
    raster: Any = SimpleNamespace(x=x, y=x, inside=np.ones((60, 60), bool))
    axis, (right, up) = Figure().subplots(), np.meshgrid(x - 0.4, x - 0.4)
    draw_streamlines(axis, raster, np.stack([-up, right]), (0, 1), 1.0)
    drawn = np.concatenate([part for of in axis.collections for part in of.get_segments()])  # type: ignore[attr-defined]
    places = np.stack(np.meshgrid(x, x), axis=-1)[1:-1, 1:-1].reshape(-1, 2)
    assert np.linalg.norm(places[:, None] - drawn, axis=2).min(axis=1).max() < 2 * HOLE


def test_the_odd_case_is_that_whose_field_has_another_shape() -> None:
    points, schema = np.random.default_rng(0).random((50, 3)), SimpleNamespace(transient=False)
    shapes = [(1 + number) * points for number in range(4)] + [points[::-1]]
    cases: Any = [Shaped(of, points, SimpleNamespace(schema=schema)) for of in shapes]
    assert odd_one(cases, "velocity")[0] is cases[-1]


@pytest.mark.parametrize("outlier", ["far", "b", ""])
def test_a_case_that_is_far_off_is_drawn_too_where_it_is_of_the_validation_split(
    outlier: str,
) -> None:
    evaluation = SimpleNamespace(outlier=outlier, validation={"far": None})
    context: Any = SimpleNamespace(
        evaluation=evaluation,
        ranked=["a", "b"],
        surrogate=None,
        dataset={"b": "case b", "far": "case far"},
        better=("", None),
    )
    shown: Any = vars(Context)["shown"]
    drawn = {each.label: each.case for each in shown.func(context)}
    far = {"far off": "case far"} if outlier == "far" else {}
    assert drawn == {"largest error": "case b"} | far


def test_an_oscillation_fades_from_when_on_it_stays_below_half_of_its_size() -> None:
    times = np.arange(1.0, 101.0)
    wave = np.sin(2 * np.pi * times / 10)[:, None]
    dying = wave * np.where(times < 60, 1.0, 0.1)[:, None]
    found: Any = SimpleNamespace(
        times=times, reference_hz=0.1, interval_s=1.0, true_series=wave, predicted_series=dying
    )
    since = float(fading(found).partition("from ")[2].partition(" s")[0])
    assert 55 < since < 66 and fading(found).endswith(" s of 100 s on")
    found.predicted_series = wave
    assert fading(found) == ""


class Shaped(NamedTuple):
    """A case with one field."""

    field: Any
    points: Any
    dataset: Any

    def __getitem__(self, name: Any) -> Any:
        return self.field


def test_only_the_chosen_faces_of_a_mesh_are_drawn() -> None:
    corners = np.array([[x, y, z] for x in (0.0, 1) for y in (0.0, 1) for z in (0.0, 1)])
    # A cube of one cell, and its faces x = 0 and x = 1.
    entries = [12, 8, 0, 4, 6, 2, 1, 5, 7, 3, 9, 4, 0, 1, 3, 2, 9, 4, 4, 5, 7, 6]
    mesh = CellMesh(corners, np.array(entries, np.int32))
    (tile,), numbers = faces_of(mesh, 1, np.array([1]))
    assert numbers.tolist() == [1] and (tile[:, 0] == 1).all()
    np.testing.assert_allclose(VIEW @ VIEW.T, np.eye(3), atol=1e-12)
