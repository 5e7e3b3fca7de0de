"""The main job from one command, on disk and on S3; again without work; nothing listens."""

import json
from pathlib import Path

import pytest

import courant
import simgen
from courant.runs.directory import RunDirectory
from tests.end_to_end.conftest import SHORT, courant_at_work, run
from tests.end_to_end.processes import listeners_until_end

pytestmark = [pytest.mark.end_to_end, pytest.mark.openfoam]

MAIN_JOB = ("run", "cylinder-flow", "--cases", "4", *SHORT)


@pytest.fixture(scope="module")
def out(environment, tiny_experiment, tmp_path_factory) -> Path:
    """The folder of a main job that has ended, and that was watched meanwhile."""
    out = tmp_path_factory.mktemp("main_job") / "out"
    options = ("--experiment", str(tiny_experiment), "--out", str(out))
    with courant_at_work(environment, *MAIN_JOB, *options) as process:
        found = listeners_until_end(process, 400)
        printed = process.stdout.read()
    assert process.returncode == 0, printed
    assert "Traceback" not in printed and "Warning" not in printed
    assert found == set()
    return out


def test_one_command_makes_a_dataset_a_model_and_a_report_and_again_does_nothing(
    environment, out, tiny_experiment, tmp_path
):
    page = (out / "report" / "index.html").read_text()
    assert "NMAE" in page
    assert "simgen.open_dataset" in page

    dataset = simgen.open_dataset(out / "store" / "cylinder-flow")
    assert (dataset.version, len(dataset)) == ("v1", 4)
    assert set(dataset.design["status"]) == {"accepted"}
    (name,) = RunDirectory(str(out / "runs")).names()
    surrogate = courant.load(out / "runs" / name)
    case = dataset[dataset.cases("test")[0]]
    assert surrogate.predict_case(case, start_s=2.0).shape == (2, case.num_points, 2)

    files = {
        path: path.stat().st_mtime_ns
        for path in out.rglob("*")
        if path.is_file() and path.suffix != ".lock"
    }
    again = run(
        environment, "courant", *MAIN_JOB, "--experiment", str(tiny_experiment), "--out", str(out)
    )
    assert again.returncode == 0, again.stderr
    changed = [path for path, time in files.items() if path.stat().st_mtime_ns != time]
    assert changed == []

    # Stages that are done elsewhere are skipped.
    runs, reports = str(out / "runs"), tmp_path / "reports"
    elsewhere = {**environment, "COURANT_RUNS": runs, "COURANT_REPORTS": str(reports)}
    skipped = ["courant", "run", "--experiment", str(tiny_experiment)]
    trained = run(
        elsewhere, *skipped, "--dataset", dataset.url, "--version", "v1", "--until", "run"
    )
    assert trained.returncode == 0, trained.stderr
    assert trained.stdout.split() == ["run", f"{runs}/{name}"]
    assert not reports.exists()
    told = run(elsewhere, "courant", "run", "--run", f"{runs}/{name}")
    assert told.returncode == 0, told.stderr
    assert (reports / name / "index.html").is_file()


def test_the_same_job_runs_on_s3(environment, tiny_experiment, s3_server):
    environment = {**environment, **s3_server.environment}
    base = f"{s3_server.url}/whole-path"
    done = run(
        environment, "courant", *MAIN_JOB, "--experiment", str(tiny_experiment), "--out", base
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{base}/report/index.html" in done.stdout
    shown = run(environment, "courant", "dataset", "show", f"{base}/store/cylinder-flow")
    assert "4 accepted cases: 2 train, 1 validation, 1 test" in shown.stdout
    # No secret has found its way into what was written.
    secret = s3_server.environment["AWS_SECRET_ACCESS_KEY"]
    import s3fs

    files = s3fs.S3FileSystem(
        key=s3_server.environment["AWS_ACCESS_KEY_ID"],
        secret=secret,
        endpoint_url=s3_server.endpoint,
    )
    objects = files.find(f"{base.removeprefix('s3://')}")
    assert len(objects) > 20
    assert not [name for name in objects if secret.encode() in files.cat_file(name)]
    page = next(name for name in objects if name.endswith("evaluation.json"))
    measured = {"model", "persistence", "training mean", "nearest design", "DMD"}
    assert set(json.loads(files.cat_file(page))["overall"]) == measured


SPACE = "design: grid\nparameters: {model.num_anchors: [4, 8]}"


def test_a_sweep_between_dataset_and_report(environment, tiny_experiment, tmp_path):
    space = tmp_path / "space.yaml"
    space.write_text(SPACE)
    command = ["run", "cylinder-flow", "--cases", "4", *SHORT, "--out", str(tmp_path / "out")]
    command += ["--experiment", str(tiny_experiment), "--sweep", str(space), "--trials", "2"]
    with courant_at_work(environment, *command) as first:
        found = listeners_until_end(first, 400)
        told = first.stdout.read()
    assert first.returncode == 0, told
    assert found
    assert not [one for one in found if not one.on_loopback]
    assert (tmp_path / "out" / "report" / "index.html").is_file()
    (table,) = (tmp_path / "out" / "runs").rglob("trials.json")
    folder = table.parent
    files = {path.name for path in folder.iterdir()}
    assert {"index.html", "hyperparameters.png", "trials.csv", "best.json"} <= files
    assert json.loads((folder / "best.json").read_text())["model"]["num_anchors"] in (4, 8)
    (line,) = [line for line in told.splitlines() if line.startswith("run ")]
    best = Path(line.split(maxsplit=1)[1])
    assert best.parent == folder / "trials"
    assert courant.load(best).experiment.model.num_anchors in (4, 8)

    weights = {path: path.stat().st_mtime_ns for path in (folder / "trials").rglob("*.safetensors")}
    again = run(environment, "courant", *command)
    assert again.returncode == 0, again.stderr
    assert {path: path.stat().st_mtime_ns for path in weights} == weights
