"""Courant's optional parts as models that take part in a benchmark."""

from __future__ import annotations

from typing import Any

import pytest

from courant.recipes import get_recipe
from courant.recipes.variants import legible
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


def test_the_legible_contender_is_the_legible_recipe() -> None:
    recipe, base = get_recipe("branched-pipe-legible-small"), get_recipe("branched-pipe-small")
    assert legible(base).model == recipe.model and legible(base).data == recipe.data


def test_a_recipe_of_a_baseline_has_no_variants_of_courant(ducts: Dataset) -> None:
    (other,) = choose_contenders(["transolver"], tiny_steady(), ducts, {})
    base = other.experiment
    for name in ("courant", "courant-gwa", "courant-x2"):
        with pytest.raises(
            InputError, match=rf"{base.name} has a transolver in Courant.* leave {name} out"
        ):
            choose_contenders([name], base, ducts, {})
    (chosen,) = choose_contenders(["transolver"], base, ducts, {})
    assert chosen.kind == "transolver"


def test_sizes_of_courant_are_those_of_its_variants_too(ducts: Dataset) -> None:
    names = ["courant", "courant-gwa", "courant-gwa-x2", "transolver"]
    sizes = {"courant": {"width": 24, "num_heads": 3}, "courant-gwa-x2": {"width": 12}}
    chosen = choose_contenders(names, tiny_steady(), ducts, sizes)
    assert [each.experiment.model.width for each in chosen[:3]] == [24, 24, 12]
    assert [each.experiment.model.num_heads for each in chosen[:3]] == [3, 3, 3]
    assert chosen[3].experiment.model.width != 24


def test_models_without_places_leave_out_the_loss_of_distances_from_them(ducts: Dataset) -> None:
    base = tiny_steady().derive(training={"locality_weight": 0.1})
    names = ["courant", "courant-gwa", "courant-abstract-queries", "transolver"]
    chosen = choose_contenders(names, base, ducts, {})
    weights = [each.experiment.training.locality_weight for each in chosen]
    assert weights == [0.1, 0.1, 0.0, 0.0]


def test_settings_have_names_of_their_own_and_the_unchanged_one_the_kind_of_its_model(
    ducts: Dataset,
) -> None:
    values = {"training.weight_decay": {"values": [1.00001e-4, 1.00004e-4]}}
    space = SearchSpace(name="mine", design="grid", parameters=values)
    with pytest.raises(InputError, match=r"two settings have the name 'weight_decay 0\.0001'"):
        settings_of(space, tiny_steady(), ducts)
    (base,) = choose_contenders(["transolver"], tiny_steady(), ducts, {})
    width = {"model.width": {"values": [8]}}
    space = SearchSpace(name="mine", design="isolated", parameters=width)
    found = settings_of(space, base.experiment, ducts)
    assert [each.name for each in found] == ["transolver", "width 8"]


@pytest.mark.parametrize(
    ("names", "training", "sizes", "message"),
    [
        (["transolvr"], {}, {}, r"model 'transolvr' is unknown; did you mean transolver"),
        (["courant-x1"], {}, {}, r"model 'courant-x1' is unknown"),
        (["courant-x65"], {}, {}, r"model 'courant-x65' is unknown"),
        (["courant", "courant"], {}, {}, "named twice"),
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


def test_a_recipe_of_another_family_is_an_error(waves: Dataset) -> None:
    with pytest.raises(InputError, match=r"courant cannot be used on .* is for branched-pipe"):
        choose_contenders(["courant"], tiny_steady(), waves, {})


@pytest.mark.parametrize("key", ["training.learning_rate", "training.warmup_steps"])
def test_a_space_does_not_vary_what_the_benchmark_sets_itself(key: str, ducts: Dataset) -> None:
    space = SearchSpace(name="mine", design="isolated", parameters={key: {"values": [1]}})
    with pytest.raises(InputError, match=f"space mine: {key} cannot be compared: a benchmark"):
        settings_of(space, tiny_steady(), ducts)


@pytest.mark.parametrize("text", ["", "10", "0s", "2.5epochs", "3 weeks", "9" * 400 + "s"])
def test_a_budget_is_epochs_or_a_time(text: str) -> None:
    assert parse_budget("40 epochs").amount == 40 and parse_budget("1.5min").amount == 90
    with pytest.raises(InputError, match="budget"):
        parse_budget(text)
