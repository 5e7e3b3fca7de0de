"""Sweeps and benchmarks on Ray: worse settings are stopped, and what is killed goes on."""

import contextlib
import csv
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
import ray

import courant
from courant.evaluation.record import read_evaluation
from courant.experiment import parse_experiment
from courant.runs.checkpoint import checkpoint_epochs
from courant.runs.directory import RunDirectory
from courant.runs.record import is_finished, read_records
from courant.sweeps.benchmark import Phase, final_trials
from courant.sweeps.ray_trials import run_benchmark, run_sweep
from courant.sweeps.search_space import parse_space
from courant.sweeps.sweep import BEST, Sweep, TrialResult, best_trial, plan_sweep
from courant.training.train import TrainingError, fit
from simgen.errors import InputError
from simgen.store.read import Dataset
from tests.sweeps.in_process import planned
from tests.world import tiny_experiment, tiny_steady

pytestmark = pytest.mark.end_to_end

RATES = "design: grid\nparameters: {training.learning_rate: [1e-6, 3e-3]}"


@pytest.fixture(scope="module", autouse=True)
def ray_on_two_cores() -> object:
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def sweep_of(
    dataset: Dataset, runs: Path, text: str = RATES, num: int | None = None, **training: int
) -> Sweep:
    return plan_sweep(
        tiny_experiment(**training), dataset, parse_space("rates", text), num, str(runs)
    )


def test_the_good_setting_is_found_the_others_are_stopped_and_can_be_trained_to_their_end_later(
    waves: Dataset, tmp_path: Path
) -> None:
    text = "design: isolated\nparameters: {training.learning_rate: [1.0e-7, 1.0e-6, 1.0e-5]}"
    (baseline,) = run_sweep(sweep_of(waves, tmp_path, text, num=1, epochs=9))
    assert baseline.state == "finished"
    # Asked for more trials, the sweep goes on, and its new scheduler knows how the baseline did.
    sweep = sweep_of(waves, tmp_path, text, num=4, epochs=9)
    seen: list[TrialResult] = []
    display = threading.Lock()  # as live displays hold one, and locks cannot be pickled

    def on_trial(result: TrialResult) -> None:
        with display:
            seen.append(result)

    results = run_sweep(sweep, on_trial=on_trial)
    assert {(result.number, result.state) for result in seen} == {
        (1, "finished"),
        *((number, state) for number in (2, 3, 4) for state in ("waiting", "running", "stopped")),
    }
    assert [result.state for result in results] == ["finished"] + 3 * ["stopped"]
    # Which rung stops a trial depends on those that reported before it.
    assert results[0].epochs == 9 > max(result.epochs for result in results[1:])
    assert best_trial(results) == results[0] == baseline
    assert courant.load(results[1].run).experiment.training.learning_rate in (1e-7, 1e-6, 1e-5)
    rows = list(csv.DictReader(sweep.folder.read_bytes("trials.csv").decode().splitlines()))
    assert [float(row["nmae"]) for row in rows] == [result.nmae for result in results]
    again = RunDirectory(tmp_path / "again")
    fit(parse_experiment(sweep.folder.read_bytes(BEST).decode()), waves, again)
    assert [record.validation_nmae for record in read_records(again)] == pytest.approx(
        [record.validation_nmae for record in read_records(RunDirectory(baseline.run))], rel=1e-4
    )
    assert list(Path(sweep.folder.url).glob("ray/*/events.out.tfevents.*"))
    to_the_end = run_sweep(sweep, early_stopping=False)
    assert [(result.state, result.epochs) for result in to_the_end] == [("finished", 9)] * 4
    assert to_the_end[0] == baseline, "not trained again"
    assert len(read_records(RunDirectory(results[1].run))) == 9
    # Which epochs fit a time differs: none is stopped.
    timed = run_sweep(sweep_of(waves, tmp_path, text, num=4, epochs=9, budget_s=2))
    assert [result.state for result in timed] == 4 * ["finished"]


def test_a_finished_training_of_the_same_experiment_is_the_trial(
    waves: Dataset, tmp_path: Path
) -> None:
    experiment = tiny_experiment(epochs=2)
    own = RunDirectory(tmp_path) / experiment.run_id(waves.snapshot_id)
    fit(experiment, waves, own)
    text = "design: isolated\nparameters: {training.learning_rate: [1.0e-6]}"
    (result,) = run_sweep(sweep_of(waves, tmp_path, text, num=1, epochs=2))
    assert read_records(RunDirectory(result.run)) == read_records(own)
    assert courant.load(result.run).experiment.name.endswith("trial-01")


def test_a_setting_that_diverges_is_in_the_table_and_the_others_go_on(
    ducts: Dataset, tmp_path: Path
) -> None:
    text = "design: grid\nparameters: {training.learning_rate: [3e-3, 1e30], data.encoder: [mesh]}"
    space = parse_space("rates", text)
    sweep = plan_sweep(tiny_steady(epochs=4), ducts, space, None, str(tmp_path))
    results = run_sweep(sweep)
    assert sorted(result.state for result in results) == ["failed", "finished"]
    (failed,) = (result for result in results if result.state == "failed")
    assert "training diverged" in failed.reason
    assert best_trial(results).setting["training.learning_rate"] == 3e-3


DRIVER = """
import sys
import ray, simgen
from pathlib import Path
from courant.sweeps.ray_trials import run_sweep
from tests.sweeps.test_ray_trials import sweep_of
ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
run_sweep(sweep_of(simgen.open_dataset(sys.argv[1]), Path(sys.argv[2]), num=3, epochs=30))
"""


def test_a_killed_sweep_goes_on_and_repeats_no_finished_trial(
    waves: Dataset, tmp_path: Path
) -> None:
    sweep = sweep_of(waves, tmp_path, num=3, epochs=30)
    first, second = sweep.trials[0].run, sweep.trials[1].run
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, waves.url, str(tmp_path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while not (is_finished(first) and checkpoint_epochs(second)):
        assert driver.poll() is None, "the sweep should be at its second trial"
        time.sleep(0.02)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    trainer = second.read_json("environment.json")["process"]
    with contextlib.suppress(psutil.NoSuchProcess):  # it ends with its driver, a moment later
        psutil.Process(trainer).wait(600)
    assert not is_finished(second)
    kept = max(checkpoint_epochs(second))
    before = read_records(first), read_records(second)[:kept]
    results = run_sweep(sweep)
    assert all(result.state in ("finished", "stopped") for result in results)
    assert read_records(first) == before[0]
    after = read_records(second)
    assert after[:kept] == before[1], "it went on from its checkpoint"
    assert [record.epoch for record in after] == list(range(1, len(after) + 1))


def test_benchmarks_are_trained_and_evaluated_in_processes_of_their_own(
    ducts: Dataset, tmp_path: Path
) -> None:
    benchmark = planned(
        ducts, tiny_steady(), tmp_path, ["courant"], "1epoch", rates=(3e-3,), seeds=2
    )
    phases: list[Phase] = []
    trials = run_benchmark(benchmark, on_phase=phases.append)
    begun = [(phase.name, len(phase.trials)) for phase in phases]
    assert begun == [("first seed", 1), ("further seeds", 1)]
    assert [trial.run.url for trial in final_trials(benchmark)] == [t.run.url for t in trials]
    assert read_evaluation(trials[0].run, "test") is not None
    (record,) = read_records(trials[0].run)
    assert record.processor_s > 0
    assert 0.1 < record.peak_memory_gb < 4, "of a process of its own"
    trials[0].run.write_json("evaluation.json", {})
    run_benchmark(benchmark, on_phase=phases.append)
    assert [phase.name for phase in phases[2:]] == ["first seed"]
    assert read_records(trials[0].run) == [record]
    trials[0].run.write_json("evaluation.json", {})
    moved = benchmark.model_copy(update={"dataset_url": str(tmp_path / "nowhere")})
    with pytest.raises(TrainingError, match=r"trials 1 did not end \(.*nowhere"):
        run_benchmark(moved)


def test_processes_of_trials_load_torch_only_after_their_threads_are_set() -> None:
    code = "import sys, courant.sweeps.ray_trials; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_bad_requests_are_errors_before_any_trial(waves: Dataset, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="num_anchors 0 is impossible"):
        sweep_of(waves, tmp_path, "design: grid\nparameters: {model.num_anchors: [0]}")
    drawn = "design: random\nparameters: {training.learning_rate: {min: 0.1, max: 1.0}}"
    with pytest.raises(InputError, match="--trials 12"):
        sweep_of(waves, tmp_path, drawn)
    with pytest.raises(InputError, match=r"64 CPUs and 0 GPUs .* have 2 CPUs and 0 GPUs"):
        run_sweep(sweep_of(waves, tmp_path), cpus_per_trial=64)
    with pytest.raises(InputError, match=r"asks for 1 CPUs and 0\.5 GPUs"):
        run_sweep(sweep_of(waves, tmp_path), gpus_per_trial=0.5)
    assert not list(tmp_path.glob("*/trials/*"))
