"""`courant predict RUN case.vtu` predicts on another mesh, at its cells or its points."""

import xml.etree.ElementTree as ElementTree

import meshio
import numpy as np
import pytest

import courant
from courant.data.normalisation import Channel, named_arrays
from flows.cli.prediction_files import predict_file, read_boundary, read_state, write_prediction
from simgen.cell_mesh import Shape
from simgen.errors import InputError

PARAMETERS = {"radius": 2.0, "center_x": -5.0, "center_y": 0.0}


@pytest.fixture(scope="module")
def steady_run(world) -> str:
    return world.ducts_run()


@pytest.fixture
def mesh() -> meshio.Mesh:
    """Quadrilaterals and triangles downstream of the cylinder."""
    x, y = np.meshgrid(np.linspace(2, 30, 12), np.linspace(-8, 8, 7), indexing="ij")
    points = np.stack([x.ravel(), y.ravel(), np.zeros(x.size)], axis=1)
    corner = np.arange(11)[:, None] * 7 + np.arange(6)
    quads = np.stack([corner, corner + 7, corner + 8, corner + 1], axis=-1).reshape(-1, 4)
    triangles = np.concatenate([quads[40:, [0, 1, 2]], quads[40:, [0, 2, 3]]])
    return meshio.Mesh(points, [("quad", quads[:40]), ("triangle", triangles)])


def wave(points: np.ndarray) -> np.ndarray:
    phase = 0.3 * points[:, 0]
    return np.stack([1 + 0.5 * np.sin(phase), 0.3 * np.cos(phase), np.zeros(len(points))], axis=-1)


@pytest.mark.parametrize("on", ["cells", "points"])
def test_the_state_is_taken_from_cells_or_points_and_the_prediction_written_there(
    waves_run, mesh, tmp_path, on
):
    if on == "points":
        places = mesh.points
        mesh.point_data = {"velocity": wave(places), "colour": np.ones(len(places))}
    else:
        blocks = [mesh.points[block.data].mean(axis=1) for block in mesh.cells]
        mesh.cell_data = {"velocity": [wave(block) for block in blocks]}
        places = np.concatenate(blocks)
    mesh.write(tmp_path / "case.vtu")
    line = predict_file(
        waves_run, tmp_path / "case.vtu", None, PARAMETERS, 2, tmp_path / "out" / "prediction.vtu"
    )
    assert f"2 steps from 3 to 6 s after the state in case.vtu, on {len(places)} {on}" in line
    assert line.splitlines()[1].startswith("no band of error holds on a mesh of your own")
    written = meshio.read(tmp_path / "out" / "prediction.vtu")
    np.testing.assert_allclose(written.points, mesh.points)
    values = (
        np.concatenate(written.cell_data["velocity"])
        if on == "cells"
        else written.point_data["velocity"]
    )
    expected = courant.load(waves_run).predict(
        places, initial=wave(places)[:, :2], parameters=PARAMETERS, steps=2
    )[-1]
    np.testing.assert_allclose(values[:, :2], expected, atol=1e-6)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["prediction.vtu"]


@pytest.mark.parametrize(
    ("data", "parameters", "out", "message"),
    [
        ({"U": 3}, PARAMETERS, "p.vtu", "needs the arrays velocity, .*; it has U"),
        ({"velocity": 1}, PARAMETERS, "p.vtu", r"velocity\.y is missing"),
        ({"velocity": 3}, None, "p.vtu", "--parameters radius=0.75,center_x=-8,center_y=-5$"),
        ({"velocity": 3}, PARAMETERS, "p.npz", r"p\.npz has no suffix of \.vtu, \.pvd"),
    ],
)
def test_what_cannot_be_predicted_is_one_line(
    waves_run, mesh, tmp_path, data, parameters, out, message
):
    mesh.point_data = {name: np.ones((len(mesh.points), size)) for name, size in data.items()}
    mesh.write(tmp_path / "case.vtu")
    with pytest.raises(InputError, match=message) as caught:
        predict_file(waves_run, tmp_path / "case.vtu", None, parameters, 1, tmp_path / out)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["case.vtu"]


DUCT = {"speed": 5.0, "half_width": 1.0, "bend": 0.5, "swirl": 0.5, "roughness": 0.5}


def box() -> tuple[meshio.Mesh, meshio.Mesh]:
    """A duct of 8 hexahedra, and its boundary of quadrilaterals and triangles: inlet, outlet,
    walls.
    """
    edges = np.array([[0, -1, -1], [0, 1, -1], [0, 1, 1], [0, -1, 1]], dtype=float)
    points = np.concatenate([edges + np.array([0.5 * x, 0, 0]) for x in range(9)])
    cells = np.array([[*range(4 * x, 4 * x + 8)] for x in range(8)])
    walls = np.array(
        [
            [4 * x + a, 4 * x + (a + 1) % 4, 4 * x + 4 + (a + 1) % 4, 4 * x + 4 + a]
            for x in range(8)
            for a in range(4)
        ]
    )
    inlet, outlet = np.array([[0, 1, 2], [0, 2, 3]]), np.array([[32, 33, 34, 35]])
    velocity = [np.tile([5.0, 0, 0], (2, 1)), np.full((33, 3), np.nan)]
    boundary = meshio.Mesh(
        points,
        [("triangle", inlet), ("quad", np.concatenate([outlet, walls]))],
        cell_data={"patch": [np.zeros(2, int), np.array([1] + 32 * [2])], "velocity": velocity},
    )
    return meshio.Mesh(points, [("hexahedron", cells)]), boundary


def test_a_steady_model_takes_geometry_and_conditions_from_a_surface(steady_run, tmp_path):
    inside, boundary = box()
    inside.write(tmp_path / "case.vtu")
    boundary.write(tmp_path / "surface.vtu")
    out = tmp_path / "prediction.vtu"
    line = predict_file(
        steady_run, tmp_path / "case.vtu", tmp_path / "surface.vtu", DUCT, None, out
    )
    assert "8 cells, from 35 boundary faces" in line
    centres = np.array([[0.25 + 0.5 * x, 0, 0] for x in range(8)])
    distance = np.stack([centres[:, 0], 4 - centres[:, 0], np.ones(8)], axis=1)
    found = read_boundary(tmp_path / "surface.vtu", boundary, ("inlet", "outlet", "wall"))
    np.testing.assert_allclose(
        found.distance(centres, ("inlet", "outlet", "wall"))[0], distance, atol=1e-12
    )
    faces = {"points": found.centres, "patch": found.patch, "velocity": found.arrays["velocity"]}
    expected = courant.load(steady_run).predict(
        centres,
        parameters=DUCT,
        boundary=faces,
        distance=found.distance(centres, ("inlet", "outlet", "wall")),
    )
    # The small model has velocity.x and velocity.z: y is left out.
    written = meshio.read(out).cell_data
    assert set(written) == {"velocity.x", "velocity.z"}
    values = np.stack([written["velocity.x"][0], written["velocity.z"][0]], axis=-1)
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, r"give --boundary surface\.vtu, .* \(0 inlet, 1 outlet, 2 wall\)"),
        ("case.vtu", "a boundary is a mesh of faces"),
        ("surface.vtu", "needs the cell array patch, .*: 0 inlet, 1 outlet, 2 wall"),
    ],
)
def test_a_steady_case_without_its_boundary_is_one_line(steady_run, tmp_path, given, message):
    inside, boundary = box()
    inside.write(tmp_path / "case.vtu")
    del boundary.cell_data["patch"]
    boundary.write(tmp_path / "surface.vtu")
    faces, out = given and tmp_path / given, tmp_path / "prediction.vtu"
    with pytest.raises(InputError, match=message):
        predict_file(steady_run, tmp_path / "case.vtu", faces, DUCT, None, out)


def test_a_rollout_is_a_series_of_files_with_their_times(waves_run, mesh, tmp_path):
    mesh.point_data = {"velocity": wave(mesh.points)}
    mesh.write(tmp_path / "case.vtu")
    own, stored = tmp_path / "own.pvd", tmp_path / "stored.pvd"
    assert "2 steps from 3 to 6 s" in predict_file(
        waves_run, tmp_path / "case.vtu", None, PARAMETERS, 2, own
    )
    surrogate = courant.load(waves_run)
    case = surrogate.open_dataset()[0]
    radius = {own: PARAMETERS["radius"], stored: case.parameters["radius"]}
    line, error = write_prediction(waves_run, case.id, 23.0, 2, stored, None).splitlines()
    predicted = surrogate.predict_case(case, start_s=23.0, steps=2)
    truth = case["velocity"][[list(case.time).index(time) for time in (26.0, 29.0)]]
    nmae = abs(predicted - truth).sum() / abs(truth).sum()
    assert "2 steps from 26 to 29 s" in line
    assert error.startswith(f"error of velocity  NMAE {nmae:.3f}")
    assert f"largest error {abs(predicted - truth).max():.3g} m/s" in error
    for file, times in ((own, [3, 6]), (stored, [26, 29])):
        entries = ElementTree.parse(file).getroot().findall("Collection/DataSet")
        assert [float(entry.get("timestep")) for entry in entries] == times
        states = [meshio.read(tmp_path / entry.get("file")) for entry in entries]
        assert [each.field_data["TimeValue"] for each in states] == times
        assert {each.field_data["radius (m)"].item() for each in states} == {radius[file]}
    about = b"<!-- run tiny; dataset cylinder-flow v1; fields by the network: velocity (m/s) -->"
    assert about in (tmp_path / entries[0].get("file")).read_bytes()
    for state, expected in zip((each.point_data for each in states), predicted, strict=True):
        np.testing.assert_allclose(state["velocity"][:, :2], expected, atol=1e-6)
        difference = state["velocity"] - state["velocity_solver"]
        np.testing.assert_allclose(state["velocity_error"], difference, atol=1e-6)
    assert sorted(path.name for path in tmp_path.rglob("*.vtu") if "part" in path.name) == []


def test_a_rollout_does_not_overwrite_the_state_that_it_goes_on_from(waves_run, mesh, tmp_path):
    state = tmp_path / "wake" / "wake_00001.vtu"
    state.parent.mkdir()
    mesh.write(state)
    with pytest.raises(InputError, match=r"lies where .*wake\.pvd is written; name"):
        predict_file(waves_run, state, None, PARAMETERS, 2, tmp_path / "wake.pvd")
    assert not (tmp_path / "wake.pvd").exists()


def test_a_part_of_a_vector_is_written_and_read_by_its_components(mesh, tmp_path):
    channels = tuple(Channel("velocity", axis, "xyz".index(axis), "m/s") for axis in "zx")
    values = np.random.default_rng(0).normal(size=(len(mesh.points), 2))
    parts = named_arrays(values, channels, 3)
    assert set(parts) == {"velocity.z", "velocity.x"}
    whole = named_arrays(values, (*channels[1:], Channel("velocity", "y", 1, "m/s")), 2)
    np.testing.assert_array_equal(whole["velocity"], np.pad(values, ((0, 0), (0, 1))))
    file = tmp_path / "part.vtu"
    Shape(mesh, "points").filled(parts).write(file)
    np.testing.assert_array_equal(read_state(file, meshio.read(file), channels)[2], values)
