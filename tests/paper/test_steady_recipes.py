"""The steady recipes against the paper's tables, label by label."""

import itertools

import pytest

from courant.data.normalisation import select_channels
from courant.experiment import Experiment
from courant.model import Courant
from courant.recipes import RECIPES, get_recipe
from courant.sweeps.search_space import parse_space
from simgen.cases import FAMILIES
from simgen.quantities import obtainable
from simgen.store.schema import Schema

PIPE = ("branched-pipe", "branched-pipe-gwa", "branched-pipe-full-mesh")
PUMP = ("centrifugal-pump", "centrifugal-pump-gwa", "centrifugal-pump-full-mesh")


def count(experiment: Experiment) -> int:
    return sum(parameter.numel() for parameter in Courant(experiment.model).parameters())


@pytest.mark.parametrize("recipe", PIPE + PUMP)
def test_steady_recipes_follow_tab_dataset_details(recipe: str) -> None:
    experiment = get_recipe(recipe)
    assert experiment.task == "steady"
    assert experiment.training.seed == 42
    assert experiment.data.points_per_sample is None
    assert experiment.data.queries_per_sample is None
    fields = ("velocity.x", "velocity.z") if recipe in PIPE else ("velocity", "kinematic_pressure")
    assert experiment.data.fields == fields


@pytest.mark.parametrize("recipe", PIPE + PUMP)
def test_steady_recipes_follow_tab_baseline_arch(recipe: str) -> None:
    model = get_recipe(recipe).model
    assert (model.width, model.num_heads, model.ffn_multiple) == (128, 3, 2)
    assert (model.num_levels, model.num_loops, model.num_anchors) == (3, 1, 256)
    assert model.anchor_kind == "sampled"
    assert not model.transient
    assert get_recipe(recipe).data.encoder == ("mesh" if "full-mesh" in recipe else "boundary")
    assert model.gaussian_window == ("both" if "gwa" in recipe else "none")


@pytest.mark.parametrize(
    ("recipes", "epochs", "counts"),
    [
        (PIPE, 1500, (1_151_410, 1_220_286, 1_163_602)),
        (PUMP, 300, (1_152_548, 1_221_424, 1_156_612)),
    ],
    ids=["tab:hvac-hparams", "tab:pump-hparams"],
)
def test_steady_recipes_follow_their_tables(
    recipes: tuple[str, ...], epochs: int, counts: tuple[int, ...]
) -> None:
    for recipe, expected in zip(recipes, counts, strict=True):
        training = get_recipe(recipe).training
        assert count(get_recipe(recipe)) == expected
        assert (training.epochs, training.batch_size, training.learning_rate) == (epochs, 1, 3e-4)
        assert (training.clip_norm, training.schedule, training.warmup_steps) == (
            2.0,
            "two-phase",
            0,
        )


def test_the_pumps_distance_field_has_the_four_channels_of_its_published_count() -> None:
    experiment = get_recipe("centrifugal-pump")
    assert experiment.data.distance_kinds is not None
    assert 4 * len(experiment.data.distance_kinds) == experiment.model.num_query_features == 4


@pytest.mark.parametrize("name", [name for name in RECIPES if get_recipe(name).family in FAMILIES])
def test_a_recipe_names_fields_parameters_and_patch_kinds_of_its_family(name: str) -> None:
    experiment = get_recipe(name)
    family = FAMILIES[experiment.family]
    assert family.transient == experiment.model.transient
    channels = select_channels(Schema.of(family), experiment.data.fields)
    assert len(channels) == experiment.model.num_outputs
    if experiment.task == "steady":
        assert experiment.model.num_parameters == len(family.design_space.parameters)
        assert {kind for kinds in experiment.data.prescribed.values() for kind in kinds} <= set(
            family.patch_kinds
        )
    kinds = experiment.data.distance_kinds or family.patch_kinds
    assert {kind for group in kinds for kind in group.split("+")} <= set(family.patch_kinds)
    assert experiment.model.num_query_features == 4 * len(kinds)


def test_a_sweep_of_a_steady_recipe_leaves_out_what_it_does_not_have() -> None:
    experiment = get_recipe("branched-pipe-small")
    text = "design: isolated\nparameters: {model.processor: [mlp], model.num_levels: [2]}"
    space = parse_space("mine", text)
    settings = list(itertools.islice(space.settings(experiment, 1), space.count(experiment)))
    assert {setting["model.processor"] for setting in settings} == {"attention"}
    assert {setting["model.num_levels"] for setting in settings} == {2, 3}


def test_recipes_of_all_fields_predict_every_quantity_of_their_family() -> None:
    names = [name for name in RECIPES if "-all-fields" in name]
    assert len(names) == 6
    for name in names:
        experiment = get_recipe(name)
        family = FAMILIES[experiment.family]
        channels = select_channels(Schema.of(family), experiment.data.fields)
        assert family.quantities
        assert obtainable(family.quantities, [each.name for each in channels])[1] == {}
