"""What cannot be carried out is refused in one line before any server starts, and leaves nothing
half-written.
"""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import simgen
from courant.recipes import get_recipe
from courant.runs.directory import RunDirectory
from courant.runs.record import write_dataset_record
from courant.runs.weights import WEIGHTS
from flows.cli.app import app
from flows.stages import Generation, MainJob
from simgen.errors import InputError
from tests.world import publish_waves

SHORT = ("--cases", "2", "--set", "end_time=12", "--set", "mesh_size=2")


@pytest.fixture
def waves(world) -> str:
    return world.waves()


def refused(*arguments: str) -> str:
    done = CliRunner(env={"COLUMNS": "250"}).invoke(app, list(arguments))
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == 1, done.output
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("error: "))
    assert "Traceback" not in done.stderr
    return line


def generate(*arguments: str) -> str:
    return refused("generate", "cylinder-flow", *SHORT, *arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name a case or a mesh file, or give a --design"),
        (
            ("b0159c13a91f", "--design", "radius=2"),
            "name a case or a mesh file, or give a --design",
        ),
        (("b0159c13a91f", "--verify"), "--verify belongs to a design"),
        (("case.vtu", "--from-solver", "10"), "--from-solver belongs to a design"),
        (("--design", "radius=2", "--start", "3"), "--start belongs to a stored case"),
        (
            ("--design", "radius=2", "--parameters", "radius=2"),
            "--parameters belongs to a mesh file",
        ),
    ],
)
def test_a_prediction_is_of_a_case_or_of_a_design(tmp_path, arguments, said):
    assert said in refused("predict", str(tmp_path), *arguments, "--out", "prediction.vtu")


def test_a_missing_openfoam_names_the_package_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    for command in (("generate", "cylinder-flow"), ("run", "cylinder-flow")):
        store = ("--store", str(tmp_path / "store"))
        where = store if command[0] == "generate" else ("--out", str(tmp_path / "out"))
        line = refused(*command, *SHORT, *where)
        assert "icoFoam is not on PATH: install it (Debian: apt-get install openfoam)" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.openfoam
def test_an_unwritable_store_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    line = generate("--store", str(tmp_path / "file"))
    assert f"store {tmp_path}/file/cylinder-flow cannot be used" in line


def test_an_unreachable_store_is_named(s3, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    line = generate("--store", "s3://courant-tests/unreachable")
    assert "cannot be reached at http://127.0.0.1:9" in line


def test_wrong_keys_are_named_and_not_shown(s3, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret")
    line = generate("--store", "s3://courant-tests/denied")
    assert "refused the credentials" in line
    assert "wrong-secret" not in line


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "courant recipes show NAME prints an experiment"),
        ("{}", "experiment: name: Field required"),
        (None, "does not exist"),
    ],
)
@pytest.mark.parametrize("command", ["train", "sweep", "run --dataset"])
def test_an_experiment_that_is_not_there_or_does_not_parse_is_refused(
    command, content, message, waves, tmp_path
):
    file = tmp_path / "experiment.json"
    if content is not None:
        file.write_text(content)
    assert message in refused(*command.split(), waves, "--experiment", str(file))
    assert "recipe 'none' is unknown" in refused(*command.split(), waves, "--recipe", "none")


def test_an_experiment_that_does_not_fit_its_dataset_is_refused(waves, tmp_path):
    pipe, runs = "branched-pipe-demo", str(tmp_path / "runs")
    message = "experiment branched-pipe-demo is for branched-pipe"
    assert message in refused("train", waves, "--recipe", pipe, "--runs", runs)
    assert "branched-pipe" in refused("sweep", waves, "--recipe", pipe, "--runs", runs)
    assert message in refused("run", "--dataset", waves, "--recipe", pipe)
    assert message in refused("run", "cylinder-flow", *SHORT, "--recipe", pipe)
    wide = get_recipe("cylinder-flow-small").derive(model={"num_query_features": 3})
    file = tmp_path / "wide.json"
    file.write_text(json.dumps(wide.model_dump(mode="json")))
    assert "num_query_features" in refused(
        "train", waves, "--experiment", str(file), "--runs", runs
    )
    assert not Path(runs).exists()


def test_runs_that_cannot_be_written_are_refused(waves, tmp_path):
    (tmp_path / "file").write_text("")
    assert f"cannot write {tmp_path}/file" in refused(
        "train", waves, "--recipe", "cylinder-flow-small", "--runs", str(tmp_path / "file")
    )


def test_a_space_that_does_not_exist_or_does_not_parse_is_refused(waves, tmp_path):
    assert "space 'none' is unknown; choose one of" in refused("sweep", waves, "--space", "none")
    file = tmp_path / "space.yaml"
    file.write_text("design: [")
    assert "is not valid YAML" in refused("sweep", waves, "--space", str(file))
    assert "is not valid YAML" in refused("run", "--dataset", waves, "--sweep", str(file))


def test_a_benchmark_that_cannot_be_made_is_refused(waves, tmp_path):
    sizes, out = tmp_path / "sizes.json", tmp_path / "out"
    sizes.write_text("[]")

    def line(*arguments: str) -> str:
        return refused(
            "benchmark", waves, "--recipe", "cylinder-flow-demo", "--out", str(out), *arguments
        )

    assert "model 'teapot' is unknown; choose of courant" in line("--models", "teapot")
    assert "budget 'soon' is none; give epochs" in line("--budget", "soon")
    both = ("--models", "courant", "--space", "features")
    assert "models to compare or a space of one model's settings, not both" in line(*both)
    assert "holds no sizes by model" in line("--sizes", str(sizes))
    sizes.write_text('{"fno": {"colour": 3}}')
    wrong = line("--models", "fno", "--sizes", str(sizes))
    assert f"model fno cannot be used on {waves} v1" in wrong and "colour" in wrong
    assert "space features" not in wrong and not out.exists()
    RunDirectory(out).write_json("request.json", {"snapshot": "another"})
    assert f"{out} holds another benchmark" in line("--models", "courant")


def test_what_would_not_be_used_is_refused(waves, tmp_path):
    both = ["--recipe", "cylinder-flow-demo", "--experiment", str(tmp_path / "mine.json")]
    for command, says in (
        (["train", waves, *both], "leave one out"),
        (["sweep", waves, *both], "leave one out"),
        (["benchmark", waves, *both], "leave one out"),
        (["run", "--dataset", waves, *both], "leave one out"),
        (["run", "--dataset", waves, "--trials", "3"], "those of a sweep"),
        (["run", "branched-pipe", "--dataset", waves], "name a family"),
        (["run", "branched-pipe", "--run", "/any/run"], "name a family"),
    ):
        done = CliRunner().invoke(app, command)
        assert done.exit_code != 0 and says in " ".join(done.output.replace("│", " ").split())
    for unused in (["--version", "v1"], ["--designs", "mine.csv"]):
        assert "only its report is left to make" in refused("run", "--run", "/any/run", *unused)


@pytest.mark.parametrize("place", ["store", "runs"])
def test_a_folder_of_this_machine_is_no_place_for_a_cluster(place, waves, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "http://head.example:8265")
    folder = str(tmp_path / place)
    if place == "store":
        line = generate("--store", folder)
    else:
        line = refused("train", waves, "--recipe", "cylinder-flow-small", "--runs", folder)
    assert "is a folder of this machine, which the Ray cluster at http://head.example:8265" in line
    assert not Path(folder).exists()


def test_names_are_checked_before_cases_are_solved():
    job = MainJob(cases=2, recipe="none")
    with pytest.raises(InputError, match="recipe 'none' is unknown"):
        job.done()
    assert replace(job, until="dataset", store="/nowhere").done() is None


def test_a_file_is_no_dataset(tmp_path, monkeypatch):
    """Icechunk panics there, which no handler of errors sees."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text("# A page")
    for command in (("dataset", "show"), ("dataset", "verify"), ("train",), ("sweep",)):
        assert "README.md: it is a file" in refused(*command, "README.md")
    line = refused("dataset", "show", "store/cylinder-flow")
    assert "make it with: courant generate cylinder-flow --store store" in line


def test_a_run_whose_dataset_is_gone_is_not_evaluated(tmp_path, waves):
    run = RunDirectory(tmp_path / "run")
    write_dataset_record(run, simgen.open_dataset(waves))
    record = run.read_object("dataset.json")
    run.write_json("dataset.json", {**record, "url": "/nowhere", "relative": None})
    for name in ("experiment.json", WEIGHTS):
        run.write_bytes(name, b"{}")
    assert "name its place with --dataset URL" in refused("evaluate", run.url)
    other = publish_waves(str(tmp_path / "other"))
    line = refused("evaluate", run.url, "--dataset", other)
    assert "its v1 is not the one that" in line


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"cores": 0}, "cores = 0: .* greater than or equal to 1"),
        ({"seed": -1}, "seed = -1: "),
        ({"seed": 2**70}, "less than or equal to 4294967295"),
        ({"cases": 10**11}, "cases = 100000000000: "),
        ({"time_limit_s": 0.0}, "time_limit_s = 0.0: .* greater than 0"),
        ({"time_limit_s": math.inf}, "less than or equal to 2000000"),
        ({"design_parameters": []}, "design_parameters names no design"),
    ],
)
def test_a_flows_parameters_are_checked_as_the_command_lines_are(asked, says):
    """Prefect's page and API reach the flows without the command line."""
    with pytest.raises(InputError, match=says):
        _ = Generation("cylinder-flow", **asked).points


def test_a_home_that_cannot_be_written_names_the_way_out(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("COURANT_SCRATCH", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/dev/null")
    store = tmp_path / "store"
    line = refused("generate", "cylinder-flow", *SHORT, "--store", str(store))
    assert "/dev/null/.cache/courant/scratch cannot be written" in line
    assert "COURANT_SCRATCH" in line
    assert not store.exists()
