"""Every snippet of the README and of the docs runs as it stands, or is run by another test."""

import json
import re
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import typer
import yaml

from courant import models
from courant.sweeps.benchmark import contender_names, of_members
from courant.sweeps.search_space import load_space
from flows import terminal
from tests.declared import ROOT
from tests.documentation.pages import ELSEWHERE, SETUPS, Setup, run_block
from tests.documentation.shell import Shell
from tests.documentation.world import build_world, copy_world

NOTEBOOK = "docs/first-steps.ipynb"
PAGES = (
    "README.md",
    NOTEBOOK,
    *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md")),
)
KINDS = ("python", "shell", "json", "yaml", "text")
FENCED, INDENTED = r"^```(?P<kind>\w*)\n(?P<fenced>.*?)^```$", r" {4}[^\n]*\n(?: {4}[^\n]*\n|\n)*"
BLOCK = re.compile(rf"{FENCED}|(?<=\n\n){INDENTED}", re.M | re.S)


@dataclass(frozen=True)
class Snippet:
    """A block of code; `line` is the number of its first line on the page."""

    page: str
    line: int
    kind: str
    text: str

    @property
    def commands(self) -> list[str]:
        """The commands of a block of shell, each with its continued lines."""
        lines = re.findall(r"(?:[^\n]*\\\n)*[^\n]+", self.text)
        return [line for line in lines if line.strip() and not line.startswith("#")]


def snippets_of(page: str) -> list[Snippet]:
    """All blocks of a page in their order."""
    text, found = (ROOT / page).read_text(), list[Snippet]()
    if page == NOTEBOOK:
        code = ["".join(c["source"]) for c in json.loads(text)["cells"] if c["cell_type"] == "code"]
        return [Snippet(page, number, "python", cell) for number, cell in enumerate(code, 1)]
    for block in BLOCK.finditer(text):
        line, kind = text.count("\n", 0, block.start()) + 1, block["kind"]
        if kind is not None:
            found.append(Snippet(page, line + 1, kind, block["fenced"]))
        else:
            code = re.sub(r"^ {4}", "", block[0], flags=re.M).rstrip("\n")
            found.append(Snippet(page, line, "shell", f"{code}\n"))
    return found


SNIPPETS = {page: [each for each in snippets_of(page) if each.kind != "text"] for page in PAGES}

#: Pages whose snippets run with every commit.
FIRST_PAGES = ("README.md", NOTEBOOK, "docs/tutorial.md", "docs/datasets.md", "docs/importing.md")


def here(snippet: Snippet, elsewhere: str | None = None) -> list[str]:
    """The snippet's commands, or its block, without what is run elsewhere."""
    codes = snippet.commands if snippet.kind == "shell" else [snippet.text]
    words = ELSEWHERE.get(snippet.page, "\0") if elsewhere is None else elsewhere
    return [code for code in codes if not code.startswith(tuple(words.split("; ")))]


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documented")
    build_world(folder)
    return folder


def stop_well(*_: object) -> None:
    """In place of a stage's execution, after all checks of the command, or of a server's start."""
    raise typer.Exit(0)


@pytest.mark.openfoam
@pytest.mark.parametrize(
    "page",
    [
        page if page in FIRST_PAGES else pytest.param(page, marks=pytest.mark.nightly)
        for page in PAGES
        if any(map(here, SNIPPETS[page]))
    ],
)
def test_the_snippets_of_a_page_run_one_after_the_other(
    page: str, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that trains or solves ends where its work would begin."""
    torch.set_num_threads(1)
    setup, folder = SETUPS.get(page, Setup()), tmp_path / "work"
    copy_world(world, folder, setup.run)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COURANT_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setattr(terminal.screen, "_width", 200)
    monkeypatch.setattr("flows.settings.prefect_url", stop_well)
    if setup.saved:  # a page's own model is taken from the registry afterwards
        monkeypatch.setitem(models._MODELS, "my-model", None)
    if setup.serves:
        monkeypatch.setattr("flows.serving._load", stop_well)
    shell, namespace = Shell(folder, tmp_path, monkeypatch), dict[str, object]()
    with setup.surroundings() as replaced, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for snippet in SNIPPETS[page]:
            if not (codes := here(snippet)):
                continue
            code = "\n".join(codes)
            for words, others in replaced.items():
                code = code.replace(words, others)
            try:
                run(snippet.kind, code, setup, shell, namespace)
            except Exception as error:
                raise AssertionError(f"{page}:{snippet.line}\n{code}") from error


def run(kind: str, code: str, setup: Setup, shell: Shell, namespace: dict[str, object]) -> None:
    if kind == "shell":
        shell.run(code)
    elif kind == "python":
        run_block(setup, code, namespace)
    elif kind == "yaml" and {"parameters", "choices"} & set(yaml.safe_load(code)):
        Path("space.yaml").write_text(code)
        load_space("space.yaml")
    elif kind == "json":
        # A line of a log, a part of an experiment, or the sizes of a benchmark's models.
        content = json.loads(code if code.startswith("{") else f"{{{code}}}")
        if "model" in content:
            models.parse_config(content["model"])
            if (experiment := Path("mine.json")).exists():
                experiment.write_text(json.dumps({**json.loads(experiment.read_text()), **content}))
        elif {of_members(name)[0] for name in content} <= set(contender_names()):
            Path("sizes.json").write_text(code)


def test_the_notebook_has_the_python_of_the_readme() -> None:
    (block,) = [each.text for each in SNIPPETS["README.md"] if each.kind == "python"]
    _, reads, asks, _ = [each.text for each in SNIPPETS[NOTEBOOK]]
    assert f"{reads}\n\n{asks}\n" == block


def test_all_blocks_have_a_language_and_what_is_said_of_a_page_is_on_it() -> None:
    blocks = [each for page in PAGES for each in snippets_of(page)]
    assert [(each.page, each.line) for each in blocks if each.kind not in KINDS] == []
    for page, words in ELSEWHERE.items():
        codes = [code for snippet in SNIPPETS[page] for code in here(snippet, elsewhere="\0")]
        stale = [each for each in words.split("; ") if not any(c.startswith(each) for c in codes)]
        assert stale == [], page
    for page, setup in SETUPS.items():
        text = "\n".join(snippet.text for snippet in SNIPPETS[page])
        replaced = (*setup.replaced, *setup.given, *setup.saved)
        assert [word for word in replaced if word not in text] == [], page
