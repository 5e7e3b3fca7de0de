"""What the help of the commands has to say."""

import pytest
from typer.testing import CliRunner

from flows.cli.app import app


@pytest.mark.parametrize("command", ["train", "sweep"])
def test_the_help_names_the_recipe_that_imported_data_get(command: str) -> None:
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output
    assert (
        "for imported data and a family without a recipe one that is fitted to the data"
        in " ".join(shown.replace("│", " ").split())
    )


@pytest.mark.parametrize(
    ("command", "default"),
    [
        (("generate",), "default: courant-data/store"),
        (("train",), "default: courant-data/runs"),
        (("runs", "ls"), "default: courant-data/runs"),
        (("evaluate",), "courant-data/reports"),
    ],
)
def test_the_help_names_where_things_go_by_default(command: tuple[str, ...], default: str) -> None:
    shown = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "200"}).output
    assert default in " ".join(shown.replace("│", " ").split())


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("courant gen", "generate"),
        ("courant dataset ver", "verify"),
        ("courant train --rec", "--recipe"),
    ],
)
def test_the_shell_completes_commands_and_options(typed: str, offered: str) -> None:
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    asked = {"_COURANT_COMPLETE": "complete_bash", **words}
    done = CliRunner().invoke(app, [], prog_name="courant", env=asked)
    assert offered in done.output.split()
