"""Search spaces: what the shipped ones hold, and one clear line for a wrong one."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

import courant
from courant.experiment import Experiment
from courant.model.presets import ABLATIONS
from courant.recipes import RECIPES, get_recipe
from courant.sweeps.search_space import Choice, SearchSpace, load_space, parse_space, shipped_spaces
from courant.sweeps.sweep import plan_sweep, read_result, write_table
from courant.training.train import fit
from simgen.errors import InputError
from simgen.store.read import Dataset
from tests.world import tiny_experiment, tiny_steady

BASELINE = get_recipe("cylinder-flow")
TWO = """
design: {design}
parameters: {{model.num_levels: [1, 2]}}
choices:
  - Few: {{model.num_anchors: 8, model.num_heads: 2}}
  - Many: {{model.num_anchors: 128, training.learning_rate: 1e-4}}
"""
EXTRA = "No distance field anywhere"
NOT_THERE = {
    "cylinder-flow": {"No global data", "No boundary PC (full-mesh)"},
    "branched-pipe": {"MLP ODE integrator", EXTRA},
    "centrifugal-pump": {"MLP ODE integrator", EXTRA},
}


def settings(space: SearchSpace, num: int, seed: int = 42) -> list[dict]:
    return list(itertools.islice(space.settings(BASELINE, seed), num))


@pytest.mark.parametrize("name", shipped_spaces())
def test_every_setting_of_a_shipped_space_is_a_possible_experiment_and_they_all_differ(
    name: str,
) -> None:
    space = load_space(name)
    for baseline in map(get_recipe, RECIPES):
        found = list(itertools.islice(space.settings(baseline, 1), space.count(baseline)))
        made = {space.apply(baseline, setting).model_dump_json() for setting in found}
        assert len(made) == len(found), baseline.name


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
        ("design: grid\nparameters: {model.num_heads: [1000]}", "num_heads 1000 is impossible"),
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


@pytest.mark.parametrize(
    ("design", "expected"),
    [("isolated", [(3, "baseline"), (1, "baseline"), (2, "baseline"), (3, "Few"), (3, "Many")]),
     ("grid", list(itertools.product((1, 2), ("baseline", "Few", "Many"))))],
)  # fmt: skip
def test_a_choice_is_one_more_key_beside_the_free_ones(
    design: str, expected: list[tuple[int, str]]
) -> None:
    space = parse_space("two", TWO.format(design=design))
    found = list(itertools.islice(space.settings(BASELINE, 1), space.count(BASELINE)))
    pairs = [(setting["model.num_levels"], setting["choice"]) for setting in found]
    assert sorted(pairs) == sorted(expected)
    assert list(found[0]) == list(space.columns) == ["model.num_levels", "choice"]


def test_the_keys_of_a_choice_change_together() -> None:
    space = parse_space("two", TWO.format(design="random"))
    sizes = {}
    for setting in itertools.islice(space.settings(BASELINE, 1), 40):
        made = space.apply(BASELINE, setting)
        model, rate = made.model, made.training.learning_rate
        sizes[setting["choice"]] = (model.num_anchors, model.num_heads, rate)
    assert sizes == {"baseline": (64, 3, 3e-4), "Few": (8, 2, 3e-4), "Many": (128, 3, 1e-4)}


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ("[{Few: {model.num_anchor: 8}}]", "no key model.num_anchor; did you mean model.num_anch"),
        ("[{Few: {training.seed: 8}}]", "training.seed cannot be swept"),
        ("[{Few: {}}]", "an entry is a name and what it sets"),
        ("[Few]", "an entry is a name and what it sets"),
        ("[{Few: {model.num_heads: 2}, Many: {model.num_heads: 4}}]", "an entry is a name and"),
        (
            "[{Few: {model.num_heads: 2}}, {Few: {model.num_heads: 4}}]",
            "two entries are called Few",
        ),
        ("[{Few: {model.num_levels: 2}}]", "model.num_levels: in choices and in parameters"),
        ("[{baseline: {model.num_heads: 2}}]", "the name baseline is that of the experiment"),
        ('[{"two\\nlines": {model.num_heads: 2}}]', "a name is one line"),
        ("[{Few: {model.num_heads: [2]}}]", "choices"),
        ("[{Few: {model.num_heads: 1000}}]", "choice Few is impossible"),
        ("[{Few: {model.num_features: all}}]", "'all' is no size; give fields, fields + distance"),
        ("Few", "choices"),
    ],
)
def test_a_wrong_choice_is_one_line_that_names_what_is_wrong(choices: str, message: str) -> None:
    text = f"design: grid\nparameters: {{model.num_levels: [1]}}\nchoices: {choices}"
    with pytest.raises(InputError) as caught:
        space = parse_space("mine", text)
        for setting in itertools.islice(space.settings(BASELINE, 1), 3):
            space.apply(BASELINE, setting)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_space_needs_parameters_or_choices() -> None:
    with pytest.raises(InputError, match="nothing is varied"):
        parse_space("mine", "design: grid\nchoices: []")


@pytest.mark.parametrize("family", NOT_THERE)
def test_features_holds_the_rows_of_the_papers_table(family: str) -> None:
    space, baseline = load_space("features"), get_recipe(family)
    assert {choice.name for choice in space.choices} == {*ABLATIONS, EXTRA}
    found = list(itertools.islice(space.settings(baseline, 1), space.count(baseline)))
    assert {setting["choice"] for setting in found} == (
        {"baseline", EXTRA, *ABLATIONS} - NOT_THERE[family]
    )
    for setting in found:
        if setting["choice"] in ABLATIONS:
            made = space.apply(baseline, setting)
            assert made.model == ABLATIONS[setting["choice"]](baseline.model)


@pytest.mark.parametrize("family", NOT_THERE)
def test_a_row_that_means_nothing_to_a_family_is_told_in_one_line(family: str) -> None:
    left_out = load_space("features").left_out(get_recipe(family))
    assert {line.partition(" does not apply to ")[0] for line in left_out} == NOT_THERE[family]
    assert not any("\n" in line for line in left_out)


def test_the_full_mesh_row_is_the_published_variant() -> None:
    space, baseline = load_space("features"), get_recipe("branched-pipe")
    made = space.apply(baseline, {"choice": "No boundary PC (full-mesh)"})
    assert made.derive(name="branched-pipe-full-mesh") == get_recipe("branched-pipe-full-mesh")
    assert space.left_out(made)[-2] == (
        "No boundary PC (full-mesh) does not apply to branched-pipe: it is so already"
    )


@pytest.mark.parametrize("make", [tiny_experiment, tiny_steady])
def test_every_row_trains_and_predicts(
    make: Callable[..., Experiment], waves: Dataset, ducts: Dataset, tmp_path: Path
) -> None:
    experiment = make(epochs=1, samples_per_epoch=8)
    data = ducts if experiment.task == "steady" else waves
    sweep = plan_sweep(experiment, data, load_space("features"), None, str(tmp_path))
    assert len(sweep.trials) == 12 - len(sweep.left_out)
    # The job of a cluster plans again from what it is sent.
    again = plan_sweep(experiment, data, sweep.asked, None, str(tmp_path))
    assert again.folder.url == sweep.folder.url and again.left_out == sweep.left_out
    case = data[data.cases("test")[0]]
    for trial in sweep.trials:
        fit(trial.experiment, data, trial.run)
        predicted = courant.load(trial.run.url, device="cpu").predict_case(case)
        assert predicted.shape[-2:] == (case.num_points, experiment.model.num_outputs)


def test_a_choice_is_shown_by_its_name(waves: Dataset, tmp_path: Path) -> None:
    experiment = tiny_experiment(epochs=1, samples_per_epoch=8)
    text = "design: isolated\nchoices: [{No distance field: {model.num_query_features: 0}}]"
    sweep = plan_sweep(experiment, waves, parse_space("mine", text), None, str(tmp_path))
    trial = sweep.trials[1]
    fit(trial.experiment, waves, trial.run)
    results = [read_result(each) for each in sweep.trials]
    assert "choice No distance field" in results[1].line()
    assert "tiny-trial-02-no-distance-field-" in trial.run.url
    write_table(sweep, results)
    header, _, row, *_ = sweep.folder.read_bytes("trials.csv").decode().splitlines()
    assert header.startswith("trial,choice,") and row.startswith("2,No distance field,")
    best = sweep.folder.read_json("best.json")
    assert best["name"] == "tiny-trial-02-no-distance-field"
    assert best["model"]["num_query_features"] == 0


def test_a_row_whose_sizes_are_not_the_datas_is_left_out_and_the_others_are_tried(
    waves: Dataset, tmp_path: Path
) -> None:
    """With two known states the encoder reads twice the fields, and no row has five channels."""
    experiment = tiny_experiment(epochs=1)
    experiment = experiment.derive(
        model={"num_features": experiment.model.num_features + 2}, data={"input_steps": 2}
    )
    space = load_space("features")
    sweep = plan_sweep(experiment, waves, space, None, str(tmp_path))
    assert [line for line in sweep.left_out if "expected" in line] == []
    assert len(sweep.trials) == 12 - len(sweep.left_out)
    whole = plan_sweep(tiny_experiment(epochs=1), waves, space, None, str(tmp_path))
    assert len(whole.left_out) == len(sweep.left_out)
    five = {"model.num_features": 5}
    misfit = space.model_copy(
        update={"choices": (*space.choices, Choice.model_validate({"bare": five}))}
    )
    told = plan_sweep(experiment, waves, misfit, None, str(tmp_path)).left_out
    assert [line.partition(" does not apply to ")[0] for line in told if "expected" in line] == [
        "bare"
    ]
    only = SearchSpace(name="one", design="isolated", choices=[{"bare": {"model.num_features": 5}}])
    with pytest.raises(InputError, match="space one: bare does not apply to tiny"):
        plan_sweep(experiment, waves, only, None, str(tmp_path))
