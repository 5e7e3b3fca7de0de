"""What is done already is found without Prefect, Ray and torch; what is not done is never taken for
done.
"""

import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

import simgen
from courant.evaluation.record import EVALUATION, fingerprint, read_evaluation, record_of
from courant.recipes import get_recipe
from courant.report.page import INPUTS, PAGE, inputs_of
from courant.runs.directory import RunDirectory
from courant.runs.record import write_status
from courant.runs.weights import WEIGHTS
from flows import stages
from flows.stages import Generation, MainJob, Measurement, Outcome, PublishedVersion, Training
from simgen.cases import FAMILIES
from simgen.errors import InputError
from simgen.store.write import DatasetWriter
from tests.simgen.heated_plate import HeatedPlate
from tests.store.conftest import NUM_SNAPSHOTS, SCHEMA, add, make_cloud, make_result, record

SETTINGS = {"end_time": float(NUM_SNAPSHOTS)}


@pytest.fixture
def writer(tmp_path: Path) -> DatasetWriter:
    """Of a dataset whose first two designs are published."""
    opened = DatasetWriter.open(str(tmp_path / "store/cylinder-flow"), SCHEMA)
    add(opened, 0, 1)
    opened.publish()
    return opened


@pytest.fixture
def asked(writer: DatasetWriter) -> Generation:
    """The request that these two cases answer."""
    return Generation(cases=2, settings=SETTINGS, store=writer.url.rpartition("/")[0])


def run_of(job: MainJob) -> RunDirectory:
    (name,) = RunDirectory(job.runs or "").names()
    return RunDirectory(job.runs or "") / name


@pytest.fixture
def job(asked: Generation, tmp_path: Path) -> MainJob:
    """A job that has come to its end, the training and the drawing aside."""
    job = MainJob(
        cases=2,
        settings=SETTINGS,
        store=asked.store,
        runs=str(tmp_path / "runs"),
        report=str(tmp_path / "report"),
    )
    snapshot = simgen.open_dataset(asked.url).snapshot_id
    run = RunDirectory(tmp_path / "runs") / get_recipe("cylinder-flow-demo").run_id(snapshot)
    run.write_json("experiment.json", {"data": {"step_s": 1.0}})
    record = {"url": asked.url, "relative": None, "version": "v1", "snapshot_id": snapshot}
    record |= {"family": "lake", "settings": {}, "family_revision": 1, "quantities": []}
    run.write_json("dataset.json", record | {"parameters": [*map(asdict, SCHEMA.parameters)]})
    run.write_bytes(WEIGHTS, b"weights")
    write_status(run, "finished", best_epoch=1)
    measure(run, tmp_path / "report")
    return job


def measure(run: RunDirectory, folder: Path) -> None:
    """Leave an evaluation of the run's weights, and a report of one figure."""
    score = {"nmae": 0.1, "relative_l2": 0.5, "rae": 0.8, "maximum": 0.9}
    scores = dict.fromkeys(("model", "persistence"), score)
    steps = {name: {"all": [0.1], "velocity.x": [0.1]} for name in scores}
    timing = {"prediction_processor_s": 1.0, "prediction_device": "CPU", "prediction_threads": 1}
    record = {
        "run": run.url,
        "fingerprint": fingerprint(run, "test"),
        "date": "2025-01-01",
        "split": "test",
        "task": "transient",
        "dataset": {"url": "lake", "version": "v1", "family": "lake"},
        "components": ["velocity.x"],
        "step_s": 1.0,
        "num_windows": 1,
        "cases": {"a": {"windows": 1, "overall": scores, "nmae": steps}},
        "overall": scores,
        "by_component": {name: {"velocity.x": score} for name in scores},
        "nmae": steps,
        "relative_l2": steps,
        "timing": {**timing, "solver_host": "unknown"},
    }
    run.write_json(EVALUATION, record)
    evaluation = read_evaluation(run, "test")
    assert evaluation is not None
    report = RunDirectory(folder)
    report.write_bytes(PAGE, b"drawn")
    report.write_json(INPUTS, inputs_of(run, evaluation))


def test_designs_can_be_given_by_their_parameters(asked: Generation) -> None:
    first = asked.points[0]
    given = replace(asked, design_parameters=[dict(first.parameters)])
    assert given.points == [first] and given.done() == asked.done()
    assert replace(given, design_parameters=[{**first.parameters, "radius": 3.21}]).done() is None
    with pytest.raises(InputError, match="both name the designs"):
        _ = replace(given, designs="designs.csv").points


def test_the_test_designs_of_a_dataset_are_solved_with_its_settings_and_those_given(
    asked: Generation, writer: DatasetWriter
) -> None:
    record(writer, replace(make_result(2), split="test"), make_cloud(2))
    writer.publish()
    dataset = simgen.open_dataset(writer.url)
    points = replace(asked, designs=writer.url, settings={"mesh_size": 2.0}).points
    assert [point.id for point in points] and len(points) == len(dataset.cases("test"))
    for point, case in zip(points, map(dataset.__getitem__, dataset.cases("test")), strict=True):
        assert point.parameters == case.parameters
        assert point.settings == {**point.settings, **case.settings, "mesh_size": 2.0}
    with pytest.raises(InputError, match="holds cylinder-flow, not branched-pipe"):
        _ = Generation("branched-pipe", designs=writer.url).points


def test_a_published_design_is_finished_and_a_larger_one_is_not(asked):
    assert asked.done() == PublishedVersion(asked.url, "v1")
    assert replace(asked, cases=3).done() is None
    assert replace(asked, settings={"end_time": 7.0}).done() is None
    assert replace(asked, store=f"{asked.store}/elsewhere").done() is None
    assert not Path(f"{asked.store}/elsewhere").exists(), "looking writes nothing"


def test_recorded_cases_that_are_not_published_yet_are_left_to_do(asked, writer):
    add(writer, 2)
    assert replace(asked, cases=3).done() is None
    assert asked.done() is None, "publishing is left to do, whoever recorded the case"


def test_a_failed_case_is_finished_unless_it_is_to_be_solved_again(asked, writer):
    record(writer, make_result(2, "failed", "no reason"))
    writer.publish()
    three = replace(asked, cases=3)
    assert three.done() == PublishedVersion(asked.url, "v2")
    assert replace(three, retry_failed=True).done() is None
    assert replace(asked, retry_failed=True).done() == PublishedVersion(asked.url, "v2")
    training = simgen.open_dataset(asked.url).cases("train")
    other = next(case for case in writer.design() if case not in training or len(training) > 1)
    writer.withdraw([other], "a wrong mesh")
    assert asked.done() is None


@pytest.mark.parametrize("state", ["running", "stopped", "failed"])
def test_a_run_that_did_not_come_to_its_end_is_not_finished(job, asked, state):
    training = Training(asked.url, runs=job.runs, recipe="cylinder-flow-demo")
    assert training.done() is not None
    assert replace(training, recipe="cylinder-flow-small").done() is None
    write_status(run_of(job), state, best_epoch=1)
    assert training.done() is None
    assert job.done() is None


def test_a_report_is_finished_only_of_the_present_weights_and_split(job):
    run, folder = run_of(job), Path(job.report or "")
    asked = Measurement(run.url, str(folder))
    found = asked.done()
    assert found is not None and found.url == f"{folder}/{PAGE}"
    assert "On 1 test case, which proves little, the mean error is 10.0%" in found.verdict
    assert Measurement(run.url).folder == str(folder), "where `courant run --out` left it"
    assert Measurement(run.url, split="train").folder == f"{folder}-train"
    assert found.line().endswith(f"to do it again, remove {run.url}/evaluation.json")
    assert replace(asked, split="train").done() is None
    # One of other cases lies beside it, and a run is judged by neither of them.
    other = {
        **run.read_object(EVALUATION),
        "split": "train",
        "fingerprint": fingerprint(run, "train"),
    }
    run.write_json(record_of("train"), other)
    assert read_evaluation(run, "train") is not None and asked.done() == found
    train = replace(asked, split="train").done()
    assert train is None, "its report is not drawn"
    assert replace(asked, report=f"{folder}-2").done() is None
    (folder / PAGE).unlink()
    assert asked.done() is None
    measure(run, folder)
    assert asked.done() is not None
    run.write_bytes(WEIGHTS, b"weights of a second training")
    assert asked.done() is None


def test_the_main_job_is_finished_where_each_of_its_stages_is(job, capsys):
    done = job.done()
    assert job.execute() == done and "cylinder-flow v1: 2 cases" in capsys.readouterr().err
    assert isinstance(done, Outcome) and done.report and done.dataset
    assert (done.dataset.version, done.run) == ("v1", run_of(job).url)
    assert replace(job, until="run").done() == replace(done, report=None)
    assert replace(job, until="dataset").done() == Outcome(done.dataset, None, None)
    assert replace(job, run=done.run).done() == replace(done, dataset=None)
    assert replace(job, dataset=done.dataset.dataset).done() == done
    assert replace(job, sweep="anchors").done() is None
    assert replace(job, cases=3).done() is None
    assert replace(job, recipe="cylinder-flow-small").done() is None
    assert replace(job, report=f"{job.report}-2").done() is None


def test_finished_commands_start_no_server_and_import_neither_prefect_nor_ray(job, asked):
    settings = ["--cases", "2", "--set", f"end_time={NUM_SNAPSHOTS}"]
    run = run_of(job).url
    commands = [
        ["run", "cylinder-flow", *settings, "--out", str(Path(asked.store).parent)],
        ["run", "--run", run, "--out", str(Path(asked.store).parent)],
        ["generate", "cylinder-flow", *settings, "--store", asked.store],
        ["train", asked.url, "--recipe", "cylinder-flow-demo", "--runs", str(job.runs)],
        ["evaluate", run, "--out", str(job.report)],
    ]
    code = f"""
import sys
from typer.testing import CliRunner
from flows.cli.app import app
for command in {commands!r}:
    done = CliRunner(env={{"COLUMNS": "250"}}).invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "--cases" not in command or "cylinder-flow v1: 2 cases" in done.stderr
    print(done.stdout, end="")
for command in (["serve", "/nowhere/run"], ["recipes"], ["runs", "ls", {str(job.runs)!r}]):
    CliRunner().invoke(app, command)
print(sorted({{"prefect", "ray", "torch", "pandas", "matplotlib"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    *lines, imported = done.stdout.splitlines()
    report = [f"run     {run}", f"report  {job.report}/{PAGE}"]
    verdict = lines[2 : next(n for n, line in enumerate(lines) if line.startswith("predict  "))]
    assert verdict[1].startswith("On 1 test case, which proves little, the mean error is 10.0%")
    middle = ",".join(f"{each.name}={(each.low + each.high) / 2:g}" for each in SCHEMA.parameters)
    predict = f"predict  courant predict {run} --design {middle} --out design.pvd"
    told = [*report, *verdict, predict, f"explore  courant explore {run}"]
    assert lines == [*told, *told, f"dataset  {asked.url}  v1", f"run  {run}", *told]
    assert imported == "[]"


def test_a_family_without_a_trial_preset_has_its_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plate = HeatedPlate()
    monkeypatch.setitem(FAMILIES, plate.name, plate)
    asked = Generation(plate.name, cases=2, store=str(tmp_path))
    assert [point.settings for point in asked.points] == [plate.settings("quick")] * 2
    assert asked.remake["preset"] == "quick"
    assert Generation("cylinder-flow", cases=1).remake["preset"] == "trial"


def test_a_family_without_a_recipe_has_one_that_is_fitted_to_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a family of one's own: it is generated, trained and reported by one command too."""
    mine = DatasetWriter.open(str(tmp_path / "my-flow"), replace(SCHEMA, family="my-flow"))
    add(mine, 0, 1, 2)
    mine.publish()
    fitted = stages.open_training(Training(mine.url))[0]
    assert fitted.name == "my-flow-fitted" and fitted.training.budget_s == 180
    changed = {"training.epochs": 5, "model.num_anchors": 3}
    five = stages.open_training(Training(mine.url, settings=changed))[0]
    assert (five.training.epochs, five.training.budget_s) == (5, None)
    assert five.model.num_anchors == 3
    long = stages.open_training(Training(mine.url), "1h")[0].training
    assert (long.epochs, long.budget_s) == (fitted.training.epochs, 3600)
    with pytest.raises(InputError, match=r"SECTION\.NAME"):
        stages.open_training(Training(mine.url, settings={"epochs": 5}))
    resolved = MainJob("my-flow", dataset=mine.url).resolved
    assert (resolved.recipe, resolved.version) == (None, "v1")
    plate = HeatedPlate()
    monkeypatch.setitem(FAMILIES, plate.name, plate)
    assert MainJob(plate.name, cases=2, store=str(tmp_path)).resolved.recipe is None
    pipe = MainJob("branched-pipe", cases=2, settings={"mesh_size": 7, "training.epochs": 5})
    assert pipe.resolved.recipe == "branched-pipe-all-fields-demo"
    assert pipe.generation.settings == {"mesh_size": 7.0}
    with pytest.raises(InputError, match=r"training: .* no field epocs; did you mean epochs"):
        _ = replace(pipe, settings={"training.epocs": 5}).resolved
