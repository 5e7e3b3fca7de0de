"""Choices of a search space: keys that change together, and the rows of tab:feature_ablation_nmae
as such.
"""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

import courant
import simgen
from courant.experiment import Experiment
from courant.model.presets import ABLATIONS
from courant.recipes import get_recipe
from courant.runs.directory import RunDirectory
from courant.runs.record import read_records
from courant.sweeps.search_space import Choice, SearchSpace, load_space, parse_space
from courant.sweeps.sweep import plan_sweep, table_row, write_table
from courant.sweeps.sweep import read_result as result_of
from courant.training.loop import fit
from simgen.errors import InputError
from simgen.store.read import Dataset
from tests.training.ducts import publish_ducts, tiny_steady
from tests.training.waves import tiny_experiment

TWO = """
design: {design}
parameters: {{model.num_levels: [1, 2]}}
choices:
  - Few: {{model.num_anchors: 8, model.num_heads: 2}}
  - Many: {{model.num_anchors: 128, training.learning_rate: 1e-4}}
"""
BASELINE = get_recipe("cylinder-flow")
EXTRA = "No distance field anywhere"
NOT_THERE = {
    "cylinder-flow": {"No global data", "No boundary PC (full-mesh)"},
    "branched-pipe": {"MLP ODE integrator", EXTRA},
    "centrifugal-pump": {"MLP ODE integrator", EXTRA},
}


@pytest.fixture(scope="module")
def ducts(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return simgen.open_dataset(
        publish_ducts(str(tmp_path_factory.mktemp("store") / "branched-pipe"))
    )


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
    drawn = list(itertools.islice(space.settings(BASELINE, 1), 40))
    assert {setting["choice"] for setting in drawn} == {"baseline", "Few", "Many"}
    sizes = {
        setting["choice"]: (made.model.num_anchors, made.model.num_heads, rate)
        for setting in drawn
        for made in [space.apply(BASELINE, setting)]
        for rate in [made.training.learning_rate]
    }
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
        ("[{baseline: {model.num_heads: 2}}]", "the name baseline stands for the experiment"),
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
    make: Callable[..., Experiment], dataset: Dataset, ducts: Dataset, tmp_path: Path
) -> None:
    experiment = make(epochs=1, samples_per_epoch=8)
    data = ducts if experiment.task == "steady" else dataset
    sweep = plan_sweep(experiment, data, load_space("features"), None, str(tmp_path))
    assert len(sweep.trials) == 12 - len(sweep.left_out)
    # The job of a cluster plans again from what it is sent.
    again = plan_sweep(experiment, data, sweep.asked, None, str(tmp_path))
    assert again.folder.url == sweep.folder.url and again.left_out == sweep.left_out
    case = data[data.cases("test")[0]]
    for trial in sweep.trials:
        fit(trial.experiment, data, trial.run)
        (record,) = read_records(trial.run)
        assert record.validation_nmae is not None
        predicted = courant.load(trial.run.url, device="cpu").predict_case(case)
        assert predicted.shape[-2:] == (case.num_points, experiment.model.num_outputs)


def test_a_choice_is_shown_by_its_name(dataset: Dataset, tmp_path: Path) -> None:
    experiment = tiny_experiment(epochs=1, samples_per_epoch=8)
    text = "design: isolated\nchoices: [{No distance field: {model.num_query_features: 0}}]"
    sweep = plan_sweep(experiment, dataset, parse_space("mine", text), None, str(tmp_path))
    trial = sweep.trials[1]
    fit(trial.experiment, dataset, trial.run)
    results = [result_of(each) for each in sweep.trials]
    assert table_row(sweep.space, results[1])["choice"] == "No distance field"
    assert "choice No distance field" in results[1].line()
    assert "tiny-trial-02-no-distance-field-" in trial.run.url
    write_table(sweep, results)
    best = RunDirectory(sweep.folder.url).read_json("best.json")
    assert best["name"] == "tiny-trial-02-no-distance-field"
    assert best["model"]["num_query_features"] == 0


def test_a_row_whose_sizes_are_not_the_datas_is_left_out_and_the_others_are_tried(
    dataset: Dataset, tmp_path: Path
) -> None:
    """With two known states the encoder reads twice the fields, and no row has five channels."""
    experiment = tiny_experiment(epochs=1)
    experiment = experiment.derive(
        model={"num_features": experiment.model.num_features + 2}, data={"input_steps": 2}
    )
    space = load_space("features")
    sweep = plan_sweep(experiment, dataset, space, None, str(tmp_path))
    assert [line for line in sweep.left_out if "expected" in line] == []
    assert len(sweep.trials) == 12 - len(sweep.left_out)
    whole = plan_sweep(tiny_experiment(epochs=1), dataset, space, None, str(tmp_path))
    assert len(whole.left_out) == len(sweep.left_out)
    five = {"model.num_features": 5}
    misfit = space.model_copy(
        update={"choices": (*space.choices, Choice.model_validate({"bare": five}))}
    )
    told = plan_sweep(experiment, dataset, misfit, None, str(tmp_path)).left_out
    assert [line.partition(" does not apply to ")[0] for line in told if "expected" in line] == [
        "bare"
    ]
    only = SearchSpace(name="one", design="isolated", choices=[{"bare": {"model.num_features": 5}}])
    with pytest.raises(InputError, match="space one: bare does not apply to tiny"):
        plan_sweep(experiment, dataset, only, None, str(tmp_path))
