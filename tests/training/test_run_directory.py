"""The run directory on disk and on a real S3 server: whole files or none, troubles in one line."""

import os
from pathlib import Path
from typing import Any

import pytest

import courant
from courant.runs.checkpoint import checkpoint_epochs
from courant.runs.directory import RunDirectory, absolute_url
from courant.runs.record import read_records
from courant.training.train import fit
from simgen.errors import InputError, StoreError
from simgen.store.read import Dataset
from tests.training.conftest import KilledError, kill_at
from tests.world import tiny_experiment


def test_a_write_that_fails_leaves_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDirectory(tmp_path)
    run.write_bytes("model.safetensors", b"old")

    def disk_full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", disk_full)
    with pytest.raises(StoreError, match=r"cannot write .*/model.safetensors: .*No space left"):
        run.write_bytes("model.safetensors", b"new")
    assert run.read_bytes("model.safetensors") == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_missing_file_and_a_folder_that_is_not_there(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "nothing")
    assert run.names("checkpoints") == [] and not run.exists("status.json")
    with pytest.raises(StoreError, match=r"nothing/status\.json does not exist"):
        run.read_json("status.json")


def test_local_urls_become_absolute_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_url("runs/one") == str(tmp_path / "runs" / "one")
    assert absolute_url(f"file://{tmp_path}/runs") == str(tmp_path / "runs")
    assert absolute_url("s3://bucket/runs/") == "s3://bucket/runs"
    with pytest.raises(InputError, match="use a local path or s3://"):
        RunDirectory("nonsense://bucket/run")


@pytest.mark.end_to_end
def test_a_run_is_killed_resumed_and_loaded_from_s3_as_from_disk(
    s3: Any, dataset: Dataset, tmp_path: Path
) -> None:
    remote, local = RunDirectory(f"{s3.url}/runs") / "tiny", RunDirectory(tmp_path)

    with pytest.raises(KilledError):
        fit(tiny_experiment(), dataset, remote, on_epoch=kill_at(3))
    assert checkpoint_epochs(remote) == [2]
    fit(tiny_experiment(), dataset, remote)
    fit(tiny_experiment(), dataset, local)
    assert remote.read_bytes("model.safetensors") == local.read_bytes("model.safetensors")
    assert len(read_records(remote)) == 4
    case = dataset[0]
    prediction = courant.load(remote.url, device="cpu").predict_case(case, start_s=2.0)
    assert prediction.shape == (2, case.num_points, 2)


@pytest.mark.end_to_end
@pytest.mark.parametrize(
    ("name", "value"),
    [("AWS_SECRET_ACCESS_KEY", "wrong"), ("AWS_ENDPOINT_URL", "http://127.0.0.1:9")],
)
def test_a_store_that_refuses_or_does_not_answer_is_one_line(
    s3: Any, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    expected = (
        rf"cannot write {s3.url}/x/status\.json: .*check the path, and for s3:// the keys and"
        r" AWS_ENDPOINT_URL"
    )
    with pytest.raises(StoreError, match=expected) as caught:
        RunDirectory(f"{s3.url}/x").write_json("status.json", {})
    assert "\n" not in str(caught.value)
