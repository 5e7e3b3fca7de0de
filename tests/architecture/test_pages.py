"""The pages: a site can be made of them, their commands are commands, their errors are printed."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from flows.cli.app import app
from tests.architecture.test_structure import PACKAGES, modules

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
ERRORS = (ROOT / "docs/errors.md").read_text()
#: Stands for a value, on that page and in place of what an f-string fills in.
ANY = "…"
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


def test_a_family_of_ones_own_is_shown_in_less_than_150_lines() -> None:
    for page in ("a-new-family.md", "a-transient-family.md"):
        assert len((ROOT / "docs/families" / page).read_text().splitlines()) < 150


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


def lines_of(page: str) -> list[str]:
    """The lines in the tables that begin with a column `line`."""
    tables = re.findall(r"^\| line \|.*\n((?:\|.*\n)+)", page, re.M)
    return re.findall(r"^\| `([^`]+)` \|", "".join(tables), re.M)


def test_every_line_on_the_page_is_one_that_the_code_prints() -> None:
    """One string has all fixed parts of a line, in their order."""
    lines = lines_of(ERRORS)
    # Strings over several lines become one, and what is filled in becomes ANY.
    code = "\n".join(file.read_text() for file in modules(*PACKAGES))
    code = re.sub(r'"\s*\n\s*f?"', "", code)
    printed = re.sub(r"\{[^{}\n]*\}", ANY, code)

    def is_printed(line: str) -> bool:
        pattern = "[^\n]*".join(map(re.escape, line.split(ANY)))
        return re.search(pattern, printed) is not None

    assert len(set(lines)) == len(lines) >= 50
    assert [line for line in lines if not is_printed(line)] == []
    assert not is_printed("OpenFOAM's … is not on the PATH: …")
