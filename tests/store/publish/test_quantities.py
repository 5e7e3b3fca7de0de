"""Quantities of interest in a dataset version: its tables, statistics, differences and card."""

from dataclasses import replace

import numpy as np
import pytest

import simgen
from simgen.design_space import Parameter
from simgen.publish.card import write_card
from simgen.regression import sobol_indices
from simgen.store.verify import verify
from simgen.store.write import DatasetWriter
from tests.store.conftest import make_cloud, make_result, record


def drag(parameters: dict[str, float]) -> float:
    return 1.0 + parameters["radius"] ** 2 / 10


def with_figures(number: int, status: str = "accepted"):
    result = make_result(number, status, "" if status == "accepted" else "mass imbalance is 1")
    figures = {
        "mean_drag": drag(result.point.parameters),
        "rms_lift": 0.5,
        "strouhal_number": float("nan"),
        "max_courant": 0.4,
    }
    return replace(result, provenance={**result.provenance, "figures": figures})


def write(writer: DatasetWriter, *numbers: int) -> None:
    fork = writer.fork()
    for number in numbers:
        fork.write(with_figures(number), make_cloud(number))
    writer.commit([fork])


def test_quantities_stand_in_the_table_of_designs_and_in_the_statistics(writer, url):
    write(writer, 0, 1, 2, 3)
    record(writer, with_figures(4, "rejected"))
    dataset = simgen.open_dataset(url, writer.publish("five"))
    table = dataset.design
    assert [each.name for each in dataset.schema.quantities] == [
        "mean_drag",
        "rms_lift",
        "strouhal_number",
    ]
    for case in dataset.cases():
        assert table.loc[case, "mean_drag"] == drag(dataset[case].parameters)
        assert np.isnan(table.loc[case, "strouhal_number"])
    assert np.isnan(table.loc[with_figures(4).id, "mean_drag"]), "a rejected case has no quantities"
    train = table.loc[dataset.cases("train"), "mean_drag"]
    found = dataset.quantity_statistics["mean_drag"]
    assert found["mean"] == pytest.approx(train.mean())
    assert found["std"] == pytest.approx(np.std(train))
    assert (found["min"], found["max"]) == (train.min(), train.max())
    assert verify(dataset).findings == []
    taken_back = dataset.cases("train")[0]
    left = simgen.open_dataset(url, writer.withdraw([taken_back], "a mistake"))
    assert np.isnan(left.design.loc[taken_back, "mean_drag"])


def test_the_card_draws_quantities_and_says_what_they_depend_on(writer, url, tmp_path):
    write(writer, *range(24))
    text = write_card(simgen.open_dataset(url, writer.publish("24")), tmp_path).read_text()
    assert "(quantities.png)" in text
    assert (tmp_path / "quantities.png").stat().st_size > 5000
    (row,) = (
        line
        for line in text.splitlines()
        if line.startswith("| `mean_drag` |") and "," in line and "drag coefficient" not in line
    )
    radius, center_x, _ = (cell.split(", ") for cell in row.split(" | ")[1:4])
    assert float(radius[0]) > 0.9, "the radius alone explains it"
    assert float(center_x[1]) < 0.05
    assert "| `strouhal_number` |" not in text, "no case has one"


PARAMETERS = tuple(Parameter(name, "m", 2.0, 6.0) for name in "ab")


def designs(number: int) -> list[dict[str, float]]:
    drawn = np.random.default_rng(0).uniform(2, 6, (number, 2))
    return [dict(zip("ab", row.tolist(), strict=True)) for row in drawn]


def test_sobol_indices_are_those_of_the_function():
    drawn = designs(80)
    # Over -1..1, x and y having the variance 1/3: 4/3 + 1/3 + 1/9 (the product) of 16/9.
    scaled = [((each["a"] - 4) / 2, (each["b"] - 4) / 2) for each in drawn]
    found = sobol_indices(PARAMETERS, drawn, [2 * x + y + x * y for x, y in scaled])
    assert found is not None and found.fit > 0.99
    assert found.first == pytest.approx((12 / 16, 3 / 16), abs=0.03)
    assert found.total == pytest.approx((13 / 16, 4 / 16), abs=0.03)


def test_there_are_no_sobol_indices_of_noise_of_few_designs_or_of_a_constant():
    drawn = designs(80)
    noise = np.random.default_rng(1).normal(size=80)
    smooth = [each["a"] for each in drawn]
    assert sobol_indices(PARAMETERS, drawn, noise) is None
    assert sobol_indices(PARAMETERS, drawn[:15], smooth[:15]) is None
    assert sobol_indices(PARAMETERS, drawn, [1.0] * 80) is None
    assert sobol_indices((), [{}] * 80, noise) is None
    # Those that are unknown do not count.
    assert sobol_indices(PARAMETERS, drawn, [*smooth[:15], *[float("nan")] * 65]) is None
