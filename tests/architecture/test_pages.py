"""The pages: a site can be made of them, and the commands on them are commands."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from flows.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
APP: Any = typer.main.get_command(app)


def commands(page: Path) -> Iterator[str]:
    """Lines of code that call `courant`, whole."""
    text = page.read_text().replace("\\\n", " ")
    for line in re.findall(r"^(?: {4}\$?|)courant [^\n`|]+", text, re.M):
        yield line.strip().partition("#")[0]
    for line in re.findall(r"`(courant [^`]+)`", text):
        yield " ".join(line.split())


def test_commands_of_the_pages_and_their_options_are_there() -> None:
    found = [(page.name, line) for page in PAGES for line in commands(page)]
    assert len(found) > 100
    assert [each for each in found if problem(each[1])] == []
    assert problem("courant runs list demo-run/runs")
    assert problem("courant train STORE/x --epochs 3")


def problem(line: str) -> bool:
    """Whether a command or an option of a line is not there."""
    command, (_, *words) = APP, line.split()
    while hasattr(command, "commands") and words and re.fullmatch(r"[a-z][a-z-]*", words[0]):
        command = command.commands.get(words.pop(0))
        if command is None:
            return True
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    known |= {"--help", "--version"}
    asked = {word.partition("=")[0].rstrip(".,;:)…") for word in words if word.startswith("--")}
    return not hasattr(command, "commands") and not asked <= known


def test_a_site_is_made_of_the_pages(tmp_path: Path) -> None:
    """Strictly: a link or an anchor that leads nowhere, or a page without a place, ends it."""
    made = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    commands_page = (tmp_path / "reference/commands.html").read_text()
    assert "courant dataset import openfoam" in commands_page
    assert "predict_case" in (tmp_path / "reference/python.html").read_text()


def test_pages_name_tables_and_equations_of_the_paper_in_words() -> None:
    """A label of its LaTeX source means nothing to a reader; CONTRIBUTING.md lists them."""
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    label = re.compile(r"\b(tab|fig):\w|\bEq\. \w")
    found = [(page.name, line) for page in pages for line in label.findall(page.read_text())]
    assert found == []
