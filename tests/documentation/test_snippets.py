"""Every snippet of the README and of the docs runs as it stands, or is run by another test."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import torch
import typer
import yaml

from courant import models
from courant.sweeps.benchmark import contender_names, of_members
from courant.sweeps.search_space import load_space
from flows import terminal
from tests.documentation.elsewhere import ELSEWHERE
from tests.documentation.pages import SETUPS, Setup, run_block
from tests.documentation.shell import Shell
from tests.documentation.snippets import KINDS, PAGES, Snippet, snippets_of
from tests.documentation.world import build_world, copy_world

SNIPPETS = {page: [each for each in snippets_of(page) if each.kind != "text"] for page in PAGES}

#: Pages whose snippets run with every commit.
FIRST_PAGES = ("README.md", "docs/tutorial.md", "docs/datasets.md", "docs/importing.md")


def code_of(snippet: Snippet) -> list[str]:
    return snippet.commands if snippet.kind == "shell" else [snippet.text]


def here(snippet: Snippet) -> list[str]:
    """The snippet's commands, or its block, without what is run elsewhere."""
    elsewhere = ELSEWHERE.get(snippet.page, ())
    return [code for code in code_of(snippet) if not code.startswith(elsewhere)]


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documented")
    build_world(folder)
    return folder


def stop_well(*_: object) -> None:
    """In place of a stage's execution, after all checks of the command, or of a server's start."""
    raise typer.Exit(0)


def _by_commit_or_night(page: str) -> object:
    """Leave all pages but the first ones that a reader opens to the nightly run."""
    return page if page in FIRST_PAGES else pytest.param(page, marks=pytest.mark.nightly)


@pytest.mark.openfoam
@pytest.mark.parametrize(
    "page", [_by_commit_or_night(page) for page in PAGES if any(map(here, SNIPPETS[page]))]
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
    elif kind == "yaml" and "parameters" in yaml.safe_load(code):
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


def test_every_block_has_a_language() -> None:
    found = [
        (each.page, each.line)
        for page in PAGES
        for each in snippets_of(page)
        if each.kind not in KINDS
    ]
    assert found == []


def test_what_is_run_elsewhere_is_on_its_page() -> None:
    for page, words in ELSEWHERE.items():
        codes = [code for snippet in SNIPPETS[page] for code in code_of(snippet)]
        stale = [word for word in words if not any(code.startswith(word) for code in codes)]
        assert stale == [], page


def test_replaced_words_are_on_their_page() -> None:
    for page, setup in SETUPS.items():
        text = "\n".join(snippet.text for snippet in SNIPPETS[page])
        words = (*setup.replaced, *setup.given, *setup.saved)
        assert [word for word in words if word not in text] == [], page
