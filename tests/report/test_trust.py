"""The report tells both answers with their bands, and what the mesh adds."""

from types import SimpleNamespace

import numpy as np
import pytest

from courant.prediction.bands import (
    NUM_FEATURES,
    Bands,
    FieldErrors,
    FieldScale,
    GridError,
    Outcomes,
    Regressed,
    RegressedQuantity,
)
from courant.report.trust import NOT_STUDIED, trust_note, trust_table
from simgen.cases import get_family
from simgen.quantities import StatedQuantity

FAMILY = get_family("branched-pipe")
DESIGNS = tuple(map(tuple, np.random.default_rng(0).uniform(-1, 1, (20, 5)).tolist()))


@pytest.fixture
def context() -> SimpleNamespace:
    values = tuple(design[0] for design in DESIGNS)
    regressed = RegressedQuantity(values=values, logs=(0.0,) * 5 + (-6.0,), errors=(0.1,) * 20)
    scale = FieldScale(weights=((0.0,) * NUM_FEATURES,), floors=(1.0,), growth=(1.0,))
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
        surrogate=SimpleNamespace(bands=bands, dataset={"parameters": parameters}),
        dataset=type("D", (dict,), {"schema": schema})(dataset),
        evaluation=SimpleNamespace(cases={"one": None}),
    )


def test_both_answers_stand_with_their_bands_and_the_mesh_beside(context: SimpleNamespace) -> None:
    table = trust_table(context, {"peak_speed": np.array([0.31, np.nan])})
    assert table is not None
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}
    assert rows == {
        "pressure loss (m2/s2)": ["none", "± 0.1", NOT_STUDIED],
        "peak speed (m/s)": ["± 0.31", "none", "+10.0% to +20.0% (5 designs)"],
    }


def test_a_run_that_is_not_calibrated_has_none(context: SimpleNamespace) -> None:
    context.surrogate.bands = None
    assert trust_table(context, {}) is None and trust_note(context) == ""
