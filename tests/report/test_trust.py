"""How far to trust a model and what it cost: bands beside the mesh's error, the ledger's search."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from courant.prediction.bands import (
    Bands,
    FieldErrors,
    FieldScale,
    GridError,
    Outcomes,
    Regressed,
    RegressedQuantity,
)
from courant.report.data_and_training import tuning_seconds
from courant.report.errors import trust_table
from courant.runs.directory import RunDirectory
from simgen.cases import get_family
from simgen.quantities import StatedQuantity

FAMILY = get_family("branched-pipe")
DESIGNS = tuple(map(tuple, np.random.default_rng(0).uniform(-1, 1, (20, 5)).tolist()))


@pytest.fixture
def context() -> SimpleNamespace:
    values = tuple(design[0] for design in DESIGNS)
    regressed = RegressedQuantity(values=values, logs=(0.0,) * 5 + (-6.0,), errors=(0.1,) * 20)
    scale = FieldScale(weights=((0.0,) * 4,), floors=(1.0,), growth=(1.0,))
    bands = Bands(
        weights="",
        version="v1",
        cases=tuple(map(str, range(20))),
        designs=DESIGNS,
        ranges=(),
        quantities={"peak_speed": (0.3,) * 20},
        field=FieldErrors(scale=scale, largest=(1.0,) * 20),
        outcomes=Outcomes(designs=DESIGNS, unsolved=(False,) * 20),
        grid={"peak_speed": GridError(order=1, low=0.1, high=0.2, num_designs=5, sizes=(5, 7))},
        regressed=Regressed(designs=DESIGNS, quantities={"pressure_loss": regressed}),
    )
    parameters = [
        {"name": each.name, "unit": each.unit, "low": each.low, "high": each.high}
        for each in FAMILY.design_space.parameters
    ]
    middle = {each["name"]: (each["low"] + each["high"]) / 2 for each in parameters}
    schema = SimpleNamespace(
        family=FAMILY.name, quantities=tuple(map(StatedQuantity.of, FAMILY.quantities))
    )
    dataset = {"one": SimpleNamespace(parameters=middle)}
    return SimpleNamespace(
        surrogate=SimpleNamespace(bands=bands, scaled=lambda _: np.zeros(len(parameters))),
        dataset=type("D", (dict,), {"schema": schema})(dataset),
        evaluation=SimpleNamespace(cases={"one": None}),
    )


def test_a_calibrated_run_has_both_bands_and_the_error_of_the_mesh(
    context: SimpleNamespace,
) -> None:
    table = trust_table(context, {"peak_speed": np.array([0.31, np.nan])})
    assert table is not None
    rows = {row["quantity"]: list(row.values())[1:] for row in table.rows}
    assert rows["pressure loss (m2/s2)"] == ["none", "± 0.1", "not studied"]
    assert rows["peak speed (m/s)"] == ["± 0.31", "none", "+10.0% to +20.0% (5 designs)"]
    context.surrogate.bands = None
    assert trust_table(context, {}) is None


def test_the_other_trials_of_a_sweep_are_its_search(tmp_path: Path) -> None:
    sweep = RunDirectory(tmp_path / "sweep")
    rows = [
        {"run": f"/first/place/{name}", "seconds": seconds}
        for name, seconds in (("a", 5.0), ("b", 7.0), ("c", 11.0))
    ]
    sweep.write_json("trials.json", rows)
    assert tuning_seconds(sweep / "trials" / "b") == 16.0
    assert tuning_seconds(RunDirectory(tmp_path / "runs" / "a")) is None
