"""Add to the site's pages those at the root of the repository, and a reference made from the code.

A hook of mkdocs (https://www.mkdocs.org/user-guide/configuration/#hooks).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import courant
import simgen
from flows.cli.app import app

ROOT = Path(__file__).parents[2]
#: The site's page -> the file at the root
AT_THE_ROOT = {
    "index.md": "README.md",
    "SECURITY.md": "SECURITY.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "LICENSE": "LICENSE",
    "CITATION.cff": "CITATION.cff",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for page, file in AT_THE_ROOT.items():
        # One folder up there, one folder down here.
        text = re.sub(r"\]\(docs/", "](", (ROOT / file).read_text())
        _add(files, config, page, re.sub(r"\]\(README\.md", "](index.md", text))
    _add(files, config, "reference/commands.md", "\n".join(_commands()))
    _add(files, config, "reference/python.md", "\n".join(_python()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Have links to files at the root lead to their pages."""
    up = "../" * page.file.src_uri.count("/")
    for name, file in AT_THE_ROOT.items():
        markdown = markdown.replace(f"]({up}../{file}", f"]({up}{name}")
    return markdown


def _add(files: Files, config: MkDocsConfig, uri: str, content: str) -> None:
    files.append(File.generated(config, uri, content=content))


def _commands() -> Iterator[str]:
    yield "# Commands\n\nWhat `courant COMMAND --help` says of each command.\n"
    yield from _described(typer.main.get_command(app), "courant")


def _described(command: Any, path: str) -> Iterator[str]:
    for name, below in getattr(command, "commands", {}).items():
        yield from _described(below, f"{path} {name}")
    if hasattr(command, "commands"):
        return
    context = typer.Context(command, info_name=path)
    yield f"\n## {path}\n"
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"```\n{path} {usage}\n```\n"
    yield command.help or ""
    rows = [one.get_help_record(context) for one in command.get_params(context)]
    rows = [row for row in rows if row and not row[0].startswith("--help")]
    if rows:
        yield "\n| option | meaning |\n| --- | --- |"
        for option, meaning in rows:
            yield f"| `{_cell(option)}` | {_cell(meaning).replace('<', '&lt;')} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _python() -> Iterator[str]:
    yield "# Python\n\nWhat `import simgen` and `import courant` offer."
    for package in (simgen, courant):
        yield f"\n## {package.__name__}\n"
        for name in package.__all__:
            thing = getattr(package, name)
            path = f"{thing.__module__}.{thing.__qualname__}"
            options = "heading_level: 3\n      inherited_members: true"
            yield f"\n::: {path}\n    options:\n      {options}\n"
