"""The recipes against the paper's tables, label by label."""

import pytest

from courant.model import Courant
from courant.recipes import get_recipe
from simgen.errors import InputError


def test_cylinder_flow_follows_tab_dataset_details() -> None:
    experiment = get_recipe("cylinder-flow")
    assert experiment.task == "transient"
    assert experiment.data.fields == ("velocity",)
    assert experiment.data.window_steps == 10
    assert experiment.data.step_s == 10.0
    assert experiment.data.points_per_sample is None, "input domain: full mesh"
    assert experiment.data.queries_per_sample is None
    assert not experiment.data.mirror_y
    assert experiment.data.shift == 0
    assert experiment.training.seed == 42


def test_cylinder_flow_follows_tab_baseline_arch() -> None:
    model = get_recipe("cylinder-flow").model
    assert (model.width, model.num_heads, model.ffn_multiple) == (128, 3, 2)
    assert (model.num_levels, model.num_loops, model.num_anchors) == (3, 1, 64)
    assert (model.anchor_kind, model.gaussian_window) == ("sampled", "none")
    assert (model.transient, model.processor, model.solver) == (True, "attention", "euler")


def test_cylinder_flow_follows_tab_cf_hparams() -> None:
    experiment = get_recipe("cylinder-flow")
    assert (
        sum(parameter.numel() for parameter in Courant(experiment.model).parameters()) == 1_298_354
    )
    assert experiment.training.learning_rate == 3e-4
    assert experiment.training.epochs == 500
    assert experiment.training.batch_size == 100
    assert experiment.training.clip_norm == 2.0
    assert experiment.training.warmup_steps == 0
    assert experiment.training.schedule == "two-phase"


def test_an_unknown_recipe_is_answered_with_the_nearest_or_all() -> None:
    with pytest.raises(InputError, match="'nix' is unknown; choose one of cylinder-flow, cylin"):
        get_recipe("nix")
    with pytest.raises(InputError, match="did you mean branched-pipe-small\\? -transolver, -fno"):
        get_recipe("branched-pipe-smal")
