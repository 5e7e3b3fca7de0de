"""The loop: it learns, it goes on exactly where it stopped, and it stops before a bad number
reaches the weights.
"""

import math
import resource
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import courant
import simgen
from courant.evaluation.evaluate import evaluate
from courant.evaluation.record import read_evaluation
from courant.experiment import Experiment
from courant.runs.checkpoint import Checkpoint, checkpoint_epochs, read_latest_checkpoint
from courant.runs.directory import RunDirectory
from courant.runs.record import read_records, run_state
from courant.training.train import Fitting, TrainingError, fit, set_up_run
from flows.stages import Measurement
from simgen.errors import InputError, StoreError
from simgen.store.read import Dataset
from tests.training.conftest import KilledError, kill_at
from tests.world import publish_waves, tiny_experiment, tiny_steady


@pytest.mark.parametrize("make", [tiny_experiment, tiny_steady])
def test_training_lowers_the_loss_and_leaves_a_complete_run(
    dataset: Dataset, ducts: Dataset, tmp_path: Path, make: Callable[..., Experiment]
) -> None:
    run, seen = RunDirectory(tmp_path), []
    data = dataset if make is tiny_experiment else ducts
    fit(make(epochs=10), data, run, on_epoch=seen.append)
    records = read_records(run)
    assert [record.epoch for record in records] == list(range(1, 11))
    assert records == seen
    assert records[-1].train_loss < 0.7 * records[0].train_loss
    nmae = [record.validation_nmae for record in records]
    assert 0 < min(nmae) < nmae[0]
    assert records[-1].eta_s == 0
    records_of_it = ("dataset", "environment", "experiment", "normaliser", "status")
    names = {"checkpoints", "metrics.jsonl", "model.safetensors"}
    names |= {f"{name}.json" for name in records_of_it}
    assert {name for name in run.names() if not name.startswith("events.out")} == names
    status, losses = run.read_json("status.json"), [each.validation_loss for each in records]
    assert status["state"] == "finished"
    assert status["best_loss"] == min(losses) == losses[status["best_epoch"] - 1]
    assert set(status["seconds"]) == {"load", "train", "validation", "checkpoint"}
    assert run.read_json("dataset.json")["snapshot_id"] == data.snapshot_id
    for record in records:
        assert 0 <= record.data_wait_share < 1 and 0 < record.processor_s < 60
        num_samples = make().training.samples_per_epoch
        assert record.samples_per_s * record.seconds == pytest.approx(num_samples)
        assert record.skipped_batches == 0 and (record.flops_per_s or 0.0) > 1e6
    now = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    assert 0.7 * now < (records[-1].peak_memory_gb or 0.0) <= now


STEPPED = {"schedule": "step", "step_epochs": 2}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"accumulate": 2},
    {"accumulate": 2, "loss": "relative-l2", **STEPPED},
    {"schedule": "cosine", "nonfinite": "skip", "optimiser": "muon"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options))
@pytest.mark.parametrize("kind", ["steady", "transient"])
def test_a_run_that_was_killed_and_started_again_ends_with_the_same_weights_to_the_last_bit(
    ducts: Dataset, dataset: Dataset, tmp_path: Path, kind: str, options: dict[str, Any]
) -> None:
    experiment = tiny_steady(**options) if kind == "steady" else tiny_experiment(**options)
    data = ducts if kind == "steady" else dataset
    straight, killed = RunDirectory(tmp_path / "straight"), RunDirectory(tmp_path / "killed")
    fit(experiment, data, straight)
    with pytest.raises(KilledError):
        fit(experiment, data, killed, on_epoch=kill_at(3))
    assert checkpoint_epochs(killed) == [2], "epoch 3 was trained and recorded, but not kept"
    assert len(read_records(killed)) == 3
    fit(experiment, data, killed)
    assert killed.read_bytes("model.safetensors") == straight.read_bytes("model.safetensors")
    one, other = (read_latest_checkpoint(run) for run in (straight, killed))
    assert one is not None and other is not None
    assert all(torch.equal(value, other.model[name]) for name, value in one.model.items())
    curves = [
        [(r.epoch, r.train_loss, r.validation_loss, r.learning_rate) for r in read_records(run)]
        for run in (straight, killed)
    ]
    assert curves[0] == curves[1]


def test_whoever_uses_a_run_that_was_cut_off_is_warned(
    dataset: Dataset, tiny: Experiment, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path)
    with pytest.raises(KilledError):
        fit(tiny, dataset, run, on_epoch=kill_at(1))
    for asked in (Measurement(run.url).done, lambda: courant.load(run.url)):
        with pytest.raises(InputError, match="it has not come to its first validation yet"):
            asked()
    with pytest.raises(KilledError):
        fit(tiny, dataset, run, on_epoch=kill_at(3))
    assert run_state(run) == "interrupted"
    with pytest.warns(UserWarning, match="is interrupted after epoch 3 of 4"):
        courant.load(run.url)
    with pytest.warns(UserWarning, match="is interrupted after epoch 3 of 4"):
        evaluation = evaluate(run.url)
    assert evaluation.cases and read_evaluation(run) == evaluation
    fit(tiny, dataset, run)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        courant.load(run.url)


def test_a_kill_between_the_last_checkpoint_and_its_weights_costs_nothing(
    dataset: Dataset, tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight, killed = RunDirectory(tmp_path / "straight"), RunDirectory(tmp_path / "killed")
    fit(tiny, dataset, straight)
    write = Checkpoint.write_best

    def die(state: Checkpoint, run: RunDirectory) -> None:
        if state.epoch == 4:
            raise KilledError
        write(state, run)

    monkeypatch.setattr(Checkpoint, "write_best", die)
    with pytest.raises(KilledError):
        fit(tiny, dataset, killed)
    monkeypatch.setattr(Checkpoint, "write_best", write)
    assert checkpoint_epochs(killed)[-1] == 4
    fit(tiny, dataset, killed)
    assert killed.read_json("status.json")["state"] == "finished"
    assert killed.read_bytes("model.safetensors") == straight.read_bytes("model.safetensors")


def test_untrained_weights_are_never_those_of_a_run(
    dataset: Dataset, tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first validation nothing shows which weights are the best."""
    rare = tiny.derive(training={"validate_every": 4, "checkpoint_every": 1})
    run = RunDirectory(tmp_path / "run")
    with pytest.raises(KilledError):
        fit(rare, dataset, run, on_epoch=kill_at(3))
    with pytest.raises(InputError, match="it has not come to its first validation yet; train it"):
        courant.load(run.url)
    monkeypatch.setattr(Fitting, "validate", lambda *_: (math.nan, math.nan))
    with pytest.raises(TrainingError, match="no validation loss was a finite number"):
        fit(rare, dataset, run)
    assert run.read_json("status.json")["state"] == "failed"


def test_a_finished_run_keeps_its_last_checkpoints_and_is_left_as_it_is(
    dataset: Dataset, tiny: Experiment, tmp_path: Path
) -> None:
    run, often = RunDirectory(tmp_path), {"checkpoint_every": 1, "keep_checkpoints": 2}
    fit(tiny.derive(training=often), dataset, run)
    assert checkpoint_epochs(run) == [3, 4]
    before = run.read_bytes("model.safetensors"), run.read_bytes("metrics.jsonl")
    fit(tiny.derive(training=often), dataset, run, on_epoch=kill_at(4))
    assert (run.read_bytes("model.safetensors"), run.read_bytes("metrics.jsonl")) == before


def test_a_loss_that_is_not_finite_stops_with_the_batch_on_record(
    dataset: Dataset, tiny: Experiment, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path)
    diverged = r"training diverged: loss .*lower training\.learning_rate"
    with pytest.raises(TrainingError, match=diverged) as caught:
        fit(tiny.derive(training={"learning_rate": 1e30, "epochs": 20}), dataset, run)
    failure = run.read_json("failure-worker-0.json")
    assert len(failure["windows"]) == tiny.training.batch_size
    assert {window["case"] for window in failure["windows"]} <= set(dataset.cases("train"))
    assert run.read_json("status.json") == {"state": "failed", "reason": str(caught.value)}


def flip(path: Path, value: float) -> None:
    """Flip one bit of the first weight of this value in a file."""
    content = bytearray(path.read_bytes())
    content[content.index(np.float32(value).tobytes())] ^= 1
    path.write_bytes(content)


def test_one_flipped_bit_of_a_weight_is_found_when_it_is_read(
    dataset: Dataset, tiny: Experiment, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path)
    with pytest.raises(KilledError):
        fit(tiny, dataset, run, on_epoch=kill_at(3))
    weights = courant.load(run.url).model.state_dict()
    flip(tmp_path / "model.safetensors", float(weights["decoder.field.weight"][0, 0]))
    with pytest.raises(StoreError, match=r"model\.safetensors is damaged"):
        courant.load(run.url)
    (name,) = run.names("checkpoints")
    state = torch.load(tmp_path / "checkpoints" / name, weights_only=True)
    flip(tmp_path / "checkpoints" / name, float(state["model"]["decoder.field.weight"][0, 0]))
    with pytest.raises(StoreError, match=rf"{name} is damaged .*remove it to go on from the check"):
        fit(tiny, dataset, run)


def test_of_equal_losses_the_first_epochs_weights_are_the_best() -> None:
    state = Checkpoint.before_training({"w": torch.zeros(1)}, ())
    for epoch, loss in ((1, 2.0), (2, 1.0), (3, 1.0), (4, 1.5)):
        state.epoch = epoch
        state.keep_best({"w": torch.full((1,), float(epoch))}, loss)
    assert (state.best_epoch, state.best_loss, state.best["w"].item()) == (2, 1.0, 2.0)


@pytest.mark.parametrize(
    ("make", "section", "values", "message"),
    [
        (tiny_experiment, "model", {"num_features": 5}, "num_features = 5, expected 18 or 2 for"),
        (tiny_experiment, "model", {"num_query_features": 4}, "query_features = 4, expected 16"),
        (tiny_steady, "model", {"num_parameters": 4}, "num_parameters = 4, expected 5 or 0"),
        (tiny_steady, "model", {"transient": True}, "model.transient = True, expected False"),
        (tiny_steady, "data", {"distance_kinds": ("wall",)}, "query_features = 12, expected 4 or"),
        (tiny_steady, "data", {"prescribed": {"velocity": ("lid",)}}, "patch kind lid is unknown"),
    ],
)
def test_a_model_that_does_not_fit_the_data_is_an_error_before_training(
    dataset: Dataset,
    ducts: Dataset,
    tmp_path: Path,
    make: Callable[[], Experiment],
    section: str,
    values: dict[str, Any],
    message: str,
) -> None:
    data = dataset if make is tiny_experiment else ducts
    with pytest.raises(InputError, match=message):
        fit(make().derive(**{section: values}), data, RunDirectory(tmp_path))
    assert RunDirectory(tmp_path).names() == []


def test_an_experiment_of_another_family_or_kind_of_problem_is_an_error(
    dataset: Dataset, ducts: Dataset, tiny: Experiment, tmp_path: Path
) -> None:
    other = Experiment.model_validate({**tiny.model_dump(), "family": "branched-pipe"})
    with pytest.raises(InputError, match=r"is for branched-pipe .*holds cylinder-flow"):
        fit(other, dataset, RunDirectory(tmp_path))
    with pytest.raises(InputError, match=r"\(transient\), .* holds branched-pipe \(steady\)"):
        fit(other, ducts, RunDirectory(tmp_path))


def test_one_training_case_is_too_few_for_a_model_of_designs(tmp_path: Path) -> None:
    one = simgen.open_dataset(publish_waves(str(tmp_path / "store/cylinder-flow"), 1))
    for start in (
        lambda: set_up_run(tiny_experiment(), one, str(tmp_path / "runs")),
        lambda: fit(tiny_experiment(), one, RunDirectory(tmp_path / "runs/one")),
    ):
        with pytest.raises(InputError, match=r"v1 has 1 case to train on, a model needs 2"):
            start()
    assert RunDirectory(tmp_path / "runs/one").names() == []


@pytest.mark.parametrize(("budget_s", "epochs"), [(1e-3, 1), (1e6, 5)])
def test_a_budget_limits_the_epochs_to_those_that_fit(
    ducts: Dataset, tmp_path: Path, budget_s: float, epochs: int
) -> None:
    run, plain = RunDirectory(tmp_path / "budget"), RunDirectory(tmp_path / "plain")
    fit(tiny_steady(epochs=5, budget_s=budget_s), ducts, run)
    pace = run.read_json("pace.json")
    assert pace["epochs"] == epochs and 0 < pace["step_s"] < 60
    assert [record.epoch for record in read_records(run)] == list(range(1, epochs + 1))
    assert run.read_json("experiment.json")["training"]["epochs"] == epochs
    fit(tiny_steady(epochs=epochs, warmup_steps=0), ducts, plain)
    assert run.read_bytes("model.safetensors") == plain.read_bytes("model.safetensors")


@pytest.mark.parametrize(("budget_s", "planned", "epochs"), [(1e6, 3, 6), (1e-3, 6, 2)])
def test_a_budget_is_planned_again_where_the_machine_becomes_faster_or_slower(
    ducts: Dataset, tmp_path: Path, budget_s: float, planned: int, epochs: int
) -> None:
    run = RunDirectory(tmp_path)
    run.write_json("pace.json", {"epochs": planned, "validations": 2, "warmup": 0})
    experiment = tiny_steady(epochs=6, budget_s=budget_s, schedule="cosine")
    with pytest.raises(KilledError):
        fit(experiment, ducts, run, on_epoch=kill_at(2))
    fit(experiment, ducts, run)
    found = read_records(run)
    assert (len(found), run.read_json("pace.json")["epochs"]) == (epochs, epochs)
    assert run.read_json("experiment.json")["training"]["epochs"] == epochs
    assert found[-1].validation_loss is not None
    assert found[-1].learning_rate < 0.2 * found[0].learning_rate


def test_training_stops_where_the_validation_loss_has_not_fallen_for_as_long_as_it_may(
    ducts: Dataset, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path)
    # A rate this low changes no weight.
    fit(tiny_steady(epochs=40, patience=3, learning_rate=1e-30), ducts, run)
    status = run.read_json("status.json")
    assert (status["state"], status["best_epoch"], status["epochs"]) == ("finished", 1, 4)
    assert len(read_records(run)) == 4
