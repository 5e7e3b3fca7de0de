"""Steady runs: they learn, resume to the last bit, and refuse what does not fit."""

from pathlib import Path
from typing import Any

import pytest
import torch

from courant.experiment import Experiment, parse_experiment
from courant.recipes import get_recipe
from courant.runs.directory import RunDirectory
from courant.runs.record import read_records
from courant.training.train import fit
from simgen.errors import InputError
from simgen.store.read import Dataset
from tests.training.test_loop import KilledError, kill_at, weights
from tests.world import tiny_steady


def full_mesh() -> Experiment:
    return tiny_steady().derive(model={"num_features": 14}, data={"encoder": "mesh"})


def every_field() -> Experiment:
    """As the pump's recipe: velocity and pressure, and one kind of boundary in the distance
    field.
    """
    return tiny_steady().derive(
        model={"num_features": 4, "num_outputs": 4, "num_query_features": 4},
        data={"fields": ("velocity", "kinematic_pressure"), "distance_kinds": ("wall",)},
    )


@pytest.mark.parametrize("make", [tiny_steady, full_mesh, every_field])
def test_training_lowers_the_loss_and_the_validation_error(
    ducts: Dataset, tmp_path: Path, make: Any
) -> None:
    run = RunDirectory(tmp_path)
    fit(make().derive(training={"epochs": 8}), ducts, run)
    records = read_records(run)
    assert records[-1].train_loss < 0.3 * records[0].train_loss
    assert 0 < min(record.validation_nmae for record in records) < records[0].validation_nmae


def test_a_run_that_was_killed_and_started_again_ends_with_the_same_weights_to_the_last_bit(
    ducts: Dataset, tmp_path: Path
) -> None:
    straight, killed = RunDirectory(tmp_path / "straight"), RunDirectory(tmp_path / "killed")
    fit(tiny_steady(), ducts, straight)
    with pytest.raises(KilledError):
        fit(tiny_steady(), ducts, killed, on_epoch=kill_at(3))
    fit(tiny_steady(), ducts, killed)
    for name, expected in weights(straight).items():
        assert torch.equal(weights(killed)[name], expected), name
    assert killed.read_bytes("model.safetensors") == straight.read_bytes("model.safetensors")


def test_streamed_cases_give_the_same_losses(ducts: Dataset, tmp_path: Path) -> None:
    runs = [RunDirectory(tmp_path / name) for name in ("resident", "streamed")]
    for run, budget in zip(runs, (8.0, 0.0), strict=True):
        fit(tiny_steady(epochs=2).derive(data={"resident_gb": budget}), ducts, run)
    losses = [
        [(record.train_loss, record.validation_loss) for record in read_records(run)]
        for run in runs
    ]
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    "model",
    [
        {"num_query_features": 0},
        {"num_parameters": 0},
        {"anchor_kind": "learned"},
        {"gaussian_window": "both"},
    ],
)
def test_the_papers_ablations_train(ducts: Dataset, tmp_path: Path, model: dict[str, Any]) -> None:
    """Rows of tab:feature_ablation_nmae."""
    fit(tiny_steady(epochs=1).derive(model=model), ducts, RunDirectory(tmp_path))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"model": {"num_features": 14}},
            "model.num_features = 14, expected 2 for channels velocity.x, velocity.z",
        ),
        ({"model": {"num_parameters": 4}}, "model.num_parameters = 4, expected 5 or 0"),
        ({"model": {"transient": True}}, "model.transient = True, expected False"),
        ({"data": {"distance_kinds": ("wall",)}}, "model.num_query_features = 12, expected 4 or 0"),
        ({"data": {"prescribed": {"velocity": ("blade",)}}}, "no patch kind blade"),
    ],
)
def test_a_model_that_does_not_fit_the_data_is_refused_before_training(
    ducts: Dataset, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        fit(tiny_steady().derive(**change), ducts, RunDirectory(tmp_path))
    assert RunDirectory(tmp_path).names() == []


def test_a_transient_recipe_on_a_steady_family_is_refused(ducts: Dataset, tmp_path: Path) -> None:
    other = parse_experiment(
        {**get_recipe("cylinder-flow-demo").model_dump(), "family": "branched-pipe"}
    )
    with pytest.raises(
        InputError, match=r"cylinder-flow-demo is transient, branched-pipe is steady"
    ):
        fit(other, ducts, RunDirectory(tmp_path))


def test_transient_keys_are_unknown_to_a_steady_experiment() -> None:
    with pytest.raises(InputError, match=r"data\.window_steps: Extra inputs"):
        tiny_steady().derive(data={"window_steps": 3})
    assert parse_experiment(tiny_steady().model_dump_json()) == tiny_steady()
