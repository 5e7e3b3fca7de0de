"""Requests that are answered together: one that fails takes no other with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import courant
import simgen
from courant.prediction.surrogate import Surrogate
from courant.runs.directory import RunDirectory
from courant.serving.model import ServedModel, as_json
from courant.serving.predictions import (
    Limits,
    Prediction,
    PredictRequest,
    Refusal,
    Unforeseen,
    answer,
    in_parts,
    parse_request,
)
from courant.training.loop import fit
from simgen.errors import InputError, StoreError
from tests.training.waves import publish_waves, tiny_experiment

LIMITS = Limits()
CASE = {
    "points": [[0.5 * x - 15, 5.0] for x in range(6)],
    "initial": [[1.0, 0.0]] * 6,
    "parameters": {"radius": 2.0, "center_x": 1.0, "center_y": -1.0},
    "steps": 2,
}


@pytest.fixture(scope="module")
def surrogate(tmp_path_factory: pytest.TempPathFactory) -> Surrogate:
    folder = tmp_path_factory.mktemp("served")
    run = RunDirectory(folder) / "tiny"
    dataset = simgen.open_dataset(publish_waves(str(folder / "store/cylinder-flow")))
    fit(tiny_experiment(epochs=1), dataset, run)
    return courant.load(run.url, device="cpu")


def asked(**changed: Any) -> PredictRequest | Refusal:
    return parse_request(json.dumps({**CASE, **changed}).encode(), LIMITS)


def test_what_utf_8_cannot_say_refuses_its_own_request_alone(surrogate: Surrogate) -> None:
    half = {"parameters": {"\ud800": 1.0}}
    answers = answer([asked(), asked(**half), asked()], surrogate, LIMITS)
    assert [as_json(each)[0] for each in answers] == [200, 422, 200]
    assert "unknown ?" in json.loads(answers[1].model_dump_json())["detail"]


def test_a_request_that_breaks_the_model_is_a_fault_of_its_own(
    surrogate: Surrogate, monkeypatch: pytest.MonkeyPatch
) -> None:
    together, prepare = surrogate.predict_prepared, surrogate.prepare

    def predict(prepared: list[Any]) -> Any:
        if any(each.num_steps == 3 for each in prepared):
            raise MemoryError("no room for a secret")
        return together(prepared)

    def fail_at_four(*given: Any, **named: Any) -> Any:
        if named.get("steps") == 4:
            raise ZeroDivisionError
        return prepare(*given, **named)

    monkeypatch.setattr(surrogate, "predict_prepared", predict)
    monkeypatch.setattr(surrogate, "prepare", fail_at_four)
    requests = [asked(), asked(steps=3), asked(steps=4), asked()]
    answers = answer(requests, surrogate, LIMITS)
    assert [type(each) for each in answers] == [Prediction, Unforeseen, Unforeseen, Prediction]
    assert as_json(answers[1])[0] == 500 and "secret" not in answers[1].model_dump_json()


def test_parts_have_answers_no_larger_than_one_may_be(surrogate: Surrogate) -> None:
    limits = Limits(max_point_steps=30)
    requests = [asked(), asked(), asked(steps=5), Refusal(detail="no"), asked(steps=1)]
    parts = list(in_parts(requests, surrogate, limits))
    assert [len(part) for part in parts] == [2, 2, 1]  # 24 points and steps; 30; 6
    assert [each for part in parts for each in part] == requests


def test_names_of_patch_kinds_take_no_more_memory_than_they_have() -> None:
    """An array of names has the length of the longest for each: here 16 TB."""
    names = ["a" * 2_000_000, *[""] * 2_000_000]
    with pytest.raises(InputError, match=r"no patch kind , a{50}; choose of inlet, wall$"):
        _check_patches(names)
    with pytest.raises(InputError, match="has 3 values, expected 2000001"):
        _check_patches(["wall"] * 3, num_faces=len(names))
    for strange in ("wall", {"wall": 1}, 3, None):
        with pytest.raises(InputError, match="no list of names or numbers"):
            _check_patches(strange, num_faces=4)
    with pytest.raises(InputError, match=r"no patch kind \['wall'\]"):
        _check_patches(["wall", ["wall"]])


def _check_patches(patch: Any, num_faces: int | None = None) -> None:
    from courant.problems import steady

    num = len(patch) if num_faces is None else num_faces
    steady._patch_numbers(patch, num, ("inlet", "wall"))


def test_a_run_that_cannot_be_loaded_is_named(surrogate: Surrogate, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "cut")
    for name in RunDirectory(surrogate.url).names():
        if not name.startswith("checkpoints"):
            run.write_bytes(name, RunDirectory(surrogate.url).read_bytes(name))
    run.write_bytes("model.safetensors", run.read_bytes("model.safetensors")[:1000])
    with pytest.raises((InputError, StoreError), match=r"model\.safetensors"):
        ServedModel.load(run.url, LIMITS)
