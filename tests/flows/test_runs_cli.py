"""`courant runs`: what is on the tables is what lies in the run directories, on disk and on S3."""

import shutil
from pathlib import Path

import pytest

import courant
from courant.runs.directory import RunDirectory
from courant.runs.summary import list_runs, read_run
from courant.training.train import fit
from flows.terminal import screen
from simgen.errors import InputError
from tests.commands import called
from tests.world import tiny_experiment


@pytest.fixture(scope="module")
def runs(waves, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for anchors, name in ((8, "eight"), (4, "four")):
        experiment = tiny_experiment(epochs=2).derive(name=name, model={"num_anchors": anchors})
        fit(experiment, waves, RunDirectory(folder) / name)
    (folder / "jobs").mkdir()
    return folder


def shown(*arguments: str) -> str:
    return called("runs", *arguments).stdout


def test_runs_are_listed_with_their_dataset_version_size_and_errors(runs, waves):
    (eight, four), unreadable = list_runs(str(runs))
    assert unreadable == []
    assert (eight.name, four.name) == ("eight", "four")
    weights = courant.load(runs / "eight").model.state_dict().values()
    assert eight.num_parameters == sum(weight.numel() for weight in weights)
    assert (eight.version, eight.snapshot_id, eight.epoch) == ("v1", waves.snapshot_id, 2)
    assert eight.validation_nmae is not None and eight.test_nmae is None
    heading, first, _ = shown("ls", str(runs)).splitlines()
    names = ["run", "version", "epochs", "NMAE", "test", "started", "took"]
    assert heading.split("\t") == names
    nmae, size = f"{eight.validation_nmae:.3f}", f"{eight.num_parameters:,}"
    assert first.split("\t")[:5] == ["eight", "v1", "2/2", nmae, ""]
    assert size in shown("show", str(runs / "eight"))


def test_a_row_of_a_terminal_is_a_line_however_long_its_names_are(runs, monkeypatch):
    long = "a-run-whose-name-is-as-long-as-that-of-an-experiment-can-be-0123456789"
    shutil.copytree(runs / "eight", runs / "listed" / long)
    monkeypatch.setattr(screen, "_force_terminal", True)
    monkeypatch.setattr(screen, "_width", 60)
    heading, line = shown("ls", str(runs / "listed")).splitlines()
    assert line.startswith(f"{long}  v1 ") and len(heading) == len(line)
    assert len(shown("ls", str(runs)).splitlines()) == 3


def test_a_run_is_named_by_the_beginning_of_its_name_or_its_folder(runs, tmp_path):
    shutil.copytree(runs / "four", tmp_path / "runs" / "four-0123456789")
    for place in ("runs", "runs/four", "runs/four-0123456789"):
        assert courant.load(tmp_path / place).url == str(tmp_path / "runs" / "four-0123456789")
    shutil.copytree(runs / "four", tmp_path / "runs" / "four-1123456789")
    for place in ("runs", "runs/four"):
        with pytest.raises(InputError, match="give one: four-0123456789, four-1123456789"):
            courant.load(tmp_path / place)


def test_runs_are_shown_and_compared_with_their_settings(runs):
    text = shown("show", str(runs / "four"))
    assert "model.num_anchors" in text and "training.learning_rate" in text
    with pytest.raises(InputError, match=r"has no experiment\.json"):
        read_run(RunDirectory(runs / "jobs"))
    text = shown("compare", str(runs / "eight"), str(runs / "four"))
    assert "model.num_anchors" in text and "validation NMAE" in text
    assert "learning_rate" not in text


def test_an_unfinished_run_and_an_empty_place(runs, tmp_path):
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "experiment.json").write_bytes(
        (runs / "eight" / "experiment.json").read_bytes()
    )
    ((found,), _) = list_runs(str(tmp_path))
    assert (found.state, found.epoch, found.num_parameters) == ("waiting", 0, None)
    called("runs", "ls", tmp_path / "nowhere", exit_code=1)
