"""What the help of the commands has to say."""

import pytest
from typer.testing import CliRunner

from flows.cli.app import app


@pytest.mark.parametrize("command", ["train", "sweep"])
def test_the_help_names_the_recipe_that_imported_data_get(command: str) -> None:
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output
    assert "for imported data one that is fitted to them" in " ".join(
        shown.replace("│", " ").split()
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
