"""The mesh's own error is found from a few designs on several meshes, and kept apart."""

from pathlib import Path

import numpy as np
import pytest

import simgen
from bench.synthetic_cases import publish_cases
from courant.evaluation.calibrate import grid_errors
from courant.prediction.bands import fit_grid_error
from simgen.case import CaseResult
from simgen.errors import InputError
from simgen.store.read import Dataset
from simgen.store.schema import Schema
from tests.world import FAMILY, SPACE, duct

SIZES = np.array([3.5, 5.0, 7.0])


def test_order_and_converged_values_of_exact_data_are_recovered() -> None:
    fine = np.array([10.0, 20.0, -4.0, 7.0])
    values = fine[:, None] * (1 - 0.004 * SIZES**2)
    found = fit_grid_error(SIZES, values, 7.0)
    assert found.order == pytest.approx(2.0, abs=0.06)
    for true, ends in zip(fine, map(found.fine, values[:, -1].tolist()), strict=True):
        assert sorted(ends) == pytest.approx([true, true], rel=0.01)


@pytest.mark.parametrize(
    ("sizes", "order", "noise"),
    [
        ((5.0, 7.0), 1.0, 0.0),
        ((5.0, 7.0), 1.6, 0.005),
        ((5.0, 7.0), 2.0, 0.0),
        ((3.5, 5.0, 7.0), 1.0, 0.01),
        ((3.5, 5.0, 7.0), 1.0, 0.002),
        ((3.5, 5.0, 7.0), 2.0, 0.01),
    ],
)
def test_an_order_that_is_known_badly_makes_the_interval_wider(
    sizes: tuple[float, ...], order: float, noise: float
) -> None:
    """Designs whose mesh takes 18 % off, give or take 3, of an order that the fit has to find."""
    generator, held = np.random.default_rng(1), []
    for _ in range(200):
        shares = generator.normal(0.18, 0.03, 6) / 7.0**order
        fine = generator.uniform(5, 20, 6)
        values = fine[:, None] * (1 - shares[:, None] * np.array(sizes) ** order)
        values = values * (1 + noise * generator.normal(size=values.shape))
        found = fit_grid_error(np.array(sizes), values[:5], 7.0)
        low, high = found.fine(float(values[5, -1]))
        held.append(low <= fine[5] <= high)
    assert np.mean(held) >= 0.85


def test_two_sizes_are_taken_with_usual_orders_and_fewer_are_refused() -> None:
    values = np.array([[10.0, 9.0], [8.0, 7.3], [5.0, 4.6]])
    assert fit_grid_error(SIZES[1:], values, 7.0).order == 1.0
    with pytest.raises(InputError, match="needs 3 designs solved with two mesh sizes"):
        fit_grid_error(SIZES[1:], values[:2], 7.0)
    with pytest.raises(InputError, match="there are 3 with 1"):
        fit_grid_error(SIZES[:1], values[:, :1], 7.0)


@pytest.mark.parametrize("row", [(0.0, 0.0, 0.0), (5e-5, 1e-4, 3e-4), (0.2, 0.0, 0.0)])
def test_what_is_nearly_zero_has_no_share_of_an_error(row: tuple[float, ...]) -> None:
    """A steady wake has no frequency, and one design may shed on the finest mesh alone."""
    values = np.array([[0.21, 0.2, 0.19], [0.25, 0.24, 0.23], [0.22, 0.21, 0.2], row])
    with pytest.raises(InputError, match="nearly zero for some design or on some mesh"):
        fit_grid_error(SIZES, values, 7.0)


def study(folder: Path, sizes: list[float], share: float = 0.5, **other: float) -> Dataset:
    """Write designs on meshes of several sizes; quantities converge with the second order."""
    url, cases = str(folder / "branched-pipe"), []
    shapes = SPACE.sample(4, "sobol", 1)
    for number, design in enumerate(FAMILY.design_space.sample(4, "sobol", 1)):
        for size in sizes:
            point = FAMILY.point(design, FAMILY.settings("trial", {"mesh_size": size, **other}))
            loss = (number + 1) * (1 - 0.004 * size**2)
            figures = {"pressure_loss": loss, "branch1_share": share, "peak_speed": 9 - 0.1 * size}
            result = CaseResult(point, "accepted", provenance={"figures": figures})
            cases.append((result, duct(60, shapes[number], seed=number)))
    return simgen.open_dataset(publish_cases(url, Schema.of(FAMILY), cases))


def test_a_dataset_of_designs_on_several_meshes_has_the_error(tmp_path: Path) -> None:
    settings, sizes = FAMILY.settings("trial"), [7.0, 5.0, 3.5]
    found, without = grid_errors(study(tmp_path, sizes), settings)
    assert without == {}
    assert set(found) == {"pressure_loss", "branch1_share", "peak_speed"}
    low, high = found["pressure_loss"].fine(1 - 0.004 * 49)
    assert low <= 1.0 <= high and high - low < 0.02
    assert found["branch1_share"].fine(0.5) == pytest.approx((0.5, 0.5))
    with pytest.raises(InputError, match="has no case of the training's mesh_size, 6"):
        grid_errors(simgen.open_dataset(tmp_path / "branched-pipe"), {**settings, "mesh_size": 6.0})
    found, without = grid_errors(study(tmp_path / "zero", sizes, share=0.0), settings)
    assert set(found) == {"pressure_loss", "peak_speed"}
    assert list(without) == ["branch1_share"] and "nearly zero" in without["branch1_share"]
    with pytest.raises(InputError, match="in other settings"):
        grid_errors(study(tmp_path / "other", [7.0, 5.0], max_iterations=900.0), settings)
