"""Public benchmarks: those made here are right by refinement; published files keep their splits."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io
from skfem import MeshQuad

import simgen
from courant.problems import open_problem
from courant.recipes import get_recipe
from simgen.errors import InputError
from simgen.imports import benchmarks
from simgen.imports.benchmarks import (
    GRIDS,
    READERS,
    VALIDATION_FROM,
    CellGrid,
    DarcyGrid,
    SorptionGrid,
    concentration,
    generate_benchmark,
    hold_out,
    read_published,
)
from simgen.imports.importing import import_cases
from simgen.store.verify import verify

SMALL = {
    "darcy": DarcyGrid(31, 5),
    "diffusion-sorption": SorptionGrid(32, 6),
    "elasticity": CellGrid(12, 4, 1),
}


def error(found: np.ndarray, reference: np.ndarray) -> float:
    return float(np.linalg.norm(found - reference) / np.linalg.norm(reference))


def test_darcy_is_second_order_where_the_permeability_is_smooth() -> None:
    errors = []
    for size in (9, 17, 33):
        x, y = np.meshgrid(*[np.linspace(0, 1, size)] * 2, indexing="ij")
        a, u = 1 + x + y**2, np.sin(np.pi * x) * np.sin(np.pi * y)
        gradient = np.cos(np.pi * x) * np.sin(np.pi * y) + 2 * y * np.sin(np.pi * x) * np.cos(
            np.pi * y
        )
        source = 2 * np.pi**2 * a * u - np.pi * gradient
        errors.append(np.abs(benchmarks.pressure(a, source) - u).max())
    assert errors[0] < 0.02
    assert errors[0] / errors[1] > 3.9 and errors[1] / errors[2] > 3.9


def test_darcy_comes_near_the_refined_solve_of_the_same_rock() -> None:
    fine = benchmarks.pressure(a := benchmarks.permeability(3, 121))
    np.testing.assert_array_equal(a[::2, ::2], benchmarks.permeability(3, 61))
    assert set(np.unique(a)) == {3.0, 12.0}
    errors = [
        error(
            benchmarks.pressure(benchmarks.permeability(3, 1 + 120 // step)), fine[::step, ::step]
        )
        for step in (8, 4, 2)
    ]
    assert errors[0] > 1.4 * errors[1] > 1.4 * 1.4 * errors[2]
    assert errors[2] < 0.02


def test_sorption_is_second_order_and_stays_in_its_bounds() -> None:
    fine = concentration(0.1, SorptionGrid(256, 6)).reshape(6, -1)
    errors = [
        error(concentration(0.1, SorptionGrid(cells, 6)), fine.reshape(6, cells, -1).mean(axis=2))
        for cells in (16, 32, 64)
    ]
    assert errors[0] > 3.8 * errors[1] > 3.8 * 3.8 * errors[2]
    assert fine.min() > 0 and fine.max() <= 1


def test_sorption_begins_with_the_published_values() -> None:
    # numpy's generator of PDEBench's time, with its seeds
    assert [round(benchmarks.first_value(number), 6) for number in (0, 1)] == [0.109763, 0.083404]


def on_rollers(basis) -> np.ndarray:
    """Held at the bottom against rising, and on the left against moving aside."""
    rising = basis.get_dofs(lambda x: x[1] < 1e-9).all("u^2")
    return np.union1d(rising, basis.get_dofs(lambda x: x[0] < 1e-9).all("u^1"))


@pytest.mark.parametrize("pull", [100.0, 3e5])
def test_a_block_without_a_void_stretches_as_the_material_law_says(pull: float) -> None:
    """Rivlin's solution of simple tension: pull = 2 (s - 1/s2) (C1 + C2/s) at a stretch s."""
    mesh = MeshQuad.init_tensor(np.linspace(0, 1, 3), np.linspace(0, 1, 3))
    moved = benchmarks.stretched(mesh, pull, clamped=on_rollers)
    basis = benchmarks.displacements(mesh)
    stretch = 1 + moved[basis.get_dofs(lambda x: x[1] > 1 - 1e-9).all("u^2")]
    law = 2 * (stretch - stretch**-2) * (benchmarks.C1 + benchmarks.C2 / stretch)
    np.testing.assert_allclose(law, pull, rtol=1e-6)
    np.testing.assert_allclose(benchmarks.mises_stress(mesh, moved), pull * stretch[0], rtol=1e-6)


def test_elasticity_comes_near_the_refined_solve_of_the_same_void() -> None:
    def stress(refined: int) -> np.ndarray:
        grid = CellGrid(12, 4, refined)
        return benchmarks.cell_stress(lambda angle: 0.3 + 0.05 * np.cos(2 * angle), grid)[1]

    fine = stress(4)
    coarse, finer = error(stress(1), fine), error(stress(2), fine)
    assert coarse > 2 * finer and finer < 0.05


@pytest.mark.parametrize("name", GRIDS)
def test_a_benchmark_grows_in_its_own_splits_and_is_not_solved_twice(
    name: str, tmp_path, monkeypatch
) -> None:
    url = str(tmp_path / "store/benchmark")
    generate_benchmark(name, url, 2, 1, grid=SMALL[name])
    dataset = simgen.open_dataset(url)
    assert [len(dataset.cases(split)) for split in ("train", "test")] == [2, 1]
    assert verify(dataset).findings == []
    solved: list[int] = []
    solve = type(SMALL[name]).case

    def case(grid, number: int, split: str):
        solved.append(number)
        return solve(grid, number, split)

    monkeypatch.setattr(type(SMALL[name]), "case", case)
    done = generate_benchmark(name, url, 3, 1, num_validation=1, grid=SMALL[name])
    assert (done.version, done.num_new, solved) == ("v2", 2, [2, VALIDATION_FROM])
    grown = simgen.open_dataset(url)
    assert grown.cases("test") == dataset.cases("test")
    assert [len(grown.cases(split)) for split in ("train", "validation")] == [3, 1]


RANDOM = np.random.default_rng(0)


def write_elasticity(folder: Path, cases: int) -> None:
    np.save(folder / "Random_UnitCell_XY_10.npy", RANDOM.random((972, 2, cases)))
    np.save(folder / "Random_UnitCell_sigma_10.npy", np.arange(cases) + np.zeros((972, 1)))


def write_curved(folder: Path, cases: int, names: str, grid: tuple[int, int], of: int) -> None:
    for part in "XY":
        np.save(folder / names.format(part), RANDOM.random((cases, *grid)))
    values = np.arange(cases)[:, None] + 10.0 * np.arange(of)
    np.save(
        folder / names.format("Q"), np.broadcast_to(values[..., None, None], (cases, of, *grid))
    )


def write_darcy(folder: Path, cases: int) -> None:
    for number in (1, 2):
        a = RANDOM.random((cases, 11, 11))
        path = folder / f"piececonst_r11_N1024_smooth{number}.mat"
        scipy.io.savemat(path, {"coeff": a, "sol": a + number})


def write_sorption(folder: Path, cases: int) -> None:
    with h5py.File(folder / "1D_diff-sorp_NA_NA.h5", "w") as file:
        for number in range(cases):
            file[f"{number:04d}/data"] = np.full((6, 16, 1), number, "f4")
            file[f"{number:04d}/grid/x"] = np.linspace(0.03, 0.97, 16)
            file[f"{number:04d}/grid/t"] = 5.0 * np.arange(6)


def write_flow(folder: Path, cases: int) -> None:
    with h5py.File(folder / "3D_CFD_Rand_M1.0_Eta1e-08_Zeta1e-08_periodic_Train.hdf5", "w") as file:
        for at, name in enumerate(("density", "Vx", "Vy", "Vz", "pressure")):
            values = np.arange(16.0)[:, None, None] + 100 * at + np.zeros((cases, 3, 16, 16, 16))
            file[name] = values.astype("f4")
        for axis in "xyz":
            file[f"{axis}-coordinate"] = np.linspace(0, 1, 16)
        file["t-coordinate"] = 0.05 * np.arange(4)


WRITERS = {
    "elasticity": write_elasticity,
    "pipe": lambda folder, cases: write_curved(folder, cases, "Pipe_{}.npy", (129, 129), 3),
    "airfoil": lambda folder, cases: write_curved(
        folder, cases, "NACA_Cylinder_{}.npy", (221, 51), 5
    ),
    "darcy": write_darcy,
    "diffusion-sorption": write_sorption,
    "compressible-flow": write_flow,
}


@pytest.fixture(autouse=True)
def small(monkeypatch) -> None:
    """Splits and grids of a few cases and points."""
    monkeypatch.setattr(benchmarks, "NUM_TRAIN", 3)
    monkeypatch.setattr(benchmarks, "NUM_TEST", 2)
    monkeypatch.setattr(benchmarks, "DARCY_SIZE", 11)


def imported(name: str, tmp_path: Path, cases: int):
    WRITERS[name](tmp_path, cases)
    schema, number, cases_of = read_published(name, tmp_path, other_files=True)
    done = import_cases(str(tmp_path / "store"), schema, cases_of)
    assert done.num_cases == number
    dataset = simgen.open_dataset(done.url)
    assert verify(dataset).findings == []
    return dataset


@pytest.mark.parametrize("name", READERS)
def test_splits_and_values_are_the_published_ones(name: str, tmp_path: Path) -> None:
    dataset = imported(name, tmp_path, 20)
    # The recipe of the dataset's name fits it.
    assert open_problem(get_recipe(dataset.schema.family), dataset).wrong_sizes() == []
    train, test = dataset.cases("train"), dataset.cases("test")
    case = dataset[test[0]]
    if name in ("elasticity", "pipe", "airfoil"):
        first = 18 if name == "elasticity" else 3
        assert train == [f"{name}-{n:04d}" for n in (0, 1, 2)]
        assert test == [f"{name}-{n:04d}" for n in (first, first + 1)]
        values = case[dataset.schema.fields[0].name][:]
        assert np.unique(values) == [first + {"airfoil": 40.0}.get(name, 0.0)]
        assert dataset.schema.grid_shape == {"pipe": (129, 129), "airfoil": (221, 51)}.get(name)
    elif name == "darcy":
        assert dataset.schema.grid_shape == (3, 3) and (len(train), len(test)) == (3, 2)
        for file, name in ((1, train[0]), (2, test[0])):
            difference = dataset[name]["pressure"][:] - dataset[name]["permeability"][:]
            np.testing.assert_allclose(difference, file, rtol=1e-5)
    elif name == "diffusion-sorption":
        assert (len(train), len(test)) == (18, 2)
        values = dataset["sorption-0007"]["concentration"]
        assert values.shape == (6, 16, 1) and values[2, 3, 0] == 7
        np.testing.assert_allclose(case.time, 5.0 * np.arange(6))
    else:
        assert dataset.schema.grid_shape == (2, 2, 2) and len(case.time) == 3
        # Every eighth point: the values are the index along x, and the fields' numbers.
        np.testing.assert_allclose(case["velocity"][1][:, 2], 300 + np.repeat([0, 8], 4))
        np.testing.assert_allclose(case.points[:, 0], np.repeat([0, 8 / 15], 4), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "file", "content", "says"),
    [
        ("elasticity", "Random_UnitCell_XY_10.npy", np.zeros((4, 2, 7)), r"expected \(972, 2, any"),
        ("elasticity", "Random_UnitCell_sigma_10.npy", np.zeros((972, 6)), "hold 7, 6 cases"),
        ("pipe", "Pipe_Q.npy", b"", "cannot be read"),
    ],
)
def test_a_wrong_file_is_one_line(name, file, content, says, tmp_path) -> None:
    WRITERS[name](tmp_path, 7)
    if isinstance(content, bytes):
        (tmp_path / file).write_bytes(content)
    else:
        np.save(tmp_path / file, content)
    with pytest.raises(InputError, match=says) as printed:
        schema, _, cases = read_published(name, tmp_path, other_files=True)
        import_cases(str(tmp_path / "store"), schema, cases)
    assert "\n" not in str(printed.value)
    assert not (tmp_path / "store").exists()


def test_training_cases_can_be_held_out_to_choose_by(tmp_path) -> None:
    with pytest.raises(InputError, match="get it from https://"):
        read_published("elasticity", tmp_path)
    write_elasticity(tmp_path, 7)
    schema, number, cases = read_published("elasticity", tmp_path)
    with pytest.raises(InputError, match="3 validation cases of 5 in all: expected less than half"):
        hold_out(cases, 3, number)
    done = import_cases(str(tmp_path / "store"), schema, hold_out(cases, 2, number))
    dataset = simgen.open_dataset(done.url)
    names = {split: dataset.cases(split) for split in ("validation", "train", "test")}
    assert names == {
        "validation": ["elasticity-0000", "elasticity-0001"],
        "train": ["elasticity-0002"],
        "test": ["elasticity-0005", "elasticity-0006"],
    }


def test_a_file_that_is_not_the_published_one_is_reported_by_its_checksum(tmp_path) -> None:
    write_flow(tmp_path, 20)
    with pytest.raises(InputError, match=r"has the MD5 \w{32}, the published file \w{32}: "):
        read_published("compressible-flow", tmp_path)
    assert read_published("compressible-flow", tmp_path, other_files=True)[1] == 20
