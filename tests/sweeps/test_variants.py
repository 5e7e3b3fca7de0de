"""Courant's optional parts as models that take part in a benchmark."""

from __future__ import annotations

from typing import Any

import pytest

from courant.sweeps.benchmark import choose_contenders, contender_names, parse_budget, settings_of
from courant.sweeps.search_space import SearchSpace
from simgen.errors import InputError
from simgen.store.read import Dataset
from tests.world import tiny_steady


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
    chosen = choose_contenders([name], base, ducts, {name: {"num_loops": 2}})
    found = differences(base.model_dump(), chosen[name].model_dump())
    assert found == {**changed, "model.num_loops": 2}
    assert name in contender_names()


@pytest.mark.parametrize("name", ["courant", "courant-learned-anchors", "transolver"])
def test_any_model_takes_part_with_as_many_members_as_the_recipe_or_its_name_or_sizes(
    name: str, ducts: Dataset
) -> None:
    names, base = [name, f"{name}-x2", f"{name}-x16"], tiny_steady()
    one, two, _ = choose_contenders(names, base, ducts, {name: {"width": 16}}).values()
    assert differences(one.model_dump(), two.model_dump()) == {"model.num_members": 2}
    three = base.derive(model={"num_members": 3})
    sized = {f"{name}-x16": {"width": 16}}
    found = choose_contenders(names, three, ducts, sized).values()
    assert [each.model.num_members for each in found] == [3, 2, 16]


def test_sizes_of_courant_are_those_of_its_variants_and_locality_needs_places(
    ducts: Dataset,
) -> None:
    names = ["courant", "courant-gwa", "courant-gwa-x2", "courant-abstract-queries", "transolver"]
    sizes = {"courant": {"width": 24, "num_heads": 3}, "courant-gwa-x2": {"width": 12}}
    base = tiny_steady().derive(training={"locality_weight": 0.1})
    chosen = choose_contenders(names, base, ducts, sizes).values()
    assert [each.model.width for each in chosen][:4] == [24, 24, 12, 24]
    weights = [each.training.locality_weight for each in chosen]
    assert weights == [0.1, 0.1, 0.1, 0.0, 0.0]


def test_settings_have_names_of_their_own(ducts: Dataset) -> None:
    values = {"training.weight_decay": {"values": [1.00001e-4, 1.00004e-4]}}
    space = SearchSpace(name="mine", design="grid", parameters=values)
    with pytest.raises(InputError, match=r"two settings have the name 'weight_decay 0\.0001'"):
        settings_of(space, tiny_steady(), ducts)


@pytest.mark.parametrize(
    ("names", "training", "sizes", "message"),
    [
        (["transolvr"], {}, {}, r"model 'transolvr' is unknown; did you mean transolver"),
        (["courant-x65"], {}, {}, r"model 'courant-x65' is unknown"),
        (["upt"], {}, {"upt": {"width": 7, "num_heads": 2}}, "upt cannot be used on .*: model"),
        (["courant"], {}, {"fno": {}}, "sizes are given for fno, which is not compared"),
        (
            ["courant", "transolver"],
            {"cuda_graphs": True, "optimiser": "adamw"},
            {},
            "model transolver cannot be used on .*cuda_graphs",
        ),
    ],
)
def test_models_that_cannot_be_compared_are_reported_before_anything_is_trained(
    names: list[str], training: dict[str, Any], sizes: dict[str, Any], message: str, ducts: Dataset
) -> None:
    with pytest.raises(InputError, match=message):
        choose_contenders(names, tiny_steady().derive(training=training), ducts, sizes)


@pytest.mark.parametrize("text", ["", "10", "0s", "2.5epochs", "3 weeks", "9" * 400 + "s"])
def test_a_budget_is_epochs_or_a_time(text: str) -> None:
    assert parse_budget("40 epochs").amount == 40 and parse_budget("1.5min").amount == 90
    with pytest.raises(InputError, match="budget"):
        parse_budget(text)
