"""A run finds its dataset where both were moved together, or at a given place; packed into one file
it predicts without."""

import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

import courant
import simgen
from courant.evaluation.evaluate import evaluate
from courant.report.report import write_report
from courant.runs.directory import RunDirectory
from courant.runs.summary import list_runs, pack_run
from simgen.errors import InputError, StoreError
from tests.commands import called, refused
from tests.world import publish_waves

STORE = "store/cylinder-flow"


@pytest.fixture(scope="module")
def demo(waves_run: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dataset and a run, which were at another place when the run was trained."""
    made = Path(waves_run).parents[1]
    moved = Path(shutil.copytree(made, tmp_path_factory.mktemp("moved") / "demo"))
    record = moved / "runs/tiny/dataset.json"
    record.write_text(record.read_text().replace(str(made), "/gone"))
    record.with_name("evaluation.json").unlink()
    return moved


@pytest.fixture
def alone(demo, tmp_path) -> Path:
    """The run without its dataset."""
    return Path(shutil.copytree(demo / "runs" / "tiny", tmp_path / "alone" / "tiny"))


def test_a_run_finds_its_dataset_in_a_folder_that_was_moved_as_a_whole(demo):
    surrogate = courant.load(demo / "runs" / "tiny")
    assert not Path(surrogate.dataset["url"]).exists()
    assert surrogate.open_dataset().url == str(demo / STORE)


def test_a_dataset_that_lies_elsewhere_is_named_and_checked_by_its_snapshot(demo, alone, tmp_path):
    case, out = simgen.open_dataset(demo / STORE).cases("test")[0], tmp_path / "prediction.npz"
    line = refused("predict", alone, case, "--start", "3", "--out", out)
    assert "name its place with --dataset URL" in line and "cylinder-flow v1" in line
    called("predict", alone, case, "--start", "3", "--out", out, "--dataset", demo / STORE)
    called("predict", demo / "runs/tiny", case, "--start", "3", "--out", tmp_path / "beside.npz")
    assert out.read_bytes() == (tmp_path / "beside.npz").read_bytes()
    other = publish_waves(str(tmp_path / "other"))
    line = refused("predict", alone, case, "--out", out, "--dataset", other)
    assert f"{other}: its v1 is not the one that {alone} was trained on" in line


def test_an_evaluation_and_its_report_take_the_datasets_new_place(demo, alone, tmp_path):
    assert "name its place with --dataset URL" in refused("evaluate", alone)
    assert "no dataset at" in refused("evaluate", alone, "--dataset", tmp_path / "nowhere")
    assert evaluate(str(alone), dataset_url=str(demo / STORE)).dataset["url"] == str(demo / STORE)
    with pytest.raises(InputError, match="--dataset URL"):
        write_report(str(alone), str(tmp_path / "report"))
    page = called("report", alone, "--out", tmp_path / "report", "--dataset", demo / STORE).stdout
    assert str(demo / STORE) in Path(page.split()[1]).read_text()


@pytest.fixture
def packed(alone) -> Path:
    """The run in one file, and no longer as a folder."""
    file = alone.parent / "m.zip"
    assert called("runs", "export", alone, "--out", file).stdout.split() == ["packed", str(file)]
    again = alone.parent / "again.zip"
    pack_run(RunDirectory(alone), str(again))
    assert file.read_bytes() == again.read_bytes()
    shutil.rmtree(alone)
    return file


def test_a_packed_run_predicts_like_the_run_without_its_dataset(demo, packed):
    whole, loaded = courant.load(demo / "runs" / "tiny"), courant.load(packed)
    points = np.random.default_rng(0).uniform((-20, -10, 0), (40, 10, 0), (30, 3))
    parameters = {"radius": 2.0, "center_x": 0.0, "center_y": 0.0}
    asked = {"initial": np.ones((30, 2)), "parameters": parameters, "steps": 2}
    np.testing.assert_array_equal(loaded.predict(points, **asked), whole.predict(points, **asked))
    assert [run.name for run in list_runs(str(packed.parent))[0]] == ["again.zip", "m.zip"]


def test_a_packed_run_is_not_written_to_and_unpacks_into_a_run(demo, packed):
    with pytest.raises(StoreError, match="is a packed run, which is only read: unpack it"):
        evaluate(str(packed), dataset_url=str(demo / STORE))
    shutil.unpack_archive(packed, packed.parent)
    evaluation = evaluate(str(packed.parent / "tiny"), dataset_url=str(demo / STORE))
    assert evaluation.num_windows > 0


def test_what_is_no_packed_run_is_refused_in_one_line(demo, tmp_path):
    run, no_run, packed = demo / "runs" / "tiny", tmp_path, tmp_path / "m.zip"
    assert "name the file m.pt.zip" in refused("runs", "export", run, "--out", tmp_path / "m.pt")
    assert "has no experiment.json" in refused("runs", "export", no_run, "--out", packed)
    (tmp_path / "text.zip").write_text("no archive at all, though it has as many bytes as one")
    with zipfile.ZipFile(tmp_path / "flat.zip", "w") as archive:
        archive.writestr("model.safetensors", b"")
    for name, reason in (
        ("nowhere.zip", "does not exist"),
        ("text.zip", "not a zip file"),
        ("flat.zip", "it holds 0 folders"),
    ):
        assert reason in refused("runs", "show", tmp_path / name)
