"""What is imported is declared, what is declared can be had, and a release has one version."""

import ast
import importlib.metadata
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.declared import PROJECT, ROOT, USER_EXTRAS, declared, distributions
from tests.infra.files import INFRA, load

OWN = ("simgen", "courant", "flows")
lock = load(INFRA / "constraints.py")
TESTED = "linux-x86_64-py3.11"
LOCKED = sorted((ROOT / "constraints").glob("*.txt"))
PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^\s;]+)", re.M)
#: What markers are asked about, by the platform in a file's name.
MACHINES = {
    "linux-x86_64": {"sys_platform": "linux", "platform_machine": "x86_64"},
    "linux-aarch64": {"sys_platform": "linux", "platform_machine": "aarch64"},
    "macos-arm64": {"sys_platform": "darwin", "platform_machine": "arm64"},
    "windows-x86_64": {"sys_platform": "win32", "platform_machine": "AMD64"},
}


def imports(file: Path) -> Iterator[tuple[str, bool]]:
    """The top-level modules that a file imports, and whether at its own import."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from ((one.name.partition(".")[0], node.col_offset == 0) for one in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.partition(".")[0], node.col_offset == 0


def test_every_import_of_the_packages_is_declared() -> None:
    """By distribution. An extra's modules are imported only where they are asked for."""
    always, on_demand = declared(), declared(*USER_EXTRAS)
    undeclared, seen = set(), set()
    for file in (file for package in OWN for file in (ROOT / package).rglob("*.py")):
        for module, at_once in imports(file):
            if module in sys.stdlib_module_names or module in OWN:
                continue
            by = distributions().get(module, set())
            seen |= by
            if not by & (always if at_once else on_demand):
                undeclared.add((module, str(file.relative_to(ROOT))))
    assert undeclared == set(), "name it in pyproject.toml"
    # Loaded by name: by fsspec for s3://.
    assert always - seen <= {"s3fs"}, "declared, and imported nowhere"


def pins(file: Path) -> dict[str, str]:
    return {canonicalize_name(name): version for name, version in PIN.findall(file.read_text())}


@pytest.mark.parametrize("python", ["3.11.0", "3.11.2"])
def test_the_pinned_versions_run_on_the_oldest_python_and_on_debians(python: str) -> None:
    """One that asks for a newer 3.11 stops `make demo` there, after minutes."""
    pinned = pins(ROOT / "constraints.txt")
    asking = {
        one.name: one.metadata["Requires-Python"]
        for one in importlib.metadata.distributions()
        if canonicalize_name(one.name) in pinned and "Requires-Python" in one.metadata
    }
    assert len(asking) > 50
    assert [name for name, asked in asking.items() if python not in SpecifierSet(asked)] == []


def test_users_and_the_tests_have_the_same_versions() -> None:
    tested = pins(ROOT / "constraints.txt")
    assert tested["torch"] == "2.13.0"
    assert TESTED in {file.stem for file in LOCKED}
    for file in LOCKED:
        other = {n for n, version in pins(file).items() if tested.get(n, version) != version}
        assert other == set(), f"{file.name}: run infra/constraints.py"


@pytest.mark.parametrize("file", LOCKED, ids=lambda file: file.stem)
def test_a_platforms_file_has_all_that_the_project_asks_for_there(file: Path) -> None:
    platform, _, python = file.stem.rpartition("-py")
    assert platform in lock.PLATFORMS and python in lock.PYTHONS
    machine = {**MACHINES[platform], "python_version": python, "python_full_version": f"{python}.0"}
    held = pins(file)
    for one in map(Requirement, lock.requirements()):
        if one.marker is not None and not one.marker.evaluate(machine):
            continue
        version = held.get(canonicalize_name(one.name))
        assert version is not None, f"{one.name} is not in {file.name}: run infra/constraints.py"
        assert one.specifier.contains(version), f"{file.name}: {one.name} {version}"


def test_project_changelog_and_citation_have_one_version() -> None:
    version = PROJECT["version"]
    newest = re.search(r"^## (\S+?),? ", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert newest is not None and newest[1].rstrip(",") == version
    cited = re.search(r"^version: [\"']?([^\"'\s]+)", (ROOT / "CITATION.cff").read_text(), re.M)
    assert cited is not None and cited[1] == version
