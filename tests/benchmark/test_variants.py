"""Courant's optional parts as models that take part in a benchmark."""

from __future__ import annotations

from typing import Any

import pytest

from courant.benchmark.contenders import choose_contenders, contender_names
from courant.recipes import get_recipe
from courant.recipes.legible import legible
from simgen.errors import InputError
from simgen.store.access.reader import Dataset
from tests.training.ducts import tiny_steady


def differences(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {
        f"{section}.{key}": value
        for section in ("model", "data", "training")
        for key, value in other[section].items()
        if value != one[section][key]
    }


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("courant", {}),
        ("courant-gwa", {"model.gaussian_window": "both"}),
        ("courant-learned-anchors", {"model.anchor_kind": "learned"}),
        ("courant-placed-anchors", {"model.anchor_kind": "learned", "data.anchor_start": "cloud"}),
        (
            "courant-legible",
            {
                "model.anchor_kind": "learned",
                "model.gaussian_window": "both",
                "model.window_scale": 0.35,
                "data.anchor_start": "cloud",
            },
        ),
        ("courant-abstract-queries", {"model.anchor_kind": "abstract"}),
    ],
)
def test_a_variant_changes_its_own_parts_of_the_recipe_alone(
    name: str, changed: dict[str, Any], ducts: Dataset
) -> None:
    base = tiny_steady()
    (chosen,) = choose_contenders([name], base, ducts, {name: {"num_loops": 2}})
    found = differences(base.model_dump(), chosen.experiment.model_dump())
    assert found == {**changed, "model.num_loops": 2}
    assert name in contender_names()


@pytest.mark.parametrize("name", ["courant", "courant-learned-anchors", "transolver"])
def test_any_model_takes_part_with_several_members(name: str, ducts: Dataset) -> None:
    sizes = {"num_loops": 2} if name != "transolver" else {"num_layers": 2, "width": 16}
    one, two, other = choose_contenders(
        [name, f"{name}-x2", f"{name}-x16"], tiny_steady(), ducts, {name: sizes, f"{name}-x16": {}}
    )
    found = differences(one.experiment.model_dump(), two.experiment.model_dump())
    assert found == {"model.num_members": 2}
    assert two.name == f"{name}-x2" and two.kind == one.kind
    assert other.experiment.model.num_members == 16


@pytest.mark.parametrize("name", ["courant", "courant-gwa", "transolver"])
def test_a_recipe_of_several_members_is_compared_with_as_many_of_each_model(
    name: str, ducts: Dataset
) -> None:
    base = tiny_steady().derive(model={"num_members": 3})
    own, said, sized = choose_contenders(
        [name, f"{name}-x2", f"{name}-x4"], base, ducts, {f"{name}-x4": {}, name: {"width": 16}}
    )
    members = [each.experiment.model.num_members for each in (own, said, sized)]
    assert members == [3, 2, 4]


@pytest.mark.parametrize("name", ["courant-x1", "courant-x65", "courant-x", "courant-x2-x2"])
def test_a_number_of_members_that_is_none_is_told(name: str, ducts: Dataset) -> None:
    with pytest.raises(InputError, match=f"model '{name}' is unknown"):
        choose_contenders([name], tiny_steady(), ducts, {})


def test_the_legible_contender_is_the_legible_recipe() -> None:
    recipe, base = get_recipe("branched-pipe-legible-small"), get_recipe("branched-pipe-small")
    assert legible(base).model == recipe.model and legible(base).data == recipe.data
