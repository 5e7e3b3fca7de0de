"""What the project declares that it needs, and the modules that the installed packages give."""

import tomllib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
USER_EXTRAS = sorted(set(PROJECT["optional-dependencies"]) - {"dev"})


def names_of(requirements: Iterable[str]) -> set[str]:
    """Their distributions."""
    return {canonicalize_name(Requirement(one).name) for one in requirements}


def declared(*extras: str) -> set[str]:
    """The distributions that the project asks for, with those of some extras."""
    optional = PROJECT["optional-dependencies"]
    asked = [*PROJECT["dependencies"], *(one for name in extras for one in optional[name])]
    return names_of(asked) - {PROJECT["name"]}  # an extra may ask for others of the project's


@cache
def distributions() -> dict[str, set[str]]:
    """The installed distributions that give each top-level module."""
    return {
        module: {canonicalize_name(name) for name in names}
        for module, names in packages_distributions().items()
    }


def modules_of(names: set[str]) -> set[str]:
    """The top-level modules of these installed distributions."""
    return {module for module, by in distributions().items() if by & names}
