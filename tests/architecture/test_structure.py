"""The structure that docs/where-things-are.md describes is the one that is there."""

import ast
import re
import shlex
import subprocess
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("simgen", "courant", "flows")
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *(ROOT / "docs").rglob("*.md")]
#: To pages, but for their headings.
PAGE = (ROOT / "docs/where-things-are.md").read_text()


def modules(*packages: str) -> Iterator[Path]:
    for package in packages:
        yield from (ROOT / package).rglob("*.py")


def test_ray_is_imported_in_files_named_for_it() -> None:
    imports = re.compile(r"^\s*(import|from) ray\b", re.M)
    found = [path for path in modules(*PACKAGES) if imports.search(path.read_text())]
    assert found
    assert [path for path in found if not path.name.startswith("ray_")] == []


def test_the_page_names_files_and_folders_that_are_there() -> None:
    named = re.findall(r"[` ]((?:simgen|courant|flows|tests)/[\w/.]+)", PAGE)
    assert len(named) > 8
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_grep_on_the_page_finds_something() -> None:
    greps = re.findall(r"`(grep -rn [^`]+)`", PAGE)
    assert len(greps) > 5
    found = [subprocess.run(shlex.split(grep), cwd=ROOT, capture_output=True) for grep in greps]
    silent = [grep for grep, run in zip(greps, found, strict=True) if run.returncode != 0]
    assert silent == []


def test_every_part_is_on_the_page() -> None:
    parts = {path.parent.name for each in PACKAGES for path in (ROOT / each).glob("*/*.py")}
    assert {part for part in parts if f"`{part}/" not in PAGE} == set()


def modules_that_a_file_names(path: Path, names: set[str]) -> set[str]:
    """Modules of the packages that it imports, late ones as well; not those for types alone."""
    found = set()
    tree = ast.parse(path.read_text())
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            parts = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (parts & names) or {node.module}
    return found & names


def test_no_modules_import_each_other_in_a_circle() -> None:
    files = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in modules(*PACKAGES)
    }
    graph = {
        name: modules_that_a_file_names(path, set(files)) - {name} for name, path in files.items()
    }
    assert graph["flows.cli.app"] and graph["simgen.store.read"]
    assert len(tuple(TopologicalSorter(graph).static_order())) == len(files)
