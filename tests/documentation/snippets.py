"""The code on the pages: fenced blocks by their language, indented ones as shell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md")))
KINDS = ("python", "shell", "json", "yaml", "text")
INDENT = "    "


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
        whole = self.text.replace("\\\n", "\\\0").splitlines()
        lines = [line.replace("\\\0", "\\\n") for line in whole]
        return [line for line in lines if line.strip() and not line.startswith("#")]


def snippets_of(page: str) -> list[Snippet]:
    """All blocks of a page in their order."""
    return list(_blocks(page, (ROOT / page).read_text().splitlines()))


def _blocks(page: str, lines: list[str]) -> Iterator[Snippet]:
    at = 0
    while at < len(lines):
        if fence := re.fullmatch(r"```(\w*)", lines[at]):
            end = lines.index("```", at + 1)
            yield Snippet(page, at + 2, fence[1], "\n".join(lines[at + 1 : end]) + "\n")
            at = end
        elif lines[at].startswith(INDENT) and lines[at - 1] == "":
            end = at
            while end < len(lines) and (lines[end] == "" or lines[end].startswith(INDENT)):
                end += 1
            block = [line.removeprefix(INDENT) for line in lines[at:end]]
            yield Snippet(page, at + 1, "shell", "\n".join(block).strip("\n") + "\n")
            at = end - 1
        at += 1
