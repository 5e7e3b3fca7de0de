"""A model of the user's own goes everywhere that Courant goes, by one file and a registry line."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import ray

import courant
import simgen
from courant.evaluation.evaluate import evaluate
from courant.experiment import Experiment, parse_experiment
from courant.report.report import write_report
from courant.runs.directory import RunDirectory
from courant.serving.predictions import Limits, answer
from courant.sweeps.ray_trials import run_sweep
from courant.sweeps.search_space import parse_space
from courant.sweeps.sweep import plan_sweep
from courant.training.train import fit
from simgen.errors import InputError
from simgen.store.read import Dataset
from tests.seam.point_mlp import PointMlpConfig
from tests.world import tiny_experiment, tiny_steady


def point_mlp_experiment(task: str) -> Experiment:
    like = tiny_experiment() if task == "transient" else tiny_steady()
    names = "num_features num_outputs num_query_features num_parameters transient"
    sizes = {name: getattr(like.model, name) for name in names.split()}
    return like.model_copy(update={"name": "second", "model": PointMlpConfig(**sizes)})


@pytest.fixture(scope="module", params=["transient", "steady"])
def task(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def dataset(task: str, waves: Dataset, ducts: Dataset) -> Dataset:
    return waves if task == "transient" else ducts


@pytest.fixture(scope="module")
def run(task: str, dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    run = RunDirectory(tmp_path_factory.mktemp("runs")) / "second"
    fit(point_mlp_experiment(task), dataset, run)
    return run


def test_its_experiment_names_its_kind_and_is_read_back(run: RunDirectory, task: str) -> None:
    text = run.read_bytes("experiment.json").decode()
    assert '"kind": "point-mlp"' in text
    assert parse_experiment(text) == point_mlp_experiment(task)


def test_it_is_evaluated_and_reported_without_a_decomposition(
    run: RunDirectory, tmp_path: Path
) -> None:
    evaluation = evaluate(run.url)
    assert 0 < evaluation.overall["model"].nmae < 2
    page = Path(write_report(run.url, str(tmp_path / "report"))).read_text()
    assert f"{evaluation.overall['model'].nmae:.3f}" in page
    assert not (tmp_path / "report" / "decomposition.png").exists()
    surrogate = courant.load(run.url)
    assert not surrogate.decomposes
    with pytest.raises(
        InputError, match="a model of kind point-mlp does not decompose its predictions"
    ):
        surrogate.decompose_case(simgen.open_dataset(surrogate.dataset["url"])[0])


def test_it_predicts_and_answers_requests(run: RunDirectory, task: str, dataset: Dataset) -> None:
    surrogate, case = courant.load(run.url), dataset[dataset.cases("test")[0]]
    distance = {
        "distance": np.asarray(case.distance).tolist(),
        "direction": np.asarray(case.direction).tolist(),
    }
    request = {"points": case.points.tolist(), "distance": distance, "parameters": case.parameters}
    if task == "transient":
        given = {**request, "initial": case["velocity"][0].tolist()}
    else:
        boundary = {"points": case.boundary.points.tolist(), "patch": case.boundary.patch.tolist()}
        given = {
            **request,
            "boundary": {**boundary, "velocity": case.boundary["velocity"][:].tolist()},
        }
    status, content = answer(json.dumps(given).encode(), surrogate, Limits())
    assert status == 200
    np.testing.assert_allclose(
        json.loads(content)["values"], surrogate.predict_case(case), atol=1e-4
    )


@pytest.mark.end_to_end
def test_it_is_swept(
    task: str, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In processes of their own, which learn of the model from their environment."""
    if task == "steady":
        pytest.skip("the sweep is the same for every kind of problem")
    monkeypatch.setenv("COURANT_MODELS", "tests.seam.point_mlp")
    monkeypatch.setenv(
        "PYTHONPATH",
        os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]),
    )
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        space = parse_space("widths", "design: grid\nparameters: {model.width: [8, 16]}")
        experiment = point_mlp_experiment(task).derive(training={"epochs": 2})
        results = run_sweep(
            plan_sweep(experiment, dataset, space, 2, str(tmp_path)), early_stopping=False
        )
    finally:
        ray.shutdown()
    assert [result.state for result in results] == ["finished", "finished"]


def test_a_kind_that_nobody_registered_is_named() -> None:
    content = point_mlp_experiment("transient").model_dump(mode="json")
    content["model"]["kind"] = "nobody"
    with pytest.raises(
        InputError, match=r"model kind 'nobody' is unknown; choose one of courant.*COURANT_MODELS"
    ):
        parse_experiment(content)
