"""Runs and dataset versions (schema 2) that an older release wrote open, predict and resume as they
did then.

The archives hold a small dataset, a finished run, the same run cut off after epoch 2 of 4, and what
the older release made of them. On the processor that they were made on the results are the same to
the bit; other processors round products of matrices differently.
"""

import hashlib
import json
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import courant
import simgen
from courant.evaluation.evaluate import evaluate
from courant.experiment import parse_experiment
from courant.recipes import RECIPES, get_recipe
from courant.runs.directory import RunDirectory
from courant.runs.record import read_records
from courant.training.loop import Task, fit

DATA = Path(__file__).parent / "data"
EXPECTED: dict[str, Any] = json.loads((DATA / "expected.json").read_text())


def processor() -> str:
    """What decides how products of matrices are rounded."""
    lines = (
        Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else []
    )
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor()
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}"


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As the archives were made: several threads add up in another order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


SAME = processor() == EXPECTED["processor"]


def assert_as_before(values: np.ndarray, before: np.ndarray) -> None:
    if SAME:
        np.testing.assert_array_equal(values, before)
    else:
        np.testing.assert_allclose(values, before, rtol=2e-3, atol=2e-4)


@pytest.fixture(params=["transient", "steady"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """An unpacked archive, its runs told where their dataset lies now."""
    shutil.unpack_archive(DATA / f"{request.param}.tar.gz", tmp_path)
    folder = tmp_path / request.param
    for run in ("whole", "half"):
        described = json.loads((folder / run / "dataset.json").read_text())
        described["url"] = str(folder / described["url"])
        (folder / run / "dataset.json").write_text(json.dumps(described))
    return folder


def opened(archive: Path) -> simgen.Dataset:
    return simgen.open_dataset(next((archive / "store").iterdir()))


#: Settings changed on purpose since, as that release had them: the runs became others.
BEFORE_MUON: dict[str, Any] = {"training": {"optimiser": "adamw"}}
CHANGED: dict[str, dict[str, Any]] = {
    "cylinder-flow-small": BEFORE_MUON,
    "cylinder-flow-demo": BEFORE_MUON,
    "branched-pipe-small": {**BEFORE_MUON, "data": {"scaled_by": {}}},
    "branched-pipe-demo": {**BEFORE_MUON, "data": {"scaled_by": {}}},
    "centrifugal-pump-small": {**BEFORE_MUON, "data": {"scaled_by": {}}},
    "centrifugal-pump-demo": {**BEFORE_MUON, "data": {"scaled_by": {}}},
}


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_keep_the_ids_of_their_runs(name: str) -> None:
    if name in EXPECTED["run_ids"]:
        recipe = get_recipe(name).derive(**CHANGED.get(name, {}))
        assert recipe.run_id("SNAPSHOT") == EXPECTED["run_ids"][name]


@pytest.mark.parametrize("name", CHANGED)
def test_changed_recipes_make_runs_of_their_own(name: str) -> None:
    assert get_recipe(name).run_id("SNAPSHOT") != EXPECTED["run_ids"][name]


def test_an_experiment_is_read_back_with_the_same_id(archive: Path) -> None:
    experiment = parse_experiment((archive / "whole" / "experiment.json").read_text())
    assert experiment.run_id("SNAPSHOT") == EXPECTED[archive.name]["run_id"]
    assert parse_experiment(experiment.model_dump_json()) == experiment


def test_predictions_and_contributions_are_as_before(archive: Path) -> None:
    before, case = (
        np.load(archive / "expected.npz"),
        opened(archive)[EXPECTED[archive.name]["case"]],
    )
    surrogate = courant.load(archive / "whole", device="cpu")
    assert_as_before(surrogate.predict_case(case), before["prediction"])
    parts = surrogate.decompose_case(case)
    assert_as_before(parts.offset, before["offset"])
    assert_as_before(parts.contributions, before["contributions"])


def test_batches_are_as_before(archive: Path) -> None:
    before = np.load(archive / "expected.npz")
    experiment = parse_experiment((archive / "whole" / "experiment.json").read_text())
    task = Task.load(experiment, opened(archive), torch.device("cpu"))
    names = [name.removeprefix("batch_") for name in before.files if name.startswith("batch_")]
    batches = [batch for _, batch in task.train.epoch(1)]
    for name in names:
        assert_as_before(getattr(batches[0], name).numpy(), before[f"batch_{name}"])
    digest = hashlib.sha256()
    for batch in batches:
        for name in sorted(names):
            digest.update(getattr(batch, name).numpy().tobytes())
    if SAME:
        assert digest.hexdigest() == EXPECTED[archive.name]["batches_sha256"]


def test_a_run_that_was_cut_off_resumes_to_the_weights_that_it_would_have_had(
    archive: Path,
) -> None:
    half, whole = RunDirectory(archive / "half"), RunDirectory(archive / "whole")
    experiment = parse_experiment((archive / "half" / "experiment.json").read_text())
    fit(experiment, opened(archive), half)
    losses = [record.train_loss for record in read_records(half)]
    assert_as_before(np.array(losses), np.array(EXPECTED[archive.name]["losses"]))
    if SAME:
        assert half.read_bytes("model.safetensors") == whole.read_bytes("model.safetensors")


def test_an_evaluation_of_an_older_release_is_measured_again(archive: Path) -> None:
    evaluation = evaluate(str(archive / "whole"))
    before = EXPECTED[archive.name]["overall"]
    # Newer releases compare with more references, by more measures.
    assert set(before) <= set(evaluation.overall)
    if archive.name == "steady":
        for name in before:
            score = evaluation.overall[name].model_dump(include=set(before[name]))
            assert score == pytest.approx(before[name], rel=1e-3)
