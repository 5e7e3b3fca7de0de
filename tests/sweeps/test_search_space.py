"""Search spaces: what the shipped ones hold, and one clear line for a wrong one."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import courant
from courant.model import CourantConfig
from courant.recipes import RECIPES, get_recipe
from courant.sweeps.search_space import SearchSpace, load_space, parse_space, shipped_spaces
from courant.sweeps.sweep import plan_sweep, read_result, write_table
from courant.training.train import fit
from simgen.errors import InputError
from simgen.store.read import Dataset
from tests.world import tiny_experiment

#: The rows of tab:feature_ablation_nmae as changes to a baseline; the full mesh is `full_mesh`.
ABLATIONS: dict[str, dict[str, Any]] = {
    "GWA (enc + dec)": {"gaussian_window": "both"},
    "GWA in decoder only": {"gaussian_window": "decoder"},
    "GWA in encoder only": {"gaussian_window": "encoder"},
    "Learned anchors": {"anchor_kind": "learned"},
    "Abstract learned queries": {"anchor_kind": "abstract"},
    "No shared coord emb.": {"shared_embedding": False},
    "No distance field": {"num_query_features": 0},
    "No global data": {"num_parameters": 0},
    "No boundary PC (full-mesh)": {},
    "MLP ODE integrator": {"processor": "mlp"},
}
RECIPE = get_recipe("cylinder-flow")
TWO = """
design: {design}
parameters: {{model.num_levels: [1, 2]}}
choices:
  Few: {{model.num_anchors: 8, model.num_heads: 2}}
  Many: {{model.num_anchors: 128, training.learning_rate: 1e-4}}
"""
ANYWHERE = "No distance field anywhere"
EXTRA = {ANYWHERE, "Deeper decoder"}
NOT_THERE = {
    "cylinder-flow": {"No global data", "No boundary PC (full-mesh)"},
    "branched-pipe": {"MLP ODE integrator", ANYWHERE},
    "centrifugal-pump": {"MLP ODE integrator", ANYWHERE},
}


def ablated(baseline: CourantConfig, name: str) -> CourantConfig:
    """A row of the table; on a full mesh the encoder reads the distance field as well."""
    full = {"num_features": baseline.num_outputs + baseline.num_query_features}
    return replace(baseline, **(ABLATIONS[name] or full))


def settings(space: SearchSpace, num: int | None = None, seed: int = 42) -> list[dict]:
    return list(itertools.islice(space.settings(RECIPE, seed), num or space.count(RECIPE)))


@pytest.mark.parametrize("name", shipped_spaces())
def test_settings_of_a_shipped_space_are_possible_experiments_that_all_differ(name: str) -> None:
    for recipe in map(get_recipe, RECIPES):
        space, _ = load_space(name).applied_to(recipe)
        found = list(itertools.islice(space.settings(recipe, 1), space.count(recipe)))
        made = {space.apply(recipe, setting).model_dump_json() for setting in found}
        assert len(made) == len(found), recipe.name


def test_isolated_begins_with_the_recipe_and_changes_one_key_over_the_papers_ranges() -> None:
    space = load_space("ablations")
    found, own = settings(space), space.baseline(RECIPE)
    assert found[0] == own
    assert all(sum(setting[key] != own[key] for key in setting) == 1 for setting in found[1:])
    values = {key: {setting[key] for setting in found} for key in own}
    assert values == {
        "model.num_anchors": {16, 32, 64, 128, 256, 512},
        "model.num_levels": {1, 2, 3, 4, 5, 6},
        "model.num_heads": {1, 2, 3, 4, 6, 8},
        "model.num_loops": {0, 1, 2, 3, 4},
    }


def test_more_trials_go_on_where_fewer_ended_and_draws_lie_in_their_range() -> None:
    for text in (
        "design: grid\nparameters: {model.num_levels: [1, 2, 3], model.num_heads: [1, 2, 3]}",
        "design: random\nparameters: {training.learning_rate: {min: 1e-4, max: 1e-2, log: true},"
        " model.num_heads: {min: 1, max: 6}}",
    ):
        space = parse_space("x", text)
        assert settings(space, 20)[:5] == settings(space, 5)
        assert settings(space, 9, seed=1) != settings(space, 9, seed=2)
    for setting in settings(space, 50):
        assert 1e-4 <= setting["training.learning_rate"] <= 1e-2
        assert setting["model.num_heads"] in range(1, 7)


CHOICES = "design: grid\nparameters: {model.num_levels: [1]}\nchoices: "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "design: grid\nparameters: {model.num_anchor: [1]}",
            "no key model.num_anchor; did you mean model.num_anchors",
        ),
        ("design: grid\nparameters: {training.seed: [1, 2]}", "training.seed cannot be swept"),
        ("design: grid\nparameters: {training.budget_s: [1, 2]}", "training.budget_s cannot be"),
        (
            "design: grid\nparameters: {model.num_heads: {min: 1, max: 4}}",
            "a range needs `design: random`",
        ),
        ("design: random\nparameters: {model.num_heads: {min: 4, max: 1}}", "make no range"),
        ("design: grid\nparameters: {}", "nothing is varied"),
        ("design: [", "is not valid YAML"),
        ("!!python/object/apply:os.system ['true']", "is not valid YAML"),
        ("design: random\nparameters: {model.width: {min: 1, max: .inf}}", "finite"),
        (CHOICES + "{Few: {model.num_levels: 2}}", "model.num_levels: in choices and in param"),
        (CHOICES + "{baseline: {model.num_heads: 2}}", "the name baseline is that of the exper"),
        (CHOICES + "{Few: {model.num_heads: 1000}}", "choice Few is impossible"),
    ],
)
def test_a_wrong_space_is_one_line_that_names_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        space = parse_space("mine", text)
        for setting in settings(space, 3):
            space.apply(RECIPE, setting)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_space_is_a_shipped_name_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "My_space.yaml"
    file.write_text("design: grid\nparameters: {model.num_levels: [1, 2]}")
    assert load_space(str(file)).name == "my-space"
    with pytest.raises(InputError, match=r"choose one of ablations, .* or give a \.yaml file"):
        load_space("everything")
    with pytest.raises(InputError, match="cannot be read"):
        load_space(str(tmp_path / "nowhere.yaml"))


@pytest.mark.parametrize(
    ("design", "expected"),
    [("isolated", [(3, "baseline"), (1, "baseline"), (2, "baseline"), (3, "Few"), (3, "Many")]),
     ("grid", list(itertools.product((1, 2), ("baseline", "Few", "Many"))))],
)  # fmt: skip
def test_a_choice_is_one_more_key_whose_keys_change_together(
    design: str, expected: list[tuple[int, str]]
) -> None:
    space = parse_space("two", TWO.format(design=design))
    found = settings(space, seed=1)
    pairs = [(setting["model.num_levels"], setting["choice"]) for setting in found]
    assert sorted(pairs) == sorted(expected)
    assert list(found[0]) == list(space.columns) == ["model.num_levels", "choice"]
    sizes = {}
    for setting in found:
        made = space.apply(RECIPE, setting)
        model, rate = made.model, made.training.learning_rate
        sizes[setting["choice"]] = (model.num_anchors, model.num_heads, rate)
    assert sizes == {"baseline": (64, 3, 3e-4), "Few": (8, 2, 3e-4), "Many": (128, 3, 1e-4)}


@pytest.mark.parametrize("family", NOT_THERE)
def test_features_holds_the_rows_of_the_papers_table_that_mean_something(family: str) -> None:
    whole, recipe = load_space("features"), get_recipe(family)
    assert set(whole.choices) == ABLATIONS.keys() | EXTRA
    space, left_out = whole.applied_to(recipe)
    assert {line.partition(" does not apply to ")[0] for line in left_out} == NOT_THERE[family]
    found = list(itertools.islice(space.settings(recipe, 1), space.count(recipe)))
    assert {setting["choice"] for setting in found} == (
        {"baseline", *EXTRA, *ABLATIONS} - NOT_THERE[family]
    )
    for setting in found:
        if setting["choice"] in ABLATIONS:
            made = space.apply(recipe, setting)
            assert made.model == ablated(recipe.model, setting["choice"])
        if setting["choice"] == "No boundary PC (full-mesh)":
            name = f"{family}-full-mesh"
            assert made.derive(name=name) == get_recipe(name)


def test_every_row_trains_and_predicts_and_is_shown_by_its_name(
    waves: Dataset, tmp_path: Path
) -> None:
    experiment = tiny_experiment(epochs=1, samples_per_epoch=8)
    sweep = plan_sweep(experiment, waves, load_space("features"), None, str(tmp_path))
    assert len(sweep.trials) == 13 - len(sweep.left_out)
    again = plan_sweep(experiment, waves, sweep.space, None, str(tmp_path))
    assert [each.run.url for each in again.trials] == [each.run.url for each in sweep.trials]
    case = waves[waves.cases("test")[0]]
    for trial in sweep.trials:
        fit(trial.experiment, waves, trial.run)
        predicted = courant.load(trial.run.url, device="cpu").predict_case(case)
        assert predicted.shape[-2:] == (case.num_points, experiment.model.num_outputs)
    results = [read_result(each) for each in sweep.trials]
    number = next(r.number for r in results if r.setting["choice"] == "GWA in decoder only")
    result = results[number - 1]
    assert "choice GWA in decoder only" in result.line()
    assert f"trial-{number:02d}-gwa-in-decoder-only-" in result.run
    write_table(sweep, results)
    header, *rows = sweep.folder.read_bytes("trials.csv").decode().splitlines()
    assert header == "trial,choice,seed,state,nmae,best_epoch,epochs,seconds,run,reason"
    assert rows[number - 1].startswith(f"{number},GWA in decoder only,42,finished,{result.nmae},1,")


def test_a_row_whose_sizes_are_not_the_datas_is_left_out_and_the_others_are_tried(
    waves: Dataset, tmp_path: Path
) -> None:
    """With two known states the encoder reads twice the fields, and no row has five channels."""
    experiment = tiny_experiment(epochs=1)
    experiment = experiment.derive(
        model={"num_features": experiment.model.num_features + 2}, data={"input_steps": 2}
    )
    space, five = load_space("features"), {"bare": {"model.num_features": 5}}
    misfit = space.model_copy(update={"choices": {**space.choices, **five}})
    sweep = plan_sweep(experiment, waves, misfit, None, str(tmp_path))
    assert len(sweep.trials) == 14 - len(sweep.left_out)
    (bare,) = (line for line in sweep.left_out if line.startswith("bare does not apply to tiny: "))
    assert "expected" in bare
