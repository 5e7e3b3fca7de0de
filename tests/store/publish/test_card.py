"""The dataset card, and how a version is made again."""

import csv
import shlex
from dataclasses import replace

import pytest

import simgen
from simgen.errors import InputError
from simgen.publish.card import how_to_make, write_card
from simgen.store.schema import Source
from tests.store.conftest import add, make_result, record

RUN = {
    "family": "cylinder-flow",
    "cases": 4,
    "sampler": "sobol",
    "seed": 42,
    "preset": "trial",
    "settings": {"end_time": 6.0},
    "designs": None,
}


@pytest.fixture
def dataset(writer, url):
    add(writer, 0, 1, 2)
    record(writer, make_result(3, "rejected", "Courant number is 7 | limit 1.5"))
    writer.publish("four designs", RUN)
    add(writer, 4, 5)
    writer.publish("six designs", {**RUN, "cases": 6, "time_limit_s": 600.0})
    return simgen.open_dataset(url)


def test_a_card_tells_a_stranger_what_the_version_is(dataset, tmp_path):
    told = []
    readme = write_card(
        dataset, tmp_path / "card", "CC-BY-4.0", lambda done, total: told.append((done, total))
    )
    text = readme.read_text()
    for expected in (
        "# cylinder-flow v2",
        "| licence | CC-BY-4.0 |",
        "Karman vortex street",
        "| `radius` | m | 0.75 to 4 | radius of the cylinder |",
        "| `velocity` | m/s | x, y | (T, N, 2) |",
        "| rejected | Courant number is 7 \\| limit 1.5 | 1 |",
        "5 transient simulations",
        (
            "courant generate cylinder-flow --cases 4 --sampler sobol --seed 42 --preset trial"
            " --set end_time=6.0 --store made-again && "
        ),
        f'simgen.open_dataset("{dataset.url}", version="v2")',
        "OpenFOAM v1912",
    ):
        assert expected in text, expected
    for picture in ("designs.png", "samples.png", "distributions.png"):
        assert f"({picture})" in text
        assert (readme.parent / picture).read_bytes()[:4] == b"\x89PNG"
    with (readme.parent / "cases.csv").open() as file:
        assert {row["case"] for row in csv.DictReader(file)} == set(dataset.design.index)
    assert told[-1][0] == told[-1][1]
    assert "tab:" not in text
    assert "Solved with an unknown solver in 15 s of wall time" in text, "six cases of 2.5 s"
    assert "Of the times after 10 s: before, the flow starts." in text
    assert "nearly all of a component's variance" not in text


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
    with pytest.raises(InputError, match=r"README\.md is no dataset card: choose another folder"):
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

    root = typer.main.get_command(app)
    first, second = how_to_make(dataset)
    assert ("--cases 6" in second, "--time-limit 600.0" in second) == (True, True)
    assert how_to_make(simgen.open_dataset(dataset.url, "v1")) == [first]
    for command in (first, second):
        program, name, *words = shlex.split(command)
        assert program == "courant"
        subcommand = root.commands[name]
        assert subcommand.make_context(name, words).params["family"] == "cylinder-flow"


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
