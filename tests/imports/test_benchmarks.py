"""Data of public benchmarks that are made here: right by refinement, and the same every time."""

from __future__ import annotations

import numpy as np
import pytest
from skfem import MeshQuad

import simgen
from simgen.imports import generated
from simgen.imports.generated import (
    GRIDS,
    VALIDATION_FROM,
    CellGrid,
    DarcyGrid,
    SorptionGrid,
    concentration,
    generate_benchmark,
)
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
        errors.append(np.abs(generated.pressure(a, source) - u).max())
    assert errors[0] < 0.02
    assert errors[0] / errors[1] > 3.9 and errors[1] / errors[2] > 3.9


def test_darcy_comes_near_the_refined_solve_of_the_same_rock() -> None:
    fine = generated.pressure(generated.permeability(3, 121))
    errors = [
        error(generated.pressure(generated.permeability(3, 1 + 120 // step)), fine[::step, ::step])
        for step in (8, 4, 2)
    ]
    assert errors[0] > 1.4 * errors[1] > 1.4 * 1.4 * errors[2]
    assert errors[2] < 0.02


def test_the_rock_is_the_same_on_every_grid_and_has_two_permeabilities() -> None:
    a = generated.permeability(5, 61)
    np.testing.assert_array_equal(a[::2, ::2], generated.permeability(5, 31))
    assert set(np.unique(a)) == {3.0, 12.0}
    assert (a != generated.permeability(6, 61)).any()


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
    assert [round(generated.first_value(number), 6) for number in (0, 1)] == [0.109763, 0.083404]


def on_rollers(basis) -> np.ndarray:
    """Held at the bottom against rising, and on the left against moving aside."""
    rising = basis.get_dofs(lambda x: x[1] < 1e-9).all("u^2")
    return np.union1d(rising, basis.get_dofs(lambda x: x[0] < 1e-9).all("u^1"))


@pytest.mark.parametrize("pull", [100.0, 3e5])
def test_a_block_without_a_void_stretches_as_the_material_law_says(pull: float) -> None:
    """Rivlin's solution of simple tension: pull = 2 (s - 1/s2) (C1 + C2/s) at a stretch s."""
    mesh = MeshQuad.init_tensor(np.linspace(0, 1, 3), np.linspace(0, 1, 3))
    moved = generated.stretched(mesh, pull, clamped=on_rollers)
    basis = generated.displacements(mesh)
    stretch = 1 + moved[basis.get_dofs(lambda x: x[1] > 1 - 1e-9).all("u^2")]
    law = 2 * (stretch - stretch**-2) * (generated.C1 + generated.C2 / stretch)
    np.testing.assert_allclose(law, pull, rtol=1e-6)
    np.testing.assert_allclose(generated.mises_stress(mesh, moved), pull * stretch[0], rtol=1e-6)


def test_elasticity_comes_near_the_refined_solve_of_the_same_void() -> None:
    def stress(refined: int) -> np.ndarray:
        grid = CellGrid(12, 4, refined)
        return generated.cell_stress(lambda angle: 0.3 + 0.05 * np.cos(2 * angle), grid)[1]

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
