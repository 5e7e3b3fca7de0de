"""`courant predict RUN case.vtu`: the predictor's numbers on a mesh of one's own, at its cells or its points."""

import meshio
import numpy as np
import pytest

import courant
import simgen
from courant.runs.directory import RunDirectory
from courant.training.loop import fit
from flows.foreign_boundary import read_boundary
from flows.foreign_prediction import predict_file
from simgen.errors import InputError
from tests.training.conftest import dataset as dataset
from tests.training.ducts import publish_ducts, tiny_steady
from tests.training.waves import tiny_experiment

PARAMETERS = {"radius": 2.0, "center_x": -5.0, "center_y": 0.0}


@pytest.fixture(scope="module")
def run(dataset, tmp_path_factory) -> str:
    url = str(tmp_path_factory.mktemp("runs") / "tiny")
    fit(tiny_experiment(epochs=1), dataset, RunDirectory(url))
    return url


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
def test_the_state_is_taken_from_cells_or_points_and_the_prediction_written_there(run, mesh, tmp_path, on):
    if on == "points":
        places = mesh.points
        mesh.point_data = {"velocity": wave(places), "colour": np.ones(len(places))}
    else:
        blocks = [mesh.points[block.data].mean(axis=1) for block in mesh.cells]
        mesh.cell_data, places = {"velocity": [wave(block) for block in blocks]}, np.concatenate(blocks)
    mesh.write(tmp_path / "case.vtu")
    line = predict_file(run, tmp_path / "case.vtu", None, PARAMETERS, 2, tmp_path / "out" / "prediction.vtu")
    assert f"6 s after the state in case.vtu, on {len(places)} {on}" in line
    written = meshio.read(tmp_path / "out" / "prediction.vtu")
    np.testing.assert_allclose(written.points, mesh.points)
    values = np.concatenate(written.cell_data["velocity"]) if on == "cells" else written.point_data["velocity"]
    expected = courant.load(run).predict(places, initial=wave(places)[:, :2], parameters=PARAMETERS, steps=2)[-1]
    np.testing.assert_allclose(values[:, :2], expected, atol=1e-6)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["prediction.vtu"]


def test_extrapolation_is_told(run, mesh, tmp_path):
    mesh.point_data = {"velocity": wave(mesh.points)}
    mesh.write(tmp_path / "case.vtu")
    line = predict_file(run, tmp_path / "case.vtu", None, {**PARAMETERS, "radius": 4.5}, 1, tmp_path / "prediction.vtu")
    assert "warning: radius = 4.5 m is outside the design space" in line


@pytest.mark.parametrize(
    ("data", "parameters", "out", "message"),
    [
        ({"U": 3}, PARAMETERS, "p.vtu", "needs the arrays velocity, on its cells or its points; it has U"),
        ({"velocity": 1}, PARAMETERS, "p.vtu", "velocity has 1 components, velocity.y is missing"),
        ({"velocity": 3}, None, "p.vtu", "say which geometry the mesh is of, such as --parameters radius=0.75"),
        ({"velocity": 3}, PARAMETERS, "p.npz", "a prediction on a mesh is written as .vtu"),
        (None, PARAMETERS, "p.vtu", "cannot be read as a mesh"),
    ],
)
def test_what_cannot_be_predicted_is_one_line(run, mesh, tmp_path, data, parameters, out, message):
    if data is None:
        (tmp_path / "case.vtu").write_text("no mesh")
    else:
        mesh.point_data = {name: np.ones((len(mesh.points), size)) for name, size in data.items()}
        mesh.write(tmp_path / "case.vtu")
    with pytest.raises(InputError, match=message.replace(".", r"\.")) as caught:
        predict_file(run, tmp_path / "case.vtu", None, parameters, 1, tmp_path / out)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["case.vtu"]


@pytest.fixture(scope="module")
def steady_run(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("ducts")
    ducts = simgen.open_dataset(publish_ducts(str(folder / "store" / "branched-pipe"), num_cases=8))
    fit(tiny_steady(epochs=1), ducts, RunDirectory(folder / "tiny"))
    return str(folder / "tiny")


DUCT = {"speed": 5.0, "half_width": 1.0, "bend": 0.5, "swirl": 0.5, "roughness": 0.5}


def box() -> tuple[meshio.Mesh, meshio.Mesh]:
    """A duct of 8 hexahedra, and its boundary of quadrilaterals and triangles: inlet, outlet, walls."""
    edges = np.array([[0, -1, -1], [0, 1, -1], [0, 1, 1], [0, -1, 1]], dtype=float)
    points = np.concatenate([edges + np.array([0.5 * x, 0, 0]) for x in range(9)])
    cells = np.array([[*range(4 * x, 4 * x + 8)] for x in range(8)])
    walls = np.array(
        [[4 * x + a, 4 * x + (a + 1) % 4, 4 * x + 4 + (a + 1) % 4, 4 * x + 4 + a] for x in range(8) for a in range(4)]
    )
    inlet, outlet = np.array([[0, 1, 2], [0, 2, 3]]), np.array([[32, 33, 34, 35]])
    velocity = [np.tile([5.0, 0, 0], (2, 1)), np.full((33, 3), np.nan)]
    boundary = meshio.Mesh(
        points, [("triangle", inlet), ("quad", np.concatenate([outlet, walls]))],
        cell_data={"patch": [np.zeros(2, int), np.array([1] + 32 * [2])], "velocity": velocity},
    )  # fmt: skip
    return meshio.Mesh(points, [("hexahedron", cells)]), boundary


def test_a_steady_model_takes_geometry_and_conditions_from_a_surface(steady_run, tmp_path):
    inside, boundary = box()
    inside.write(tmp_path / "case.vtu")
    boundary.write(tmp_path / "surface.vtu")
    out = tmp_path / "prediction.vtu"
    line = predict_file(steady_run, tmp_path / "case.vtu", tmp_path / "surface.vtu", DUCT, None, out)
    assert "8 cells, from 35 boundary faces" in line
    centres = np.array([[0.25 + 0.5 * x, 0, 0] for x in range(8)])
    distance = np.stack([centres[:, 0], 4 - centres[:, 0], np.ones(8)], axis=1)
    found = read_boundary(tmp_path / "surface.vtu", boundary, ("inlet", "outlet", "wall"))
    np.testing.assert_allclose(found.distance(centres, ("inlet", "outlet", "wall"))[0], distance, atol=1e-12)
    faces = {"points": found.faces.centres, "patch": found.patch, "velocity": found.arrays["velocity"]}
    expected = courant.load(steady_run).predict(
        centres, parameters=DUCT, boundary=faces, distance=found.distance(centres, ("inlet", "outlet", "wall"))
    )
    values = np.concatenate(meshio.read(out).cell_data["velocity"])
    # The small model has velocity.x and velocity.z.
    np.testing.assert_allclose(values[:, [0, 2]], expected, rtol=1e-5, atol=1e-5)


def test_a_steady_case_without_its_boundary_is_one_line(steady_run, tmp_path):
    inside, boundary = box()
    inside.write(tmp_path / "case.vtu")
    del boundary.cell_data["patch"]
    boundary.write(tmp_path / "surface.vtu")
    for given, message in (
        (None, r"give --boundary surface\.vtu, faces with the cell array patch \(0 inlet, 1 outlet, 2 wall\)"),
        (tmp_path / "case.vtu", "a boundary is a mesh of faces"),
        (tmp_path / "surface.vtu", "needs the cell array patch, with the kind of each face: 0 inlet, 1 outlet, 2 wall"),
    ):
        with pytest.raises(InputError, match=message):
            predict_file(steady_run, tmp_path / "case.vtu", given, DUCT, None, tmp_path / "prediction.vtu")
