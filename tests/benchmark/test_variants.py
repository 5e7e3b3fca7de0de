"""Courant's optional parts as models that take part in a benchmark."""

from __future__ import annotations

from typing import Any

import pytest

from courant.benchmark.contenders import choose_contenders, contender_names
from courant.recipes import get_recipe
from courant.recipes.legible import legible
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


def test_the_legible_contender_is_the_legible_recipe() -> None:
    recipe, base = get_recipe("branched-pipe-legible-small"), get_recipe("branched-pipe-small")
    assert legible(base).model == recipe.model and legible(base).data == recipe.data
