"""The dataset card with its quantities of interest, and how a version is made again."""

import csv
import shlex
from dataclasses import replace

import numpy as np
import pytest

import simgen
from simgen.design_space import Parameter
from simgen.errors import InputError
from simgen.publish.card import how_to_make, write_card
from simgen.regression import sobol_indices
from simgen.store.schema import Source
from simgen.store.verify import verify
from simgen.store.write import DatasetWriter
from tests.store.conftest import add, make_cloud, make_result, record

RUN = {"family": "cylinder-flow", "cases": 4, "sampler": "sobol", "seed": 42, "preset": "trial"}
RUN |= {"settings": {"end_time": 6.0}, "designs": None}


@pytest.fixture
def dataset(writer, url):
    add(writer, 0, 1, 2)
    record(writer, make_result(3, "rejected", "Courant number is 7 | limit 1.5"))
    writer.publish("four designs", RUN)
    add(writer, 4, 5)
    writer.publish("six designs", {**RUN, "cases": 6, "time_limit_s": 600.0})
    return simgen.open_dataset(url)


def test_a_card_describes_the_version_to_a_stranger(dataset, tmp_path):
    steps = []
    readme = write_card(dataset, tmp_path / "card", "CC-BY-4.0", lambda *step: steps.append(step))
    text = readme.read_text()
    velocity = dataset.statistics["velocity"]["mean"][1]
    assert (np.diff(dataset.usual_ends["velocity"], axis=0) > 0).all()
    for expected in (
        "# cylinder-flow v2",
        "| licence | CC-BY-4.0 |",
        "| `radius` | m | 0.75 to 4 | radius of the cylinder |",
        "| `velocity` | m/s | x, y | (T, N, 2) |",
        f"| `velocity` y | m/s | {velocity:.4g} |",
        "| rejected | Courant number is 7 \\| limit 1.5 | 1 |",
        "courant generate cylinder-flow --cases 4 --sampler sobol --seed 42 --preset trial",
        f'simgen.open_dataset("{dataset.url}", version="v2")',
    ):
        assert expected in text, expected
    for picture in ("designs.png", "samples.png", "distributions.png"):
        assert f"({picture})" in text
        assert (readme.parent / picture).read_bytes()[:4] == b"\x89PNG"
    with (readme.parent / "cases.csv").open() as file:
        assert {row["case"] for row in csv.DictReader(file)} == set(dataset.design.index)
    assert steps[-1][0] == steps[-1][1]
    assert "tab:" not in text
    assert "in 15 s of wall time" in text, "six cases of 2.5 s"


def test_without_a_licence_the_card_says_so_and_a_card_is_written_over_a_card_alone(
    dataset, tmp_path
):
    readme = write_card(dataset, tmp_path)
    assert "| licence | not stated |" in readme.read_text()
    source = Source("waves", "https://example.org", "CC0-1.0")
    imported = simgen.open_dataset(dataset.url)
    imported.schema = replace(dataset.schema, source=source)
    assert "| licence | CC0-1.0 |" in write_card(imported, tmp_path).read_text()
    asked_for = write_card(imported, tmp_path, "CC-BY-4.0")
    assert "| licence | CC-BY-4.0 |" in asked_for.read_text()
    readme.write_text("# My project")
    with pytest.raises(InputError, match=r"README\.md is no dataset card"):
        write_card(dataset, tmp_path)
    assert readme.read_text() == "# My project"


@pytest.mark.parametrize("given", [None, {**RUN, "design_parameters": [{"radius": 2.0}]}])
def test_designs_that_no_command_names_have_none(writer, url, tmp_path, given):
    add(writer, 0, 1)
    writer.publish("from Python, or of designs that were given", given)
    dataset = simgen.open_dataset(url)
    assert how_to_make(dataset) == []
    assert "Make it again" not in write_card(dataset, tmp_path).read_text()


def test_a_version_that_grew_is_made_again_by_the_same_runs_on_the_command_line(dataset):
    import typer.main

    from flows.cli.app import app

    generate = typer.main.get_command(app).commands["generate"]
    first, second = how_to_make(dataset)
    assert how_to_make(simgen.open_dataset(dataset.url, "v1")) == [first]
    for command, cases, limit in ((first, 4, None), (second, 6, 600.0)):
        assert command.startswith("courant generate cylinder-flow ")
        asked = generate.make_context("generate", shlex.split(command)[2:]).params
        assert (asked["cases"], asked["time_limit_s"]) == (cases, limit)


HOSTILE = (
    "[click](http://page.example) ![](http://page.example/pixel) <img src=x> `code` | a\n# Title"
)


def test_a_strangers_names_are_plain_text_in_a_card(writer, url, tmp_path):
    add(writer, 0, 1, 2)
    record(writer, make_result(3, "rejected", HOSTILE))
    writer.publish(HOSTILE)
    text = write_card(simgen.open_dataset(url), tmp_path / "card").read_text()
    plain = HOSTILE.replace("\n", " ")
    for special in ("`", "|", "["):
        plain = plain.replace(special, f"\\{special}")
    plain = plain.replace("<img", "\\<img")
    assert f"| rejected | {plain} | 1 |" in text
    assert text.count(plain) == 2, "in the reason, and in the version's message"
    assert "\n# Title" not in text


def drag(parameters: dict[str, float]) -> float:
    return 1.0 + parameters["radius"] ** 2 / 10


def with_figures(number: int, status: str = "accepted"):
    result = make_result(number, status, "" if status == "accepted" else "mass imbalance is 1")
    figures = {"mean_drag": drag(result.point.parameters), "strouhal_number": float("nan")}
    return replace(result, provenance={**result.provenance, "figures": figures})


def write(writer: DatasetWriter, *numbers: int) -> None:
    for number in numbers:
        record(writer, with_figures(number), make_cloud(number))


def test_quantities_stand_in_the_table_of_designs_and_in_the_statistics(writer, url):
    write(writer, 0, 1, 2, 3)
    record(writer, with_figures(4, "rejected"))
    dataset = simgen.open_dataset(url, writer.publish("five"))
    table = dataset.design
    for case in dataset.cases():
        assert table.loc[case, "mean_drag"] == drag(dataset[case].parameters)
        assert np.isnan(table.loc[case, "strouhal_number"])
    assert np.isnan(table.loc[with_figures(4).id, "mean_drag"]), "a rejected case has no quantities"
    train = np.array([drag(dataset[case].parameters) for case in dataset.cases("train")])
    found = {"mean": train.mean(), "std": train.std(), "min": train.min(), "max": train.max()}
    assert dataset.quantity_statistics["mean_drag"] == pytest.approx(found)
    assert verify(dataset).findings == []
    taken_back = dataset.cases("train")[0]
    left = simgen.open_dataset(url, writer.withdraw([taken_back], "a mistake"))
    assert np.isnan(left.design.loc[taken_back, "mean_drag"])


def test_the_card_draws_quantities_and_says_what_they_depend_on(writer, url, tmp_path):
    write(writer, *range(24))
    text = write_card(simgen.open_dataset(url, writer.publish("24")), tmp_path).read_text()
    assert "(quantities.png)" in text
    assert (tmp_path / "quantities.png").stat().st_size > 5000
    *_, row = (line for line in text.splitlines() if line.startswith("| `mean_drag` |"))
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


def test_a_single_parameter_explains_all() -> None:
    drawn = [{"a": each["a"]} for each in designs(12)]
    found = sobol_indices(PARAMETERS[:1], drawn, [each["a"] ** 2 for each in drawn])
    assert found is not None and found.first == found.total == (1.0,)


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
