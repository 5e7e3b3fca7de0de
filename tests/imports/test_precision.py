"""What single precision would round away reaches the model; rounding noise and wrecks do not.

Plane and axisymmetric cases train as they come, whatever plane or axis they lie in.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import simgen
from courant.data.normalisation import Normaliser
from courant.evaluation.evaluate import evaluate
from courant.problems import open_problem
from courant.problems.problem import read_states
from courant.recipes.fitted import fitted_recipe
from courant.runs.directory import RunDirectory
from courant.runs.record import read_records
from courant.training.train import fit
from simgen.errors import InputError
from simgen.imports import Field, Parameter, Source, SourceCase, import_cases, imported_schema
from simgen.imports.openfoam import FoamFolder
from simgen.moments import stored_type
from simgen.publish.export import export
from simgen.store.read import Dataset
from simgen.store.verify import verify
from tests.imports.foam_cases import box, write_case
from tests.imports.test_openfoam_import import imported

PRESSURE = Field("p_rgh", "Pa", ("value",))
SPEED = Parameter("speed", "m/s", 0, 9)
SCHEMA = imported_schema(
    "hot-room",
    dimension=2,
    fields=(PRESSURE, Field("velocity", "m/s", ("x", "y"))),
    source=Source("Somewhere", "https://example.org", "CC0"),
    parameters=(SPEED,),
    splits="drawn",
)
FAR = np.array([4.5e5, 5.4e6])
SMALL = {"width": 24, "num_heads": 2, "num_anchors": 8, "num_levels": 1}
SHORT = {"epochs": 2, "samples_per_epoch": 16, "warmup_steps": 0, "validate_every": 1}


def pressure(number: int) -> np.ndarray:
    """A field about 1e5 Pa that varies by 0.04 Pa; float32 has steps of 0.008 there."""
    return 100362 + 0.044 * np.random.default_rng(number).normal(size=(200, 1))


def rooms(num: int, origin: np.ndarray) -> Iterator[SourceCase]:
    for number in range(num):
        points = np.random.default_rng(number).uniform(0, 50, (200, 2)) + origin
        fields = {"p_rgh": pressure(number), "velocity": points - points.mean(axis=0)}
        yield SourceCase(f"room-{number}", points, fields, parameters={"speed": number})


def test_a_small_variation_of_a_large_value_is_kept_to_the_bit(tmp_path: Path) -> None:
    url = str(tmp_path / "hot-room")
    import_cases(url, SCHEMA, rooms(8, np.zeros(2)))
    dataset = simgen.open_dataset(url)
    for number, case in enumerate(dataset):
        np.testing.assert_array_equal(case["p_rgh"][:], pressure(number))
        assert case["velocity"].dtype == case.points.dtype == np.float32, "it is fine enough"
    assert not verify(dataset).findings
    export(dataset, str(tmp_path / "plain"))
    again = import_cases(url, SCHEMA, rooms(8, np.zeros(2)))
    assert again.num_new == 0
    # The model sees what varies, and gives it back.
    normaliser = open_problem(fitted_recipe(dataset), dataset).normaliser
    values = read_states(dataset["room-0"], normaliser.channels)
    standardised = normaliser.standardise(values)
    assert standardised.dtype == np.float32
    assert len(np.unique(standardised[:, 0])) == 200, "each of 200 different values is another"
    np.testing.assert_allclose(normaliser.restore(standardised), values, rtol=0, atol=1e-5)


def test_coordinates_far_from_the_origin_are_kept(tmp_path: Path) -> None:
    """Float32 has steps of 0.5 m there; the cells are some 3 m apart."""
    url = str(tmp_path / "city")
    import_cases(url, SCHEMA, rooms(8, FAR))
    dataset = simgen.open_dataset(url)
    for case, source in zip(dataset, rooms(8, FAR), strict=True):
        np.testing.assert_array_equal(case.points[:, :2], source.points)
    normaliser = Normaliser.of(dataset, ("velocity",))
    near = normaliser.points(dataset["room-0"].points)
    expected = next(rooms(1, np.zeros(2))).points - (np.asarray(normaliser.centre)[:2] - FAR)
    np.testing.assert_allclose(near[:, :2] * normaliser.length_scale, expected, atol=1e-4)


def test_faces_and_corners_are_as_fine_as_the_cells(tmp_path: Path) -> None:
    mesh = box()
    for number in range(3):
        far = replace(mesh, points=mesh.points + np.array([1e7 / 3, 0, 0]))
        write_case(tmp_path / f"cases/c{number}", speed=1.0 + number, mesh=far)
    dataset, skipped = imported(tmp_path)
    case = dataset[0]
    assert not skipped and case.mesh is not None
    for found in (case.points, case.boundary.points, case.mesh.points):
        halves = 2 * (found[:, 0] - 1e7 / 3)
        np.testing.assert_allclose(halves, halves.round(), atol=1e-7)
    assert set(np.unique(case.boundary.patch)) == {0, 1, 2}
    assert not verify(dataset).findings


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (np.array([[100000.0], [100000.2]]), "f8"),
        (np.array([[100000.0], [110000.0]]), "f4"),
        (np.full((9, 1), 101325.1), "f4"),
        (101325 + 1e-9 * np.arange(9.0)[:, None], "f4"),
        (np.array([[1.0, 1e5], [2.0, 1e5 + 0.1]]), "f8"),
        (np.array([[2**25], [2**25 + 1]]), "f8"),
        (np.array([[1e5], [1e5 + 1]], np.float32), "f4"),
        (np.zeros((0, 3)), "f4"),
    ],
)
def test_the_type_follows_from_deviation_and_size(values: np.ndarray, wanted: str) -> None:
    assert stored_type(values) == np.dtype(wanted)


VELOCITY = Field("velocity", "m/s", ("x", "y", "z"))
WEDGE = imported_schema(
    "wedge",
    dimension=3,
    fields=(VELOCITY, Field("wall", "m", ("value",), role="given")),
    source=Source("Somewhere", "https://example.org", "CC0"),
    parameters=(Parameter("speed", "m/s", 0, 9),),
    splits="drawn",
)
Change = Callable[[int, np.ndarray], np.ndarray]


def wedge(number: int, velocity: np.ndarray) -> np.ndarray:
    """Rounding is all of the third component, and none of it is far from zero."""
    noise = np.random.default_rng(number).normal(size=len(velocity))
    return velocity * (1, 1, 0) + 5e-15 * noise[:, None] * (0, 0, 1)


def wedges(change: Change, num: int = 9) -> Iterator[SourceCase]:
    for number in range(num):
        points = np.random.default_rng(number).uniform(0, 1, (60, 3))
        velocity = change(number, (1 + 0.1 * number) * np.sin(3 * points))
        fields = {"velocity": velocity, "wall": np.full(60, 0.1)}
        yield SourceCase(f"case-{number}", points, fields, parameters={"speed": number})


def import_wedges(folder: Path, change: Change) -> Dataset:
    url = str(folder / "wedge")
    import_cases(url, WEDGE, wedges(change))
    return simgen.open_dataset(url)


def test_noise_is_no_channel(tmp_path: Path) -> None:
    weak = import_wedges(tmp_path / "weak", lambda number, velocity: velocity * (1, 1, 1e-3))
    assert weak.varying("velocity") == ("x", "y", "z")
    dataset = import_wedges(tmp_path, wedge)
    assert dataset.varying("velocity") == ("x", "y") and dataset.varying("wall") == ()
    experiment = fitted_recipe(dataset)
    normaliser = open_problem(experiment, dataset).normaliser
    assert [each.name for each in normaliser.channels] == ["velocity.x", "velocity.y"]
    assert normaliser.given == (), "it is the same 0.1 everywhere, but for the rounding of its mean"
    assert experiment.model.num_outputs == 2
    with pytest.raises(InputError, match=r"velocity\.z is constant .* leave it out of data\.field"):
        Normaliser.of(dataset, ("velocity.x", "velocity.z"))
    with pytest.raises(InputError, match=r"wall\.value is constant .* leave it out of data\.given"):
        Normaliser.of(dataset, ("velocity",), given=("wall",))


def test_a_run_beside_a_diverged_case_learns(tmp_path: Path) -> None:
    dataset = import_wedges(tmp_path, lambda n, velocity: velocity * (1e15 if n == 4 else 1))
    short = {**SHORT, "epochs": 3, "learning_rate": 5e-3}
    experiment = fitted_recipe(dataset).derive(model=SMALL, training=short)
    run = RunDirectory(tmp_path / "run")
    fit(experiment, dataset, run)
    assert all(0 < record.train_loss < 10 for record in read_records(run))


VECTOR = re.compile(r"\((\S+) (\S+) (\S+)\)")


@pytest.mark.parametrize("wedge", [False, True], ids=["plane", "wedge"])
def test_a_case_in_another_plane_trains(wedge: bool, tmp_path: Path) -> None:
    """The component across the plane is constant, or noise in a wedge: no channel."""
    noise = np.random.default_rng(0)

    def change(case: Path) -> None:
        """Turn the box and its vectors, so that x becomes y."""
        for file in (*case.glob("constant/polyMesh/[bp]*"), *case.glob("*/[Up]")):
            across = 5e-15 * wedge * (file.name == "U")

            def turned(found: re.Match[str], across: float = across) -> str:
                vector = np.add(np.array(found.groups(), float), (0, 0, across * noise.normal()))
                return f"({' '.join(map(repr, np.roll(vector, 1).tolist()))})"

            text = VECTOR.sub(turned, file.read_text())
            file.write_text(text.replace("type empty", "type wedge") if wedge else text)

    for number in range(9):
        write_case(tmp_path / f"cases/run{number}", speed=1 + number, change=change)
    dataset, _ = imported(tmp_path, FoamFolder(fields={"U": "", "p": ""}))
    assert dataset.schema.dimension == 3
    experiment = fitted_recipe(dataset).derive(model=SMALL, training=SHORT)
    channels = [each.name for each in open_problem(experiment, dataset).normaliser.channels]
    assert set(channels) == {"velocity.y", "velocity.z", "kinematic_pressure.p"}
    run = RunDirectory(tmp_path / "run")
    fit(experiment, dataset, run)
    assert 0 < evaluate(run.url).overall["model"].nmae < 2
