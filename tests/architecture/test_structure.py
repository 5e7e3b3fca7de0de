"""The structure that docs/where-things-are.md describes is the one that is there."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("simgen", "courant", "flows")
PAGE = (ROOT / "docs/where-things-are.md").read_text()


def modules(*packages: str) -> Iterator[Path]:
    for package in packages:
        yield from (ROOT / package).rglob("*.py")


def imported(path: Path) -> set[str]:
    """Packages that a file imports from, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def test_ray_is_imported_in_files_named_for_it_and_where_cases_are_solved() -> None:
    allowed = {ROOT / "flows/solve_cases.py"}
    found = {path for path in modules(*PACKAGES) if "ray" in imported(path)}
    assert found
    assert {path for path in found - allowed if not path.name.startswith("ray_")} == set()


def test_kinds_of_problems_have_no_twin_modules() -> None:
    twins = {path for path in modules(*PACKAGES) if re.match(r"(steady|rollout|transient)_", path.name)}
    assert twins == set()


@pytest.mark.parametrize("name", ["Surrogate", "Experiment", "Courant", "TransientProblem", "SteadyProblem"])
def test_nobody_asks_for_the_class_of_a_problem_or_a_model(name: str) -> None:
    asked = re.compile(rf"isinstance\([^)]*\b{name}\b")
    assert [str(path) for path in modules("courant", "flows") if asked.search(path.read_text())] == []


def test_the_page_names_files_and_folders_that_are_there() -> None:
    named = re.findall(r"`((?:simgen|courant|flows|tests)/[\w/.]+)`", PAGE)
    assert len(named) > 8
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_part_of_courant_is_on_the_page() -> None:
    folder = ROOT / "courant"
    parts = {path.name for path in folder.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert {part for part in parts if f"`{part}/`" not in PAGE} == set()
    for file in ("field_model.py", "models.py", "experiment.py"):
        assert f"`{file}`" in PAGE


def test_the_model_of_the_docs_is_a_model() -> None:
    from courant import models
    from courant.field_model import FieldModel

    page = (ROOT / "docs/a-new-model.md").read_text()
    code = re.search(r"```python\n(.*?)```", page, re.S)
    assert code
    # `dataclass` looks its module up.
    module = type(ast)("docs_model")
    import sys

    sys.modules["docs_model"] = module
    exec(compile(code.group(1), "docs/a-new-model.md", "exec"), module.__dict__)
    config = models.parse_config({"kind": "my-model", "num_features": 3, "num_outputs": 2})
    model = models.build(config)
    assert isinstance(model, FieldModel)
    import torch

    inputs = module.Inputs(torch.zeros(2, 5, 3), torch.zeros(2, 5, 3))
    assert model(inputs, module.Queries(torch.zeros(2, 7, 3)), 4).shape == (2, 4, 7, 2)
