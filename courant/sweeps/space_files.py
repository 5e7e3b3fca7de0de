"""Read search spaces from YAML files: those of the package, and your own."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import yaml
from pydantic import ValidationError

from courant.runs.directory import RunDirectory
from courant.sweeps.search_space import SearchSpace
from simgen.errors import InputError, SimgenError
from simgen.store.access.local_files import local_path

MAX_YAML_BYTES = 1_000_000


def shipped_spaces() -> list[str]:
    """Name the spaces that come with the package."""
    folder = files("courant.sweeps") / "spaces"
    return sorted(
        item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml")
    )


def load_space(name: str) -> SearchSpace:
    """Load a shipped space by its name, or one of your own by its file's path.

    InputError names what is wrong in it.
    """
    if name in shipped_spaces():
        return parse_space(name, (files("courant.sweeps") / "spaces" / f"{name}.yaml").read_text())
    path = local_path(name)
    if path.suffix not in (".yaml", ".yml"):
        raise InputError(
            f"space '{name}' is unknown; choose one of {', '.join(shipped_spaces())}, or give a"
            " .yaml file"
        )
    if not path.exists():
        raise InputError(f"space {name} cannot be read: there is no such file")
    try:
        text = RunDirectory(path.parent).read_bytes(path.name, limit=MAX_YAML_BYTES).decode()
    except (SimgenError, UnicodeDecodeError) as error:
        raise InputError(f"space {name} cannot be read: {error}") from error
    return parse_space(path.stem.lower().replace("_", "-"), text)


class _PlainLoader(yaml.SafeLoader):
    """YAML without aliases.

    A few of them, each doubling the one before, would exceed any memory.
    """

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not allowed here; write the values out")
        return super().compose_node(parent, index)


def parse_space(name: str, text: str) -> SearchSpace:
    """Parse a SearchSpace from YAML; InputError in one line."""
    try:
        content = yaml.load(text, Loader=_PlainLoader)
    except (
        yaml.YAMLError,
        ValueError,
        OverflowError,
    ) as error:  # numbers and dates that YAML knows and Python does not
        raise InputError(
            f"space {name} is not valid YAML: {' '.join(str(error).split())[:500]}"
        ) from error
    except RecursionError as error:
        raise InputError(f"space {name} is nested too deeply") from error
    if not isinstance(content, dict):
        raise InputError(
            f"space {name} must be a mapping with design and parameters, see docs/sweeps.md"
        )
    try:
        return SearchSpace.model_validate({"name": name, **content})
    except ValidationError as error:
        found = error.errors(include_url=False)[:20]
        wrong = "; ".join(
            dict.fromkeys(f"{_place(item['loc'])[:100]}: {item['msg']}" for item in found)
        )
        raise InputError(f"space {name}: {' '.join(wrong.split())}") from error
    except (TypeError, RecursionError) as error:
        raise InputError(
            f"space {name} must be a mapping with design and parameters, see docs/sweeps.md"
        ) from error


def _place(location: Sequence[int | str]) -> str:
    """Name the place in the file; pydantic appends the kind that it took the item for."""
    kind = 2 if location[:1] == ("parameters",) else -1
    return ".".join(str(part) for index, part in enumerate(location) if index != kind) or "space"
