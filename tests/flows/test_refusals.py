"""What cannot be done is an error of one line that names the way out, and leaves nothing behind."""

import json
import math
import shutil
from pathlib import Path

import pytest

import simgen
from courant.recipes import get_recipe
from courant.runs.directory import RunDirectory
from flows.stages import Generation
from simgen.errors import InputError
from tests.commands import called, refused

SHORT = ("--cases", "2", "--set", "end_time=12", "--set", "mesh_size=2")


@pytest.fixture
def waves(world) -> str:
    return world.waves()


def generate(*arguments: str) -> str:
    return refused("generate", "cylinder-flow", *SHORT, *arguments)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("generate teapot", "family 'teapot' is unknown; choose one of cylinder-flow"),
        ("generate cylinder-flow --set end_time=-1", "end_time = -1 s is outside its range"),
        ("generate cylinder-flow --designs nowhere.csv", "nowhere.csv cannot be read: No such"),
        ("run --dataset /nowhere/at-all", "there is no dataset at /nowhere/at-all"),
        ("run --run RUN --recipe cylinder-flow-demo", "only its report is left"),
        ("dataset show a[/b]", "there is no dataset at a[/b];"),
        ("dataset ls /nowhere", "no dataset in /nowhere"),
        ("dataset generate-benchmark darcy --train 1 --store s3:/x", "s3:/x names no bucket"),
        ("recipes show none", "'none' is unknown; choose one of"),
        ("runs ls ~nosuch/x", "~nosuch/x is no path on this machine"),
        ("serve /nowhere/run", "/nowhere/run is not there"),
        ("predict RUN --out x.vtu", "name a case or a mesh file, or give a --design"),
        ("predict /nowhere/run case.vtu --out x.vtu", "case.vtu does not exist; name a mesh file"),
        ("predict RUN case.vtu --start 1 --out x.vtu", "--start belongs to a stored case"),
        ("predict RUN case.vtu --dataset s --out x.vtu", "--dataset belongs to a stored case or"),
        ("predict /nowhere/run --design a=1 --verify --out x.vtu", "/nowhere/run is not there"),
    ],
)
def test_a_bad_request_is_one_line(command, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in refused(*command.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("generate cylinder-flow --cases 0", "--cases"),
        ("generate cylinder-flow --set end_time", "NAME=VALUE"),
        ("run", "name a family to generate cases of, or give --dataset or --run"),
        ("predict RUN case --steps 100000000 --out x.npz", "--steps"),
        ("--sets x=1 run", "--sets"),
        ("evaluate", "Missing argument 'run'. (courant evaluate --help)"),
    ],
)
def test_a_wrong_option_is_a_usage_error(command, message):
    (line,) = called(*command.split(), exit_code=2).stderr.splitlines()
    assert line.startswith("error: ") and message in line


@pytest.mark.parametrize("command", ["train", "sweep", "benchmark", "run --dataset"])
def test_an_experiment_that_cannot_be_read_or_has_a_recipe_beside_it(command, waves, tmp_path):
    file = tmp_path / "experiment.json"
    asked = *command.split(), waves
    assert "does not exist" in refused(*asked, "--experiment", str(file))
    for content, message in (("{", "courant recipes show NAME"), ("{}", "name: Field required")):
        file.write_text(content)
        assert message in refused(*asked, "--experiment", str(file))
    both = ("--experiment", str(file), "--recipe", "cylinder-flow-demo")
    assert "leave one out" in refused(*asked, *both)
    assert "recipe 'none' is unknown" in refused(*asked, "--recipe", "none")


def test_a_folder_of_datasets_or_runs_is_named_with_what_is_in_it(waves, tmp_path):
    store = tmp_path / "store"
    shutil.copytree(waves, store / "one")
    assert simgen.open_dataset(store).url == f"{store}/one"
    shutil.copytree(waves, store / "two")
    assert f"give {store}/one or two" in refused("train", str(store))
    assert f"has one, two: did you mean {store}/two?" in refused("train", f"{store}/tow")
    (store / "templates").mkdir()
    (store / "templates/shock.tar.gz").touch()
    assert "did you mean shock?" in refused("generate", "shok", "--store", str(store))
    for run in ("one-0123456789", "two-0123456789"):
        (tmp_path / run).mkdir()
        (tmp_path / run / "experiment.json").write_text("{}")
        (tmp_path / run / "dataset.json").write_text('{"url": "s/waves"}')
    line = refused("evaluate", str(tmp_path))
    assert line.endswith("several runs; give one: one-0123456789, two-0123456789")
    (out := tmp_path / "out/runs/three-0123456789").mkdir(parents=True)
    (out / "experiment.json").write_text("{}")  # of courant run --out
    meant = f"/thre-012345678 is not there; did you mean {out}?"
    assert meant in refused("report", f"{tmp_path}/out/runs/thre-012345678")
    assert f"{out} has no model." in refused("evaluate", f"{tmp_path}/out")
    no_dataset = "one-0123456789 is a trained run, no dataset; its dataset is s/waves"
    assert no_dataset in refused("train", f"{tmp_path}/one-0123456789")
    assert f"{waves} is a dataset, no run: courant train {waves}" in refused("evaluate", waves)


def test_an_experiment_that_does_not_fit_its_dataset(waves, tmp_path):
    pipe, runs = "branched-pipe-demo", str(tmp_path / "runs")
    message = "experiment branched-pipe-demo is for branched-pipe"
    assert message in refused("train", waves, "--recipe", pipe, "--runs", runs)
    assert "branched-pipe" in refused("sweep", waves, "--recipe", pipe, "--runs", runs)
    assert message in refused("run", "--dataset", waves, "--recipe", pipe)
    assert message in refused("run", "cylinder-flow", *SHORT, "--recipe", pipe)
    wide = get_recipe("cylinder-flow-small").derive(model={"num_query_features": 3})
    (tmp_path / "wide.json").write_text(json.dumps(wide.model_dump(mode="json")))
    given = ("--experiment", str(tmp_path / "wide.json"), "--runs", runs)
    assert "num_query_features" in refused("train", waves, *given)
    assert not Path(runs).exists()


def test_a_space_or_a_benchmark_that_cannot_be_made(waves, tmp_path):
    assert "space 'none' is unknown; choose one of" in refused("sweep", waves, "--space", "none")
    file, sizes, out = tmp_path / "space.yaml", tmp_path / "sizes.json", tmp_path / "out"
    file.write_text("design: [")
    assert "is not valid YAML" in refused("sweep", waves, "--space", str(file))
    assert "is not valid YAML" in refused("run", "--dataset", waves, "--sweep", str(file))
    assert "those of a sweep" in refused("run", "--dataset", waves, "--trials", "3")
    sizes.write_text("[]")

    def line(*arguments: str) -> str:
        given = ("--recipe", "cylinder-flow-demo", "--out", str(out))
        return refused("benchmark", waves, *given, *arguments)

    assert "model 'teapot' is unknown; choose of courant" in line("--models", "teapot")
    assert "budget 'soon': give epochs" in line("--budget", "soon")
    assert "not both" in line("--models", "courant", "--space", "features")
    assert "holds no sizes by model" in line("--sizes", str(sizes))
    sizes.write_text('{"fno": {"colour": 3}}')
    wrong = line("--models", "fno", "--sizes", str(sizes))
    assert f"model fno cannot be used on {waves} v1" in wrong and "colour" in wrong
    assert not out.exists()
    RunDirectory(out).write_json("request.json", {"snapshot": "another"})
    assert f"{out} holds another benchmark" in line("--models", "courant")


def test_a_missing_openfoam_names_the_package_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    for command, place in (("generate", "--store"), ("run", "--out")):
        line = refused(command, "cylinder-flow", *SHORT, place, str(tmp_path / "out"))
        assert "icoFoam is not on PATH: install it (Debian: apt-get install openfoam)" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.openfoam
def test_places_that_cannot_be_written(tmp_path, waves, monkeypatch):
    (tmp_path / "file").write_text("")
    line = generate("--store", str(tmp_path / "file"))
    assert f"store {tmp_path}/file/cylinder-flow cannot be used" in line
    runs = ("--recipe", "cylinder-flow-small", "--runs", str(tmp_path / "file"))
    assert f"cannot write {tmp_path}/file" in refused("train", waves, *runs)
    for name in ("COURANT_SCRATCH", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/dev/null")
    line = generate("--store", str(tmp_path / "store"))
    assert "/dev/null/.cache/courant/scratch cannot be written" in line
    assert "COURANT_SCRATCH" in line and not (tmp_path / "store").exists()


def test_a_file_is_no_dataset(tmp_path, monkeypatch):
    """Icechunk panics there, which no handler of errors sees."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text("# A page")
    assert "there is no dataset at README.md;" in refused("dataset", "show", "README.md")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"cores": 0}, "cores = 0: .* greater than or equal to 1"),
        ({"seed": 2**70}, "less than or equal to 4294967295"),
        ({"time_limit_s": math.inf}, "less than or equal to 2000000"),
        ({"design_parameters": []}, "design_parameters names no design"),
    ],
)
def test_a_flows_parameters_are_checked_as_the_command_lines_are(asked, says):
    """Prefect's page and API reach the flows without the command line."""
    with pytest.raises(InputError, match=says):
        _ = Generation("cylinder-flow", **asked).points
