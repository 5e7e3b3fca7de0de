"""Search spaces: what the shipped ones stand for, and one clear line for a wrong one."""

import itertools
from pathlib import Path

import pytest

from courant.recipes import RECIPES, get_recipe
from courant.sweeps.search_space import SearchSpace, load_space, parse_space, shipped_spaces
from simgen.errors import InputError

BASELINE = get_recipe("cylinder-flow")
MINE = (
    "design: random\nparameters: {training.learning_rate: {min: 1e-4, max: 1e-2, log: true},"
    " model.num_heads: [1, 3]}"
)


def settings(space: SearchSpace, num: int, seed: int = 42) -> list[dict]:
    return list(itertools.islice(space.settings(BASELINE, seed), num))


@pytest.mark.parametrize("name", shipped_spaces())
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_setting_of_a_shipped_space_is_a_possible_experiment_and_they_all_differ(
    name: str, recipe: str
) -> None:
    space, baseline = load_space(name), get_recipe(recipe)
    found = list(itertools.islice(space.settings(baseline, 1), space.count(baseline)))
    made = {space.apply(baseline, setting).model_dump_json() for setting in found}
    assert len(made) == len(found)


def test_the_shipped_spaces_cover_the_papers_ranges() -> None:
    values = {key: item.values for key, item in load_space("ablations").parameters.items()}
    assert (min(values["model.num_anchors"]), max(values["model.num_anchors"])) == (16, 512)
    assert values["model.num_levels"] == (1, 2, 3, 4, 5, 6)
    assert values["model.num_loops"] == (0, 1, 2, 3, 4)
    assert set(load_space("gwa").parameters["model.gaussian_window"].values) == {
        "none",
        "encoder",
        "decoder",
        "both",
    }


def test_isolated_changes_one_key_at_a_time_and_begins_with_the_baseline() -> None:
    space = load_space("ablations")
    found = settings(space, space.count(BASELINE) or 0)
    baseline = space.baseline(BASELINE)
    assert found[0] == baseline
    assert all(sum(setting[key] != baseline[key] for key in setting) == 1 for setting in found[1:])


def test_a_width_without_a_window_is_no_setting_of_its_own() -> None:
    found = settings(load_space("gwa"), 20)
    assert {
        setting["model.window_scale"]
        for setting in found
        if setting["model.gaussian_window"] == "none"
    } == {1.0}
    assert sum(setting["model.gaussian_window"] == "both" for setting in found) == 3 * 2


def test_a_key_whose_condition_is_put_back_is_put_back_too() -> None:
    window, scale, extent = "model.gaussian_window", "model.window_scale", "model.domain_extent"
    text = f"""
        name: chain
        design: grid
        parameters:
          {window}: {{values: [none, both]}}
          {scale}: {{values: [1.0, 0.5], when: {{{window}: [both]}}}}
          {extent}: {{values: [2.0, 1.0], when: {{{scale}: [0.5]}}}}
        """
    assert parse_space("chain", text).count(BASELINE) == 4
    made = settings(parse_space("chain", text), 4)
    assert sorted((each[window], each[scale], each[extent]) for each in made) == [
        ("both", 0.5, 1.0),
        ("both", 0.5, 2.0),
        ("both", 1.0, 2.0),
        ("none", 1.0, 2.0),
    ]


def test_conditions_read_numbers_as_values_do_and_wait_for_one_that_comes() -> None:
    text = """
        design: grid
        parameters:
          training.learning_rate: [1e-3, 1e-4]
          training.weight_decay: {values: [0.0, 0.05], when: {training.learning_rate: [%s]}}
        """
    for number in ("1e-4", "1.0e-4", "0.0001"):
        assert parse_space("x", text % number).count(BASELINE) == 3
    with pytest.raises(InputError, match=r"waits for training.learning_rate 0\.01, which is none"):
        parse_space("x", text % "1e-2")


def test_more_trials_go_on_where_fewer_ended_and_another_seed_takes_another_order() -> None:
    for text in (
        "design: grid\nparameters: {model.num_levels: [1, 2, 3], model.num_heads: [1, 2, 3]}",
        "design: random\nparameters: {training.learning_rate: {min: 1e-4, max: 1e-2, log: true}}",
    ):
        space = parse_space("x", text)
        assert settings(space, 20)[:5] == settings(space, 5)
        assert settings(space, 9, seed=1) != settings(space, 9, seed=2)


def test_drawn_values_lie_in_their_range_whole_where_the_bounds_are() -> None:
    space = parse_space(
        "x",
        "design: random\nparameters: {training.learning_rate: {min: 1e-4, max: 1e-2, log: true},"
        " model.num_heads: {min: 1, max: 6}}",
    )
    for setting in settings(space, 50):
        assert 1e-4 <= setting["training.learning_rate"] <= 1e-2
        assert setting["model.num_heads"] in range(1, 7)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "design: grid\nparameters: {model.num_anchor: [1]}",
            "no key model.num_anchor; did you mean model.num_anchors",
        ),
        ("design: grid\nparameters: {num_anchors: [1]}", "an experiment has no key num_anchors"),
        ("design: grid\nparameters: {model.num_anchors: [0]}", "num_anchors 0 is impossible"),
        (
            "design: grid\nparameters: {model.num_heads: [1000]}",
            "num_heads 1000 is more than width 128",
        ),
        (
            "design: grid\nparameters: {training.learning_rate: [fast]}",
            "learning_rate fast is impossible",
        ),
        ("design: grid\nparameters: {training.seed: [1, 2]}", "training.seed cannot be swept"),
        (
            "design: grid\nparameters: {model.num_heads: {min: 1, max: 4}}",
            "a range needs `design: random`",
        ),
        ("design: random\nparameters: {model.num_heads: {min: 4, max: 1}}", "make no range"),
        (
            "design: random\nparameters: {model.num_heads: {mi: 4, max: 1}}",
            "parameters.model.num_heads.mi: Extra",
        ),
        ("design: spiral\nparameters: {model.num_heads: [1]}", "'isolated', 'grid' or 'random'"),
        ("design: grid\nparameters: {}", "parameters"),
        ("design: [", "is not valid YAML"),
        ("just words", "must be a mapping"),
    ],
)
def test_a_wrong_space_is_one_line_that_names_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        space = parse_space("mine", text)
        for setting in settings(space, 3):
            space.apply(BASELINE, setting)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_space_is_a_shipped_name_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "My_space.yaml"
    file.write_text("design: grid\nparameters: {model.num_levels: [1, 2]}")
    assert load_space(str(file)).name == "my-space"
    with pytest.raises(
        InputError, match=r"choose one of ablations, anchors, .* or give a \.yaml file"
    ):
        load_space("everything")
    with pytest.raises(InputError, match="cannot be read"):
        load_space(str(tmp_path / "nowhere.yaml"))
