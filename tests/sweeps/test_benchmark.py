"""A benchmark's table shows what its trials found, and no trial is trained twice."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from courant.evaluation.evaluate import evaluate as evaluate_run
from courant.evaluation.ledger import Interval
from courant.experiment import Experiment
from courant.prediction.surrogate import NotFiniteError
from courant.recipes import get_recipe
from courant.report.comparison import write_benchmark_page
from courant.runs.record import read_records
from courant.sweeps.benchmark import (
    Benchmark,
    choose_contenders,
    contender_names,
    contender_of,
    final_trials,
    parse_budget,
    search_trials,
    settings_of,
    speed_trials,
)
from courant.sweeps.benchmark_table import BenchmarkTable, paper_errors, read_table
from courant.sweeps.search_space import SearchSpace, load_space
from courant.sweeps.sweep import read_result
from flows.stages import ModelBenchmark
from simgen.errors import InputError
from simgen.store.read import Dataset
from tests.baselines.tiny import OWN
from tests.sweeps.in_process import planned, run_here
from tests.world import tiny_experiment, tiny_steady


def table_of(benchmark: Benchmark, dataset: Dataset) -> BenchmarkTable:
    return read_table(benchmark, dataset, final_trials(benchmark))


@pytest.fixture(scope="module")
def done(ducts: Dataset, tmp_path_factory: pytest.TempPathFactory) -> tuple[Benchmark, Path]:
    """A steady benchmark of two models with two seeds each, and its page."""
    out = tmp_path_factory.mktemp("steady") / "out"
    benchmark = planned(ducts, tiny_steady(), out, seeds=2)
    _, evaluated = run_here(benchmark)
    assert sorted(evaluated) == sorted(each.experiment.name for each in final_trials(benchmark))
    return benchmark, Path(write_benchmark_page(table_of(benchmark, ducts)))


def rows_of(page: Path) -> dict[str, dict[str, Any]]:
    content = json.loads((page.parent / "table.json").read_text())
    return {row["name"]: row for row in content["rows"]}


def lines_of(page: Path) -> dict[str, dict[str, str]]:
    return {line["name"]: line for line in csv.DictReader((page.parent / "table.csv").open())}


def test_models_and_references_are_in_one_table_ordered_by_error(done) -> None:
    _, page = done
    lines = lines_of(page)
    references = {"nearest design", "training mean", "POD + GP", "POD + RBF"}
    assert set(lines) == {"courant", "transolver"} | references
    errors = [float(line["errors.overall.nmae.mean"]) for line in lines.values()]
    assert errors == sorted(errors)
    for line in (lines["courant"], lines["transolver"]):
        assert int(line["errors.overall.nmae.count"]) == 2
        for key in ("ledger.training.mean", "ledger.tuning_s", "ledger.prediction_s"):
            assert float(line[key]) > 0
    text = page.read_text()
    assert (page.parent / "figure.png").read_bytes().startswith(b"\x89PNG")
    best = next(name for name in lines if name in references)
    beaten = [name for name in lines if name not in references and list(lines).index(name)]
    assert text.count(f"predictions; but {best} is better, without a training") == len(beaten) > 0
    paper = {name: row["paper_nmae"] for name, row in rows_of(page).items() if row["paper_nmae"]}
    assert paper == {"courant": 0.096, "transolver": 0.086}

    errors = rows_of(page)["courant"]["errors"]
    runs = sorted((page.parent / "trials").glob("courant-seed-*"))
    assert len(runs) == 2
    found = [json.loads((run / "evaluation.json").read_text()) for run in runs]
    for metric in ("nmae", "rae"):
        values = [each["overall"]["model"][metric] for each in found]
        assert errors["overall"][metric]["mean"] == pytest.approx(sum(values) / 2)
        # Student's factor of two values is 12.7 for 95 %.
        half = 12.706 * abs(values[0] - values[1]) / 2
        assert errors["overall"][metric]["half_width"] == pytest.approx(half, rel=1e-3)


def test_a_finished_benchmark_trains_nothing_again_and_more_seeds_only_those(done) -> None:
    benchmark, _ = done
    assert run_here(benchmark) == ([], [])
    more = benchmark.model_copy(update={"seeds": 3, "best": 1})
    firsts = final_trials(benchmark, first=True)
    one, other = (each.experiment.derive(training={"learning_rate": 1.0}) for each in firsts)
    assert one.training == other.training, "the same batches and steps"
    assert one.data.model_copy(update={"encoder": "mesh"}) == other.data
    first = {contender_of(trial): read_result(trial).nmae for trial in firsts}
    better = min(first, key=lambda name: first[name])
    trained, evaluated = run_here(more)
    assert trained == evaluated == [f"{better}-seed-44"]
    trials = final_trials(more)
    assert sorted(map(contender_of, trials)) == sorted([better] * 3 + [*first.keys() - {better}])


def test_a_finished_benchmark_is_shown_before_anything_starts(done, ducts, tmp_path) -> None:
    benchmark, page = done
    experiment, sizes = tmp_path / "experiment.json", tmp_path / "sizes.json"
    experiment.write_text(json.dumps(benchmark.base.model_dump(mode="json")))
    sizes.write_text(json.dumps({"transolver": OWN["transolver"]}))
    asked = ModelBenchmark(
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


def test_the_ledger_counts_solves_search_and_training_beside_quantities(done, ducts) -> None:
    table = table_of(done[0], ducts)
    (share,) = table.quantities
    assert (share.name, share.null) == ("branch1_share", None), "too few designs for a null"
    assert set(share.models) == {row.name for row in table.models if row.errors}
    needed = len(ducts.cases()) - len(ducts.cases("test"))
    for row in rows_of(done[1]).values():
        if row["is_reference"]:
            assert row["ledger"] is None
            continue
        ledger = row["ledger"]
        solver = ledger["solver"]
        assert (solver["num_solved"], solver["per_prediction"]["mean"]) == (needed, 20.0)
        spent = 20.5 * needed + ledger["training"]["mean"] + ledger["tuning_s"]
        even = row["break_even"]
        assert even["expected"] == pytest.approx(spent / (20.0 - ledger["prediction_s"]), abs=1)
        assert even["low"] <= even["expected"] <= even["high"]


def test_processor_time_decides_how_many_epochs_a_model_gets(waves, tmp_path) -> None:
    benchmark = planned(
        waves, tiny_experiment(), tmp_path, ["courant", "fno"], "1s", rates=(3e-3,), seeds=1
    )
    run_here(benchmark)
    for trial, speed in zip(final_trials(benchmark), speed_trials(benchmark), strict=True):
        per_batch = [each.processor_s / 10 for each in read_records(speed.run)[1:]]
        batches = trial.experiment.training.epochs * 6
        assert 0.9 / max(per_batch) - 6 <= batches <= 1.1 / min(per_batch)
    lines = lines_of(Path(write_benchmark_page(table_of(benchmark, waves))))
    assert {"persistence", "training mean", "DMD"} <= set(lines)
    assert float(lines["fno"]["errors.steps.2.nmae.mean"]) > 0


def test_a_whole_pass_is_measured_by_a_part_of_it(ducts, tmp_path) -> None:
    base = tiny_steady(samples_per_epoch=None, warmup_steps=10_000)
    benchmark = planned(ducts, base, tmp_path, ["courant"], "2s", rates=(3e-3,))
    run_here(benchmark)
    (speed,), (trial,) = speed_trials(benchmark), final_trials(benchmark)
    assert speed.experiment.training.samples_per_epoch == 10 * base.training.batch_size
    assert trial.experiment.training.samples_per_epoch is None
    per_batch = [each.processor_s / 10 for each in read_records(speed.run)[1:]]
    batches = len(ducts.cases("train")) // base.training.batch_size
    done = trial.experiment.training.epochs * batches
    assert 1.8 / max(per_batch) - batches <= done <= 2.2 / min(per_batch)
    assert trial.experiment.training.warmup_steps == int(0.1 * done)


def test_speed_is_measured_at_the_lowest_rate_and_a_schedule_of_steps_fits_the_budget(
    ducts, tmp_path
) -> None:
    steps = {"schedule": "step", "step_epochs": 10, "epochs": 40, "learning_rate": 0.1}
    base = tiny_steady().derive(training=steps)
    rates = (1e-3, 1e-4)
    (speed,) = speed_trials(planned(ducts, base, tmp_path, ["courant"], "8s", rates=rates))
    assert speed.experiment.training.learning_rate == 1e-4
    benchmark = planned(ducts, base, tmp_path, ["courant"], "8epochs", rates=rates)
    one_rate = benchmark.model_copy(update={"rates": (1e-3,)})
    trials = (*search_trials(benchmark), *final_trials(one_rate))
    lengths = [(t.experiment.training.epochs, t.experiment.training.step_epochs) for t in trials]
    assert lengths == [(2, 1), (2, 1), (8, 2)]


def test_a_rate_that_diverges_is_not_chosen_and_a_model_that_always_does_is_named(
    ducts, tmp_path
) -> None:
    base, names = tiny_steady(), ["courant"]
    benchmark = planned(ducts, base, tmp_path / "one", names, "1epoch", rates=(1e-3, 1e30))
    run_here(benchmark)
    (row,) = table_of(benchmark, ducts).models
    assert (row.rate, row.rate_at_edge) == (1e-3, True)
    never = planned(ducts, base, tmp_path / "never", names, "1epoch", rates=(1e30, 1e31))
    run_here(never)
    assert final_trials(never) == []
    with pytest.raises(InputError, match="every training failed; the first: training diverged"):
        table_of(never, ducts)


def test_a_prediction_that_is_not_finite_fails_its_trial_alone(
    ducts, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark = planned(ducts, tiny_steady(), tmp_path, budget="1epoch", rates=(3e-3,))

    def evaluate(run: str, *of: str) -> object:
        if "transolver" in run:
            raise NotFiniteError("the prediction is not finite")
        return evaluate_run(run, *of)

    monkeypatch.setattr("courant.evaluation.evaluate.evaluate", evaluate)
    run_here(benchmark)
    failures = {row.name: row.failures for row in table_of(benchmark, ducts).models}
    assert failures == {"courant": (), "transolver": ("the prediction is not finite",)}
    assert run_here(benchmark) == ([], []), "it is on record"


def test_rows_of_the_papers_ablations_come_with_its_numbers(ducts, tmp_path) -> None:
    base = tiny_steady()
    space, left_out = load_space("features").applied_to(base)
    benchmark = planned(ducts, base, tmp_path, ["courant"], rates=(1e-3,), space=space.name)
    contenders = settings_of(space, base, ducts)
    assert next(iter(contenders.items())) == ("courant", base)
    benchmark = benchmark.model_copy(update={"contenders": contenders})
    numbers = paper_errors(benchmark)
    assert numbers["courant"] == 0.097 and numbers["Learned anchors"] == 0.089
    assert "MLP ODE integrator" not in numbers
    assert any("MLP ODE integrator does not apply" in line for line in left_out)
    names = [trial.experiment.name for trial in final_trials(benchmark, first=True)]
    assert "gwa-enc-dec-seed-42" in names and len(set(names)) == len(contenders)


def differences(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {
        f"{section}.{key}": value
        for section in ("model", "data", "training")
        for key, value in other[section].items()
        if value != one[section][key]
    }


PLACED = {"model.anchor_kind": "learned", "data.anchor_start": "cloud"}


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("courant", {}),
        ("courant-gwa", {"model.gaussian_window": "both"}),
        ("courant-learned-anchors", {"model.anchor_kind": "learned"}),
        ("courant-placed-anchors", PLACED),
        ("courant-legible", PLACED | {"model.gaussian_window": "both", "model.window_scale": 0.35}),
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


@pytest.mark.parametrize("name", ["courant-learned-anchors", "transolver"])
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


@pytest.mark.parametrize(
    "text", ["", "10", "0s", "2.5epochs", "3 weeks", "10001h", "9" * 400 + "s"]
)
def test_a_budget_is_epochs_or_a_time(text: str) -> None:
    assert parse_budget("40 epochs").amount == 40 and parse_budget("1.5min").amount == 90
    with pytest.raises(InputError, match="budget"):
        parse_budget(text)


PRINTED: dict[str, dict[str, float]] = {
    "elasticity": {"courant": 2.1e-2, "transolver": 5.7e-3, "upt": 1.3e-2},
    "pipe": {"courant": 1.4e-2, "fno": 2.2e-3, "factformer": 1.3e-3, "transolver": 1.8e-3},
    "darcy-flow-published": {"courant": 5.7e-3, "transolver": 4.9e-3},
    "diffusion-sorption": {"courant": 3.8e-3, "enf": 4.9e-3, "fno": 3.9e-3, "upt": 1.9e-2},
    "compressible-flow-3d": {"courant": 1.7e-2, "enf": 3.8e-2, "fno": 1.9e-2, "upt": 1.7e-2},
}
"""tab:bench-unstr and tab:bench-str"""
NOT_PRINTED = {"elasticity": ["fno"], "diffusion-sorption": ["factformer"]}


def paper_of(base: Experiment, models: list[str]) -> dict[str, float]:
    recorded = dict.fromkeys(("dataset_url", "version", "snapshot_id", "url"), "unused")
    contenders = dict.fromkeys(models, base)
    budget = parse_budget("1epoch")
    return paper_errors(Benchmark(base=base, contenders=contenders, budget=budget, **recorded))


@pytest.mark.parametrize("family", PRINTED)
def test_community_benchmarks_come_with_the_papers_numbers(family: str) -> None:
    models = [*PRINTED[family], *NOT_PRINTED.get(family, [])]
    assert paper_of(get_recipe(family), models) == PRINTED[family]


def test_another_task_or_a_dataset_of_ones_own_has_no_numbers() -> None:
    shorter = get_recipe("diffusion-sorption").derive(data={"window_steps": 5})
    beams = get_recipe("elasticity").model_copy(update={"family": "beams"})
    assert paper_of(shorter, ["courant"]) == paper_of(beams, ["courant"]) == {}


def test_settings_of_a_space_are_drawn_over_the_recipe_seed_by_seed(ducts, tmp_path) -> None:
    base = tiny_steady()
    space = SearchSpace(name="mine", design="isolated", parameters={"model.num_levels": [1, 2]})
    benchmark = planned(ducts, base, tmp_path, ["courant"], rates=(1e-3,), seeds=2, space="mine")
    benchmark = benchmark.model_copy(update={"contenders": settings_of(space, base, ducts)})
    run_here(benchmark)
    page = Path(write_benchmark_page(table_of(benchmark, ducts)))
    assert (page.parent / "settings.png").read_bytes().startswith(b"\x89PNG")
    rows = {n: row for n, row in rows_of(page).items() if not row["is_reference"]}
    errors = {n: [curve["test_nmae"] for curve in row["curves"]] for n, row in rows.items()}
    first = next(iter(rows))
    ratios = np.divide(errors[first], errors["courant"])
    assert len(rows) == 2
    assert f"{first} has {Interval.of(ratios.tolist()).text()} times" in page.read_text()
