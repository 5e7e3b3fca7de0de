"""The loop: it learns, it goes on exactly where it stopped, and it stops before a bad number
reaches the weights.
"""

import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import courant
from courant.evaluation.evaluate import evaluate
from courant.evaluation.record import read_evaluation
from courant.experiment import Experiment
from courant.runs.checkpoint import Checkpoint, checkpoint_epochs, read_latest_checkpoint
from courant.runs.directory import RunDirectory
from courant.runs.record import EpochRecord, read_records, run_state
from courant.training.train import Fitting, TrainingError, fit
from flows.stages import Measurement
from simgen.errors import InputError, StoreError


class KilledError(Exception):
    """Stands for the end of the process at this very moment."""


def kill_at(epoch: int) -> Any:
    def on_epoch(record: EpochRecord) -> None:
        if record.epoch == epoch:
            raise KilledError

    return on_epoch


def weights(run: RunDirectory) -> dict[str, torch.Tensor]:
    checkpoint = read_latest_checkpoint(run)
    assert checkpoint is not None
    return checkpoint.model


def test_training_lowers_the_loss_and_leaves_a_complete_run(
    dataset: Any, tiny: Experiment, tmp_path: Path
) -> None:
    run, seen = RunDirectory(tmp_path), []
    fit(tiny.derive(training={"epochs": 12}), dataset, run, on_epoch=seen.append)
    records = read_records(run)
    assert [record.epoch for record in records] == list(range(1, 13))
    assert records == seen
    assert records[-1].train_loss < 0.7 * records[0].train_loss
    assert records[-1].validation_loss is not None
    assert records[-1].validation_loss < records[0].validation_loss
    assert 0 < records[-1].validation_nmae < records[0].validation_nmae
    assert records[-1].eta_s == 0
    assert [name for name in run.names() if not name.startswith("events.out")] == [
        "checkpoints",
        "dataset.json",
        "environment.json",
        "experiment.json",
        "metrics.jsonl",
        "model.safetensors",
        "normaliser.json",
        "status.json",
        "timings.json",
    ]
    assert run.read_json("status.json")["state"] == "finished"
    assert run.read_json("dataset.json")["snapshot_id"] == dataset.snapshot_id
    assert set(run.read_json("timings.json")) == {
        "load",
        "train",
        "validation",
        "checkpoint",
        "samples_per_s",
        "different_samples",
    }


def test_a_run_that_was_killed_and_started_again_ends_with_the_same_weights_to_the_last_bit(
    dataset: Any, tiny: Experiment, tmp_path: Path
) -> None:
    straight, killed = RunDirectory(tmp_path / "straight"), RunDirectory(tmp_path / "killed")
    fit(tiny, dataset, straight)
    with pytest.raises(KilledError):
        fit(tiny, dataset, killed, on_epoch=kill_at(3))
    assert checkpoint_epochs(killed) == [2], "epoch 3 was trained and recorded, but not kept"
    assert len(read_records(killed)) == 3
    fit(tiny, dataset, killed)
    for name, expected in weights(straight).items():
        assert torch.equal(weights(killed)[name], expected), name
    assert killed.read_bytes("model.safetensors") == straight.read_bytes("model.safetensors")


def test_the_loss_curve_of_a_killed_run_has_no_gap_and_no_epoch_twice(
    dataset: Any, tiny: Experiment, tmp_path: Path
) -> None:
    straight, killed = RunDirectory(tmp_path / "straight"), RunDirectory(tmp_path / "killed")
    fit(tiny, dataset, straight)
    with pytest.raises(KilledError):
        fit(tiny, dataset, killed, on_epoch=kill_at(3))
    fit(tiny, dataset, killed)

    def curve(run: RunDirectory) -> list[tuple[int, float, float | None, float]]:
        return [
            (r.epoch, r.train_loss, r.validation_loss, r.learning_rate) for r in read_records(run)
        ]

    assert curve(killed) == curve(straight)


def test_a_run_killed_before_its_first_checkpoint_starts_anew(
    dataset: Any, tiny: Experiment, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path)
    with pytest.raises(KilledError):
        fit(tiny, dataset, run, on_epoch=kill_at(1))
    for asked in (Measurement(run.url).done, lambda: courant.load(run.url)):
        with pytest.raises(InputError, match="it has not come to its first validation yet") as said:
            asked()
        assert "\n" not in str(said.value)
    fit(tiny, dataset, run)
    assert [record.epoch for record in read_records(run)] == [1, 2, 3, 4]


def test_whoever_uses_a_run_that_was_cut_off_is_told(
    dataset: Any, tiny: Experiment, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path)
    with pytest.raises(KilledError):
        fit(tiny, dataset, run, on_epoch=kill_at(3))
    assert run_state(run) == "interrupted"
    with pytest.warns(UserWarning, match="is interrupted after epoch 3 of 4; the weights used"):
        courant.load(run.url)
    with pytest.warns(UserWarning, match="is interrupted after epoch 3 of 4; the weights used"):
        evaluation = evaluate(run.url)
    assert evaluation.cases and read_evaluation(run) == evaluation
    fit(tiny, dataset, run)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        courant.load(run.url)


def test_a_kill_between_the_last_checkpoint_and_its_weights_costs_nothing(
    dataset: Any, tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    dataset: Any, tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first validation nothing says which weights are the best."""
    rare = tiny.derive(training={"validate_every": 4, "checkpoint_every": 1})
    straight, run = RunDirectory(tmp_path / "straight"), RunDirectory(tmp_path / "run")
    fit(rare, dataset, straight)
    with pytest.raises(KilledError):
        fit(rare, dataset, run, on_epoch=kill_at(3))
    with pytest.raises(InputError, match="it has not come to its first validation yet; train it"):
        courant.load(run.url)
    fit(rare, dataset, run)
    assert run.read_bytes("model.safetensors") == straight.read_bytes("model.safetensors")
    monkeypatch.setattr(Fitting, "validate", lambda *_: (math.nan, math.nan))
    never = RunDirectory(tmp_path / "never")
    with pytest.raises(TrainingError, match="no validation loss was a finite number"):
        fit(tiny, dataset, never)
    assert never.read_json("status.json")["state"] == "failed"


def test_a_finished_run_is_left_as_it_is(dataset: Any, tiny: Experiment, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    fit(tiny, dataset, run)
    before = run.read_bytes("model.safetensors"), run.read_bytes("metrics.jsonl")
    fit(tiny, dataset, run, on_epoch=kill_at(4))
    assert (run.read_bytes("model.safetensors"), run.read_bytes("metrics.jsonl")) == before


def test_the_last_checkpoints_are_kept_and_the_best_weights(
    dataset: Any, tiny: Experiment, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path)
    fit(
        tiny.derive(training={"epochs": 5, "checkpoint_every": 1, "keep_checkpoints": 2}),
        dataset,
        run,
    )
    assert checkpoint_epochs(run) == [4, 5]
    losses = {record.epoch: record.validation_loss for record in read_records(run)}
    status = run.read_json("status.json")
    assert status["best_epoch"] == min(losses, key=lambda epoch: losses[epoch])
    assert status["best_loss"] == min(losses.values())


def test_a_loss_that_is_not_finite_stops_with_the_batch_on_record(
    dataset: Any, tiny: Experiment, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path)
    with pytest.raises(
        TrainingError, match=r"training diverged: loss .*lower training\.learning_rate"
    ) as caught:
        fit(tiny.derive(training={"learning_rate": 1e30, "epochs": 20}), dataset, run)
    assert "\n" not in str(caught.value)
    failure = json.loads(run.read_bytes("failure-worker-0.json"))
    assert len(failure["windows"]) == tiny.training.batch_size
    assert {window["case"] for window in failure["windows"]} <= set(dataset.cases("train"))
    assert run.read_json("status.json") == {"state": "failed", "reason": str(caught.value)}


def flip(path: Path, value: float) -> None:
    """Flip one bit of the first weight of this value in a file."""
    content = bytearray(path.read_bytes())
    content[content.index(np.float32(value).tobytes())] ^= 1
    path.write_bytes(content)


def test_one_flipped_bit_of_a_weight_is_found_when_it_is_read(
    dataset: Any, tiny: Experiment, tmp_path: Path
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
    with pytest.raises(StoreError, match=rf"{name} is damaged .the checksum of .* does not match"):
        fit(tiny, dataset, run)


def test_best_weights_that_are_not_finite_fail_the_run(
    dataset: Any, tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = Checkpoint.keep

    def keep_poisoned(state: Checkpoint, weights: dict[str, torch.Tensor]) -> None:
        keep(state, weights)
        state.best["decoder.field.bias"][0] = math.nan

    monkeypatch.setattr(Checkpoint, "keep", keep_poisoned)
    run = RunDirectory(tmp_path)
    with pytest.raises(TrainingError, match=r"decoder\.field\.bias of the best weights"):
        fit(tiny, dataset, run)
    assert run.read_json("status.json")["state"] == "failed"


def test_a_loss_far_above_its_start_stops_the_run(
    dataset: Any, tiny: Experiment, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path)
    fast = {"learning_rate": 1.0, "epochs": 20, "clip_norm": 1e9}
    with pytest.raises(TrainingError, match=r"mean loss .* at its start; lower") as caught:
        fit(tiny.derive(training=fast), dataset, run)
    assert run.read_json("status.json") == {"state": "failed", "reason": str(caught.value)}
    assert all(record.train_loss < 1e4 for record in read_records(run))


def test_a_resumed_run_is_judged_by_its_first_epoch(
    dataset: Any, tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, three = RunDirectory(tmp_path), tiny.derive(training={"epochs": 3})
    with pytest.raises(KilledError):
        fit(three, dataset, run, on_epoch=kill_at(2))
    began = read_records(run)[0].train_loss
    monkeypatch.setattr(Fitting, "train_epoch", lambda *_: (1001 * max(began, 1.0), 1e9, 0))
    with pytest.raises(TrainingError, match=rf"in epoch \d, {began:g} at its start"):
        fit(three, dataset, run)


def test_of_equal_losses_the_first_epochs_weights_are_the_best() -> None:
    state = Checkpoint.before_training({"w": torch.zeros(1)}, ())
    for epoch, loss in ((1, 2.0), (2, 1.0), (3, 1.0), (4, 1.5)):
        state.epoch = epoch
        state.keep_best({"w": torch.full((1,), float(epoch))}, loss)
    assert (state.best_epoch, state.best_loss, state.best["w"].item()) == (2, 1.0, 2.0)


def test_a_damaged_checkpoint_is_named(dataset: Any, tiny: Experiment, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.write_bytes("checkpoints/epoch-000002.pt", b"PK\x03\x04 not a checkpoint")
    with pytest.raises(
        StoreError,
        match=r"epoch-000002\.pt is damaged .*remove it to go on from the checkpoint before it",
    ):
        fit(tiny, dataset, run)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            {"num_features": 5},
            "model.num_features = 5, expected 18 or 2 for channels velocity.x, velocity.y",
        ),
        ({"num_query_features": 4}, "model.num_query_features = 4, expected 16"),
        ({"transient": False}, "model.transient = False, expected True"),
    ],
)
def test_a_model_that_does_not_fit_the_data_is_refused_before_training(
    dataset: Any, tiny: Experiment, tmp_path: Path, model: dict, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        fit(tiny.derive(model=model), dataset, RunDirectory(tmp_path))
    assert RunDirectory(tmp_path).names() == []


def test_an_experiment_of_another_family_is_refused(
    dataset: Any, tiny: Experiment, tmp_path: Path
) -> None:
    other = Experiment.model_validate({**tiny.model_dump(), "family": "branched-pipe"})
    with pytest.raises(InputError, match=r"is for branched-pipe, dataset .* holds cylinder-flow"):
        fit(other, dataset, RunDirectory(tmp_path))


def test_bfloat16_learns_as_well(dataset: Any, tiny: Experiment, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    fit(tiny.derive(training={"precision": "bfloat16"}), dataset, run)
    losses = [record.train_loss for record in read_records(run)]
    assert losses[-1] < losses[0]
