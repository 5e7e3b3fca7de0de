"""A benchmark on Ray, and that it finds its finished trials again."""

from dataclasses import replace

import pytest
import ray

from courant.benchmark.assess import read_assessment
from courant.benchmark.phases import trials_on_record
from courant.benchmark.ray_runner import RayRunner, run_benchmark
from courant.runs.record import read_records
from courant.sweeps.ray_trials import Share
from simgen.errors import InputError
from simgen.store.read import Dataset
from tests.benchmark.test_benchmark import asked
from tests.training.ducts import tiny_steady

pytestmark = pytest.mark.end_to_end


@pytest.fixture(autouse=True)
def ray_on_two_cores() -> object:
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def test_trials_are_trained_on_ray_and_assessed_and_none_is_repeated(
    ducts: Dataset, tmp_path, monkeypatch
) -> None:
    request = asked(ducts, tiny_steady(), tmp_path, ["courant"], "1epoch", rates=(3e-3,))
    assert trials_on_record(request) is None
    phases: list[tuple[str, int]] = []
    cancelled: list[object] = []
    monkeypatch.setattr(ray, "cancel", lambda task, **options: cancelled.append(task))
    (trial,) = run_benchmark(request, on_phase=lambda *phase: phases.append(phase))
    assert phases == [("first seed", 1), ("test errors", 1)]
    assert cancelled == [], "Ray ends the driver that cancels a task as it completes"
    assert read_assessment(trial.run)["prediction_processor_s"]["1000"] > 0
    (record,) = read_records(trial.run)
    assert record.processor_s > 0
    # A process of its own: not this one's peak, and a plausible one.
    assert 0.1 < record.peak_memory_gb < 4
    phases.clear()
    run_benchmark(request, on_phase=lambda *phase: phases.append(phase))
    assert phases == []
    (found,) = trials_on_record(request)
    assert found.run.url == trial.run.url


def test_models_that_cannot_be_assessed_are_told_after_all_others_and_none_is_cancelled(
    ducts: Dataset, tmp_path, monkeypatch
) -> None:
    request = asked(ducts, tiny_steady(), tmp_path, ["courant"], "1epoch", rates=(3e-3,), seeds=2)
    trials = run_benchmark(request)
    for trial in trials:
        trial.run.write_json("assessment.json", {})
    cancelled: list[object] = []
    monkeypatch.setattr(ray, "cancel", lambda task, **options: cancelled.append(task))
    elsewhere = replace(request, dataset_url=str(tmp_path / "nowhere"))
    share = Share.of(request.base, None, None)
    with pytest.raises(InputError, match="nowhere"):
        RayRunner(elsewhere, share, None).assess(trials)
    assert cancelled == []
