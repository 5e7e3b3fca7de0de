"""A run directory that somebody else wrote: it loads safely, or one line says why not."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import courant
from courant.report.report import write_report
from courant.runs.checkpoint import read_latest_checkpoint
from courant.runs.directory import RunDirectory
from courant.runs.summary import list_runs
from simgen.errors import InputError, SimgenError, StoreError

WEIGHTS = "model.safetensors"


def change(run: Path, file: str, edit: Callable[[Any], Any]) -> None:
    content = json.loads((run / file).read_text())
    changed = edit(content)
    (run / file).write_text(json.dumps(content if changed is None else changed))


def refused(run: Path) -> str:
    with pytest.raises(SimgenError) as caught:
        courant.load(run, device="cpu")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1500
    return str(caught.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"width": 16_384}, "parameters, 500,000,000 at most"),
        ({"width": 2_000}, "weights where the experiment's model has"),
        ({"num_levels": 1000, "num_loops": 1000}, "more than 1,024 blocks"),
    ],
)
def test_sizes_are_held_against_the_weights_before_a_model_is_built(
    run: Path, values: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(run, "experiment.json", lambda content: content["model"].update(values))
    monkeypatch.setattr("courant.models.build", lambda config: pytest.fail("a model was built"))
    assert message in refused(run)


def test_nothing_is_written_or_removed_through_a_link(run: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "epoch-000001.pt").write_text("mine")
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").symlink_to(outside)
    (run / "events").symlink_to(outside / "epoch-000001.pt")
    directory = RunDirectory(run)
    for write in (
        lambda: directory.write_bytes("checkpoints/epoch-000002.pt", b"x"),
        lambda: directory.remove("checkpoints/epoch-000001.pt"),
        lambda: directory.grow_file("events", b"more than is there"),
    ):
        with pytest.raises(StoreError, match="link"):
            write()
    assert [path.read_text() for path in outside.iterdir()] == ["mine"]


def test_weights_that_are_not_finite_or_of_another_name_are_refused(run: Path) -> None:
    tensors = load_file(run / WEIGHTS)
    tensors["decoder.field.bias"][0] = float("nan")
    save_file(tensors, run / WEIGHTS)
    assert "decoder.field.bias holds values that are not finite" in refused(run)
    tensors["decoder.field.tilt"] = tensors.pop("decoder.field.bias")
    save_file(tensors, run / WEIGHTS)
    assert "'decoder.field.bias' has shape none" in refused(run)


@pytest.mark.parametrize("length", [0, 7, 100, -9])
def test_truncated_weights_are_refused(run: Path, length: int) -> None:
    content = (run / WEIGHTS).read_bytes()
    (run / WEIGHTS).write_bytes(content[:length])
    assert WEIGHTS in refused(run)


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize("file", ["experiment.json", "dataset.json", "normaliser.json"])
@pytest.mark.parametrize("content", ["[]", "{}", DEEP, "\xff\xfe", ""])
def test_json_of_another_shape_is_one_line(run: Path, file: str, content: str) -> None:
    (run / file).write_bytes(content.encode("latin-1"))
    message = refused(run)
    assert file in message or "experiment" in message


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda c: c["std"].__setitem__(0, 0.0), "std.0: Input should be greater than 0"),
        (lambda c: c.update(centre=[]), "centre.0: Field required"),
        (lambda c: c["channels"].append(c["channels"][0]), "mean, std and powers have a row for"),
        (lambda c: c["distance_kinds"].append("wall"), "experiment.json does not fit normaliser"),
        (lambda c: c["stored_kinds"].append("lid"), "stored_kinds are patch kinds"),
        (lambda c: c.update(distance_kinds=["teapot"]), "patch kind teapot is unknown"),
    ],
)
def test_a_normaliser_that_no_dataset_has_is_refused(
    run: Path, edit: Callable[[Any], Any], message: str
) -> None:
    change(run, "normaliser.json", edit)
    assert message in refused(run)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda c: c.update(url="http://169.254.169.254/latest"), "(url"),
        (lambda c: c.update(url="/x\x1b]0;gone\x07"), "(url"),
        (lambda c: c.update(version="../../v1"), "(version"),
        (lambda c: c.update(family="branched-pipe"), "that of dataset.json branched-pipe"),
        (lambda c: c["parameters"][0].update(low="low"), "(parameters.0.low"),
    ],
)
def test_a_dataset_record_that_no_run_writes_is_refused(
    run: Path, edit: Callable[[Any], Any], message: str
) -> None:
    change(run, "dataset.json", edit)
    assert message in refused(run)


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/passwd", "a//b", "", ".", "a\0b"])
def test_a_name_that_leads_out_of_the_directory_is_refused(tmp_path: Path, name: str) -> None:
    directory = RunDirectory(tmp_path / "runs")
    for use in (lambda: directory / name, lambda: directory.write_bytes(name or ".", b"x")):
        with pytest.raises(InputError, match="leads elsewhere"):
            use()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("file", "edit"),
    [
        ("evaluation.json", lambda c: c.pop("overall") and None),
        ("evaluation.json", lambda c: c["cases"].update(elsewhere=next(iter(c["cases"].values())))),
        ("status.json", lambda c: c.update(best_epoch="nine")),
        ("evaluation.json", lambda c: c.update(split="../../forged")),
    ],
)
def test_a_report_of_a_damaged_record_is_one_line(
    run: Path, tmp_path: Path, file: str, edit: Any
) -> None:
    change(run, file, edit)
    with pytest.raises(SimgenError, match=rf"{file}|has no case elsewhere") as caught:
        write_report(str(run), str(tmp_path / "report"))
    assert "\n" not in str(caught.value)
    assert not [*tmp_path.rglob("*forged*")], "the split of an evaluation is no path"


def checkpoint(run: Path) -> Path:
    return run / "checkpoints/epoch-000001.pt"


class Payload:
    """What a pickle may run."""

    def __reduce__(self) -> Any:
        return os.system, ("touch executed",)


def stretched(run: Path) -> None:
    """A tensor of 4 bytes on disk, and of terabytes when it is copied."""
    state = torch.load(checkpoint(run), weights_only=True)
    state["model"]["decoder.field.bias"] = torch.zeros(1).expand(10**12)
    torch.save(state, checkpoint(run))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda run: torch.save(Payload(), checkpoint(run)), "is damaged .UnpicklingError"),
        (stretched, "its tensors are not those of the experiment's model"),
        (lambda run: os.truncate(checkpoint(run), 2**40), "MB at most belong"),
    ],
)
def test_a_hostile_checkpoint_is_refused_without_running_it(
    run: Path, damage: Any, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    damage(run)
    model = courant.load(run, device="cpu").model
    with pytest.raises(StoreError, match=message) as caught:
        read_latest_checkpoint(RunDirectory(run), model=model)
    assert "weights_only" not in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "executed").exists()


def test_a_damaged_run_is_named_beside_those_that_can_be_listed(run: Path) -> None:
    shutil.copytree(run, run.with_name("other"))
    (run / "metrics.jsonl").write_text("{}\n")
    runs, (damaged,) = list_runs(str(run.parent))
    assert [found.name for found in runs] == ["other"]
    assert f"{run}/metrics.jsonl is damaged" in str(damaged)
