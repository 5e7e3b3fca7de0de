"""A benchmark's table says what its trials found, and no trial is trained twice."""

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from courant.benchmark.page import markdown, write_results
from courant.benchmark.paper import paper_numbers
from courant.benchmark.phases import (
    contender_of,
    final_trials,
    processor_seconds,
    search_trials,
    seeds_of,
    speed_trials,
    trials_on_record,
)
from courant.benchmark.request import (
    Request,
    choose_contenders,
    make_request,
    parse_budget,
    settings_of,
)
from courant.benchmark.rows import QuantityRow, quantity_rows, read_table
from courant.evaluation.evaluate import evaluate as evaluate_run
from courant.evaluation.ledger import Interval
from courant.evaluation.metrics import METRICS, Metric
from courant.evaluation.quantities import FigureScore
from courant.evaluation.record import QuantityScore, read_evaluation
from courant.experiment import Experiment
from courant.prediction.surrogate import NotFiniteError
from courant.runs.directory import RunDirectory
from courant.runs.record import read_records
from courant.sweeps.search_space import SearchSpace, load_space
from courant.sweeps.sweep import read_result
from flows.stages.benchmark import Comparison
from simgen.errors import InputError
from simgen.store.read import Dataset
from tests.baselines.tiny import OWN
from tests.benchmark.in_process import run_here
from tests.training.ducts import tiny_steady
from tests.training.waves import tiny_experiment


def asked(
    dataset: Dataset,
    base: Experiment,
    folder: Path,
    models: Sequence[str] = ("courant", "transolver"),
    budget: str = "4epochs",
    **options: Any,
) -> Request:
    sizes = {name: OWN[name] for name in models if name in OWN}
    contenders = choose_contenders(models, base, dataset, sizes)
    return make_request(
        base,
        contenders,
        dataset,
        parse_budget(budget),
        runs_url=str(folder),
        out=str(folder / "out"),
        **{"rates": (1e-3, 3e-3), **options},
    )


@pytest.fixture(scope="module")
def done(ducts: Dataset, tmp_path_factory: pytest.TempPathFactory) -> tuple[Request, Path]:
    """A steady benchmark of two models with two seeds each, and its page."""
    request = asked(ducts, tiny_steady(), tmp_path_factory.mktemp("steady"), seeds=2)
    here, trials = run_here(request)
    assert sorted(here.assessed) == sorted(trial.experiment.name for trial in trials)
    return request, Path(write_results(read_table(request, ducts, trials)))


def test_models_and_references_stand_in_one_table_ordered_by_error(done, ducts) -> None:
    _, page = done
    rows = list(csv.DictReader(page.with_suffix(".csv").open()))
    names = {row["name"] for row in rows}
    references = {"nearest design", "training mean", "POD + GP", "POD + RBF"}
    assert names == {"courant", "transolver"} | references
    errors = [float(row["nmae"]) for row in rows]
    assert errors == sorted(errors)
    for row in rows:
        if row["reference"] == "False":
            assert int(row["seeds"]) == 2 and float(row["nmae ±"]) > 0
            assert float(row["training_processor_s"]) > 0 and float(row["search_processor_s"]) > 0
            assert float(row["prediction_s 1000"]) > 0
            assert float(row["nmae velocity.x"]) > 0
            assert float(row["rae"]) > 0 and float(row["rae velocity.x"]) > 0
    text = page.read_text()
    assert "![error against processor time](figure.png)" in text
    assert (page.parent / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert "The paper's numbers are of data of its own: 300 designs, here 14" in text
    best = min(
        (row for row in rows if row["reference"] == "True"), key=lambda row: float(row["nmae"])
    )
    beaten = [row for row in rows if row["parameters"] and float(row["nmae"]) > float(best["nmae"])]
    assert (
        text.count(f"predictions; but {best['name']} is better, without a training")
        == len(beaten)
        > 0
    )
    assert "models of other sizes than here (courant, transolver)" in text
    table = json.loads(page.with_suffix(".json").read_text())
    assert {row["name"]: row["paper_nmae"] for row in table["rows"] if row["paper_nmae"]} == {
        "courant": 0.096,
        "transolver": 0.086,
    }


def test_the_mean_is_that_of_the_seeds_own_evaluations(done, ducts) -> None:
    _, page = done
    table = json.loads(page.with_suffix(".json").read_text())
    (row,) = (row for row in table["rows"] if row["name"] == "courant")
    runs = sorted((page.parent / "trials").glob("courant-seed-*"))
    assert len(runs) == 2
    found = [json.loads((run / "evaluation.json").read_text()) for run in runs]
    nmae = [each["overall"]["model"]["nmae"] for each in found]
    assert row["errors"]["overall"]["nmae"]["mean"] == pytest.approx(sum(nmae) / 2)
    typical = [
        median(case["overall"]["model"]["nmae"] for case in each["cases"].values())
        for each in found
    ]
    assert row["errors"]["typical"]["mean"] == pytest.approx(sum(typical) / 2)
    assert " | median case | RAE | " in page.read_text()
    rae = [each["overall"]["model"]["rae"] for each in found]
    assert row["errors"]["overall"]["rae"]["mean"] == pytest.approx(sum(rae) / 2)
    # The mean of the training everywhere has an error of about the fields' variation.
    (mean,) = (row for row in table["rows"] if row["name"] == "training mean")
    assert mean["errors"]["overall"]["rae"]["mean"] == pytest.approx(1, abs=1e-6)
    # Student's factor of two values is 12.7 for 95 %.
    assert row["errors"]["overall"]["nmae"]["half_width"] == pytest.approx(
        12.706 * abs(nmae[0] - nmae[1]) / 2, rel=1e-3
    )


def test_every_model_has_the_same_batches_steps_and_rates_to_choose_from(done, ducts) -> None:
    request, _ = done
    trials = final_trials(request, {"courant": 1, "transolver": 1})
    first, second = (trial.experiment.model_dump() for trial in trials)
    first["training"].pop("learning_rate"), second["training"].pop("learning_rate")
    assert first["training"] == second["training"]
    first["data"].pop("encoder"), second["data"].pop("encoder")
    assert first["data"] == second["data"]


def test_a_finished_benchmark_trains_nothing_again_and_more_seeds_only_those(done, ducts) -> None:
    request, page = done
    here, _ = run_here(request)
    assert here.trained == here.assessed == []
    sizes = {"transolver": OWN["transolver"]}
    more = make_request(
        request.base,
        choose_contenders(["courant", "transolver"], request.base, ducts, sizes),
        ducts,
        request.budget,
        runs_url="unused",
        out=str(page.parent),
        rates=request.rates,
        seeds=3,
        best=1,
    )
    here, trials = run_here(more)
    (only,) = here.trained
    assert only.endswith("-seed-44") and here.assessed == [only]
    assert len(trials) == 4, "the better model has three seeds, the other one"


def test_a_finished_benchmark_is_answered_before_anything_starts(done, ducts, tmp_path) -> None:
    request, page = done
    experiment, sizes = tmp_path / "experiment.json", tmp_path / "sizes.json"
    experiment.write_text(json.dumps(request.base.model_dump(mode="json")))
    sizes.write_text(json.dumps({"transolver": OWN["transolver"]}))
    asked = Comparison(
        ducts.url,
        models=["courant", "transolver"],
        budget="4epochs",
        rates=[1e-3, 3e-3],
        seeds=2,
        sizes=str(sizes),
        experiment=str(experiment),
        out=str(page.parent),
    )
    found = asked.done()
    assert found is not None and found.page == str(page)
    assert "has the lowest NMAE of the models" in found.verdict
    assert replace(asked, seeds=4).done() is None
    with pytest.raises(InputError, match="holds another benchmark"):
        replace(asked, rates=[1e-4]).done()


def test_a_folder_holds_one_benchmark(done, ducts) -> None:
    request, page = done
    other = make_request(
        request.base,
        request.contenders,
        ducts,
        parse_budget("5epochs"),
        runs_url="unused",
        out=str(page.parent),
        rates=request.rates,
    )
    with pytest.raises(InputError, match=r"holds another benchmark: its budget is not the same"):
        run_here(other)


def test_the_ledger_counts_solves_search_and_training(done, ducts) -> None:
    _, page = done
    table = json.loads(page.with_suffix(".json").read_text())
    needed = len(ducts.cases()) - len(ducts.cases("test"))
    for row in table["rows"]:
        if row["is_reference"]:
            assert row["ledger"] is None
            continue
        ledger = row["ledger"]
        assert ledger["solver"]["num_solved"] == needed
        assert ledger["solver"]["spent_s"] == pytest.approx(20.5 * needed)
        assert ledger["solver"]["per_prediction"]["mean"] == pytest.approx(20.0)
        spent = 20.5 * needed + ledger["training"]["mean"] + ledger["tuning_s"]
        expected = spent / (20.0 - ledger["prediction_s"])
        assert row["break_even"]["expected"] == pytest.approx(expected, abs=1)
        assert row["break_even"]["low"] <= row["break_even"]["expected"]
        assert row["break_even"]["expected"] <= row["break_even"]["high"]


def test_quantities_of_predicted_fields_stand_beside_their_null(done, ducts) -> None:
    request, _ = done
    trials = trials_on_record(request)
    assert trials is not None
    table = read_table(request, ducts, trials)
    # The modelled velocity tells the split, and no null could be fitted to so few designs.
    (share,) = table.quantities
    assert (share.name, share.null) == ("branch1_share", None)
    assert set(share.models) == {row.name for row in table.models if row.errors}
    shown = {name: Interval.of([0.1, 0.2]) for name in share.models}
    rows = (QuantityRow("peak_speed", 0.125, shown), QuantityRow("branch1_share", None, {}))
    page = markdown(replace(table, quantities=rows))
    assert "## Quantities of interest" in page
    assert f"| peak_speed | 0.125 |{' 0.150 ± 0.635 |' * len(shown)}" in page
    assert f"| branch1_share | – |{' – |' * len(shown)}" in page


def test_quantities_are_gathered_over_seeds_and_models(done, ducts) -> None:
    request, _ = done
    trials = trials_on_record(request)
    assert trials is not None
    evaluation = read_evaluation(trials[0].run, "test")
    assert evaluation is not None

    def told(error: float | None) -> Any:
        score = QuantityScore(
            unit="m/s",
            meaning="",
            truth={},
            predicted={},
            error=error,
            rank_correlation=None,
            null_error=0.3,
        )
        return evaluation.model_copy(update={"quantities": {"peak_speed": score}})

    rows = quantity_rows({"a": [told(0.1), told(0.3)], "b": [told(0.2), told(None)], "c": []})
    assert [(row.name, row.null, set(row.models)) for row in rows] == [("peak_speed", 0.3, {"a"})]
    assert rows[0].models["a"].mean == pytest.approx(0.2)


def test_processor_time_decides_how_many_epochs_a_model_gets(waves, tmp_path) -> None:
    request = asked(
        waves, tiny_experiment(), tmp_path, ["courant", "fno"], "1s", rates=(3e-3,), seeds=1
    )
    _, trials = run_here(request)
    for trial, speed in zip(trials, speed_trials(request), strict=True):
        per_batch = [each.processor_s / 6 for each in read_records(speed.run)[1:]]
        batches = trial.experiment.training.epochs * 6
        assert 0.9 / max(per_batch) - 6 <= batches <= 1.1 / min(per_batch)
        assert processor_seconds(trial) > 0
    page = Path(write_results(read_table(request, waves, trials)))
    text = page.read_text()
    assert "1 s of processor time" in text and "## Steps" in text
    rows = {row["name"]: row for row in csv.DictReader(page.with_suffix(".csv").open())}
    assert {"persistence", "training mean", "DMD"} <= set(rows)
    assert float(rows["fno"]["nmae step 2"]) > 0
    assert "The paper's task is another" in text


def test_a_whole_pass_is_measured_by_a_part_of_it(ducts, tmp_path) -> None:
    base = tiny_steady(samples_per_epoch=None, warmup_steps=10_000)
    request = asked(ducts, base, tmp_path, ["courant"], "2s", rates=(3e-3,), seeds=1)
    _, trials = run_here(request)
    (speed,) = speed_trials(request)
    assert speed.experiment.training.samples_per_epoch == 10 * base.training.batch_size
    assert trials[0].experiment.training.samples_per_epoch is None
    per_batch = [each.processor_s / 10 for each in read_records(speed.run)[1:]]
    batches = len(ducts.cases("train")) // base.training.batch_size
    done = trials[0].experiment.training.epochs * batches
    assert 1.8 / max(per_batch) - batches <= done <= 2.2 / min(per_batch)
    assert trials[0].experiment.training.warmup_steps == int(0.1 * done)


def test_a_budget_below_one_epoch_is_told_with_the_time_of_an_epoch(waves, tmp_path) -> None:
    request = asked(waves, tiny_experiment(), tmp_path, ["courant"], "0.001s")
    with pytest.raises(
        InputError, match=r"too small for one epoch of courant, which takes .* s of"
    ):
        run_here(request)


def test_a_rate_that_diverges_is_not_chosen_and_a_model_that_always_does_is_told(
    ducts, tmp_path
) -> None:
    request = asked(ducts, tiny_steady(), tmp_path, ["courant"], "1epoch", rates=(1e-3, 1e30))
    _, trials = run_here(request)
    (row,) = read_table(request, ducts, trials).models
    assert (row.rate, row.rate_at_edge) == (1e-3, True)
    never = asked(
        ducts, tiny_steady(), tmp_path / "never", ["courant"], "1epoch", rates=(1e30, 1e31)
    )
    _, trials = run_here(never)
    assert trials == []
    with pytest.raises(InputError, match="every training failed; the first: training diverged"):
        read_table(never, ducts, trials)


def test_a_seed_that_failed_is_missed_in_the_table(
    done, ducts, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, _ = done
    trials = trials_on_record(request)
    assert trials is not None
    failed = next(each for each in trials if each.experiment.training.seed == 43)
    found = {trial.run.url: read_evaluation(trial.run, "test") for trial in trials}
    found[failed.run.url] = None
    monkeypatch.setattr("courant.benchmark.rows._evaluation", lambda trial: found[trial.run.url])
    table = read_table(request, ducts, trials)
    (row,) = (each for each in table.models if each.failures)
    assert row.name == contender_of(failed) and row.failures == ("seed 43: not trained",)
    page = markdown(table)
    assert "| 1 of 2 |" in page and f"- {row.name}: seed 43: not trained" in page
    assert f"Not every training ended, so these numbers are too good: {row.name}." in page


def test_a_prediction_that_is_not_finite_fails_its_trial_alone(
    ducts, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = asked(ducts, tiny_steady(), tmp_path, budget="1epoch", rates=(3e-3,), seeds=1)

    def evaluate(run: str, *of: str) -> object:
        if "transolver" in run:
            raise NotFiniteError("the prediction is not finite")
        return evaluate_run(run, *of)

    monkeypatch.setattr("courant.benchmark.assess.evaluate", evaluate)
    _, trials = run_here(request)
    table = read_table(request, ducts, trials)
    assert [row.name for row in table.models if row.errors] == ["courant"]
    assert "- transolver: the prediction is not finite" in markdown(table)
    assert run_here(request)[0].assessed == [], "it is on record"


def test_a_trial_that_was_evaluated_otherwise_is_assessed_again(ducts, tmp_path) -> None:
    request = asked(ducts, tiny_steady(), tmp_path, ["courant"], "1epoch", rates=(3e-3,), seeds=1)
    _, (trial,) = run_here(request)
    evaluate_run(trial.run.url, "validation")
    assert trials_on_record(request) is None
    here, trials = run_here(request)
    assert here.trained == [] and here.assessed == [trial.experiment.name]
    assert read_table(request, ducts, trials).models[0].errors is not None


def test_what_cannot_be_compared_is_told_in_one_line(ducts, waves, tmp_path) -> None:
    base = tiny_steady()
    with pytest.raises(InputError, match=r"model 'transolvr' is unknown; did you mean transolver"):
        choose_contenders(["transolvr"], base, ducts, {})
    with pytest.raises(InputError, match="named twice"):
        choose_contenders(["courant", "courant"], base, ducts, {})
    with pytest.raises(InputError, match=r"model upt cannot be used on .*: experiment: model"):
        choose_contenders(["upt"], base, ducts, {"upt": {"width": 7, "num_heads": 2}})
    with pytest.raises(
        InputError, match=r"model courant cannot be used on .* is for branched-pipe"
    ):
        choose_contenders(["courant"], base, waves, {})
    with pytest.raises(InputError, match=r"sizes are given for fno, which is not compared"):
        choose_contenders(["courant"], base, ducts, {"fno": {}})
    for key, value in (("training.learning_rate", 1e-4), ("training.warmup_steps", 2000)):
        space = SearchSpace(name="mine", design="isolated", parameters={key: {"values": [value]}})
        with pytest.raises(InputError, match=f"space mine: {key} cannot be compared: a benchmark"):
            settings_of(space, base, ducts)
    for text in ("", "10", "0s", "2.5epochs", "3 weeks", "9" * 400 + "s"):
        with pytest.raises(InputError, match="budget"):
            parse_budget(text)
    both = Comparison(ducts.url, space="features", sizes="sizes.json", recipe="branched-pipe-demo")
    with pytest.raises(InputError, match="sizes are those of models"):
        both.plan()


def test_budgets_that_are_told_alike_are_not_taken_for_one() -> None:
    keys = [parse_budget(text).key for text in ("1000s", "1002s", "16.7min", "61min", "40epochs")]
    assert keys[1] == keys[2] == "16.7 min of processor time"  # as older releases wrote it
    assert len(set(keys)) == 4 and keys[-1] == "40 epochs"


@pytest.mark.parametrize("text", ["1000h", "100000min", "0.00001s", "1000000000s"])
def test_budgets_of_any_size_have_a_key(text: str) -> None:
    budget = parse_budget(text)
    assert budget.key.endswith(" of processor time")
    assert budget.key != replace(budget, amount=budget.amount * 1.0001).key


def test_speed_is_measured_at_the_lowest_rate_and_a_schedule_of_steps_fits_the_budget(
    ducts, tmp_path
) -> None:
    steps = {"schedule": "step", "step_epochs": 10, "epochs": 40, "learning_rate": 0.1}
    base = tiny_steady().derive(training=steps)
    request = asked(ducts, base, tmp_path, ["courant"], "8s", rates=(1e-3, 1e-4))
    (speed,) = speed_trials(request)
    assert speed.experiment.training.learning_rate == 1e-4
    request = asked(ducts, base, tmp_path, ["courant"], "8epochs", rates=(1e-3, 1e-4))
    trained = final_trials(replace(request, rates=(1e-3,)), {"courant": 1})
    found = [trial.experiment.training for trial in (*search_trials(request), *trained)]
    assert [(each.epochs, each.step_epochs) for each in found] == [(2, 1), (2, 1), (8, 2)]


def test_a_dataset_without_a_test_split_is_refused(ducts, tmp_path, monkeypatch) -> None:
    contenders = choose_contenders(["courant"], tiny_steady(), ducts, {})
    cases = ducts.cases
    monkeypatch.setattr(ducts, "cases", lambda split=None: [] if split == "test" else cases(split))
    with pytest.raises(InputError, match="has no test case to judge by"):
        make_request(
            tiny_steady(), contenders, ducts, parse_budget("1epoch"), runs_url=str(tmp_path)
        )
    assert RunDirectory(tmp_path).names() == []


def test_rows_of_the_papers_ablations_come_with_its_numbers(ducts, tmp_path) -> None:
    space, base = load_space("features"), tiny_steady()
    contenders = settings_of(space, base, ducts)
    assert contenders[0].name == "courant" and contenders[0].experiment == base
    request = make_request(
        base,
        contenders,
        ducts,
        parse_budget("1epoch"),
        runs_url=str(tmp_path),
        rates=(1e-3,),
        space=space,
    )
    numbers = paper_numbers(request, ducts).nmae
    assert numbers["courant"] == 0.097 and numbers["Learned anchors"] == 0.089
    assert "MLP ODE integrator" not in numbers
    assert any("MLP ODE integrator does not apply" in line for line in request.left_out)
    assert "features" in json.dumps(request.identity())
    names = [
        trial.experiment.name
        for trial in final_trials(request, {each.name: 1 for each in contenders})
    ]
    assert "gwa-enc-dec-seed-42" in names and len(set(names)) == len(contenders)


def test_a_request_reaches_a_cluster_as_it_was_made(done) -> None:
    request, _ = done
    again = Request.from_json(json.loads(json.dumps(request.to_json())))
    assert replace(again, folder=request.folder) == request
    assert again.folder.url == request.folder.url


def test_the_best_models_by_their_first_seed_get_all_seeds(done) -> None:
    request, _ = done
    first = {
        contender_of(trial): read_result(trial)
        for trial in final_trials(request, {"courant": 1, "transolver": 1})
    }
    better = min(first, key=lambda name: first[name].nmae)
    seeds = seeds_of(replace(request, best=1, seeds=5), first)
    assert seeds == {name: 5 if name == better else 1 for name in first}


def test_a_figure_that_all_test_cases_share_has_no_score(done, ducts) -> None:
    request, _ = done
    trials = trials_on_record(request)
    assert trials is not None
    shared = FigureScore("back_flow", "least squares", math.nan, math.nan, 8, 4)
    page = markdown(replace(read_table(request, ducts, trials), nulls=(shared,)))
    assert "| back_flow | least squares | – | – |" in page


def test_a_registered_metric_is_in_the_page_the_lines_and_the_json(
    done: tuple[Request, Path], ducts: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last test of the file: records with this metric are none for the others."""
    request, page = done
    metric = Metric("joint RMS", "", lambda of: float((of.squared.sum() / of.power.sum()) ** 0.5))
    trials = trials_on_record(request)
    assert trials is not None
    monkeypatch.setitem(METRICS, "joint_rms", metric)
    found = [evaluate_run(trial.run.url) for trial in trials]
    write_results(read_table(request, ducts, trials))
    assert " | largest error | joint RMS | " in page.read_text()
    content = json.loads(page.with_suffix(".json").read_text())
    values = {row["name"]: row["errors"]["overall"]["joint_rms"]["mean"] for row in content["rows"]}
    assert values["training mean"] == pytest.approx(found[0].overall["training mean"]["joint_rms"])
    lines = csv.DictReader(page.with_suffix(".csv").open())
    assert {line["name"]: float(line["joint_rms"]) for line in lines} == pytest.approx(values)
