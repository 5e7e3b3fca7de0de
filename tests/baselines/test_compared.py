"""A recipe with a baseline in Courant's place is a complete experiment on the same data."""

import pytest

from courant.baselines.published import COUNTS
from courant.experiment import parse_experiment
from courant.models import BASELINES, count
from courant.recipes import get_recipe
from courant.recipes.compared import ROWS
from simgen.errors import InputError

CASES = {"Cyl.Flow": "cylinder-flow", "Br.Pipe": "branched-pipe", "Ctr.Pump": "centrifugal-pump"}


@pytest.mark.parametrize(("kind", "case"), COUNTS)
def test_the_published_runs_of_baselines_follow_their_tables(kind: str, case: str) -> None:
    """tab:cf-hparams, tab:hvac-hparams, tab:pump-hparams."""
    like = get_recipe(CASES[case])
    recipe = get_recipe(f"{CASES[case]}-{kind}")
    rate, epochs, batch = ROWS[CASES[case]][kind]
    training = recipe.training
    assert (training.learning_rate, training.epochs, training.batch_size) == (rate, epochs, batch)
    assert training.clip_norm == 2.0
    assert training.schedule == "two-phase"
    assert recipe.data.fields == like.data.fields
    counted = count(recipe.model)
    assert counted is not None
    assert abs(counted / COUNTS[kind, case] - 1) < 0.04


def test_every_row_of_the_tables_is_a_recipe() -> None:
    rows = {(kind, family) for family, kinds in ROWS.items() for kind in kinds}
    assert rows == {(kind, CASES[case]) for kind, case in COUNTS}


@pytest.mark.parametrize("kind", BASELINES)
@pytest.mark.parametrize("recipe", ["cylinder-flow-demo", "centrifugal-pump-small"])
def test_any_recipe_takes_a_baseline(kind: str, recipe: str) -> None:
    like, made = get_recipe(recipe), get_recipe(f"{recipe}-{kind}")
    assert made.name == f"{recipe}-{kind}"
    assert made.model.kind == kind
    assert made.training == like.training
    assert made.model.num_parameters == like.model.num_parameters
    assert parse_experiment(made.model_dump_json()) == made


def test_a_name_that_is_no_recipe_is_answered_with_what_can_be_named() -> None:
    for name in ("cylinder-flow-nobody", "nobody-transolver", "transolver", "-transolver"):
        with pytest.raises(InputError, match=f"'{name}' is unknown.* cylinder-flow-transolver"):
            get_recipe(name)
