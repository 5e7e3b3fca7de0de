"""The error lines on docs/errors.md are lines that the code prints."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("simgen", "courant", "flows")
PAGE = (ROOT / "docs/errors.md").read_text()
#: Stands for a value, on the page and in place of what an f-string fills in.
ANY = "…"


def lines_of(page: str) -> list[str]:
    """The lines in the tables that begin with a column `line`."""
    tables = re.findall(r"^\| line \|.*\n((?:\|.*\n)+)", page, re.M)
    return re.findall(r"^\| `([^`]+)` \|", "".join(tables), re.M)


def text_of(node: ast.AST) -> str:
    """The text of a string that is written in the code, with ANY where something is filled in."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(map(text_of, parts))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return text_of(left) + text_of(right)
    return ANY


def strings_in(node: ast.AST) -> Iterator[str]:
    """All strings below a node but docstrings; one that is joined from parts comes whole."""
    inside = list(ast.iter_child_nodes(node))
    match node:
        case ast.Expr(value=ast.Constant()):
            return
        case ast.JoinedStr():
            yield text_of(node)
            inside = [part for part in inside if isinstance(part, ast.FormattedValue)]
        case ast.Constant(value=str()) | ast.BinOp(op=ast.Add()):
            yield text_of(node)
    for part in inside:
        yield from strings_in(part)


def test_every_line_on_the_page_is_one_that_the_code_prints() -> None:
    """One string has all fixed parts of a line, in their order."""
    lines = lines_of(PAGE)
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    printed = {text for file in files for text in strings_in(ast.parse(file.read_text()))}

    def is_printed(line: str) -> bool:
        pattern = re.compile(".*".join(map(re.escape, line.split(ANY))), re.S)
        longest = max(line.split(ANY), key=len)
        return any(longest in text and pattern.fullmatch(text) for text in printed)

    assert len(set(lines)) == len(lines) >= 50
    assert [line for line in lines if not is_printed(line)] == []
    assert not is_printed("OpenFOAM's … is not on the PATH: …")
