"""The run directory: whole files or none, and storage troubles in one line."""

import os
from pathlib import Path

import pytest

from courant.runs.directory import RunDirectory, absolute_url
from simgen.errors import InputError, StoreError


def test_what_is_written_is_read_back_and_listed(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "runs") / "one"
    run.write_json("status.json", {"state": "running"})
    run.write_bytes("checkpoints/epoch-000001.pt", b"abc")
    assert run.read_json("status.json") == {"state": "running"}
    assert run.read_bytes("checkpoints/epoch-000001.pt") == b"abc"
    assert run.names() == ["checkpoints", "status.json"]
    run.remove("checkpoints/epoch-000001.pt")
    assert run.names("checkpoints") == []


def test_a_write_that_fails_leaves_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDirectory(tmp_path)
    run.write_bytes("model.safetensors", b"old")

    def disk_full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", disk_full)
    with pytest.raises(
        StoreError, match=r"cannot write .*/model.safetensors: .*No space left on device"
    ):
        run.write_bytes("model.safetensors", b"new")
    assert run.read_bytes("model.safetensors") == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_missing_file_and_a_folder_that_is_not_there(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "nothing")
    (tmp_path / "damaged.json").write_text('{"state": ')
    with pytest.raises(StoreError, match=r"damaged\.json is not valid JSON"):
        RunDirectory(tmp_path).read_json("damaged.json")
    assert run.names("checkpoints") == []
    assert not run.exists("status.json")
    with pytest.raises(StoreError, match=r"nothing/status\.json does not exist"):
        run.read_json("status.json")


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot write .*/file/run/status.json"):
        RunDirectory(tmp_path / "file" / "run").write_json("status.json", {})


def test_local_urls_become_absolute_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_url("runs/one") == str(tmp_path / "runs" / "one")
    assert absolute_url(f"file://{tmp_path}/runs") == str(tmp_path / "runs")
    assert absolute_url("s3://bucket/runs/") == "s3://bucket/runs"
    with pytest.raises(InputError, match="use a local path or s3://"):
        RunDirectory("nonsense://bucket/run")
