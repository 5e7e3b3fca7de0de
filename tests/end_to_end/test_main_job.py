"""The main job from one command: cases, dataset, model, report; again without work; on S3 as
well.

It needs no server: nothing listens.
"""

import json
from pathlib import Path

import meshio
import numpy as np
import pytest

import courant
import simgen
from courant.runs.directory import RunDirectory
from tests.end_to_end.conftest import SHORT, run, start_courant
from tests.end_to_end.processes import listeners_until_end

pytestmark = [pytest.mark.end_to_end, pytest.mark.openfoam]

MAIN_JOB = ("run", "cylinder-flow", "--cases", "3", *SHORT)


@pytest.fixture(scope="module")
def out(environment, tiny_experiment, tmp_path_factory) -> Path:
    """The folder of a main job that has ended, and that was watched meanwhile."""
    out = tmp_path_factory.mktemp("main_job") / "out"
    process = start_courant(
        environment, *MAIN_JOB, "--experiment", str(tiny_experiment), "--out", str(out)
    )
    try:
        found = listeners_until_end(process, 400)
        printed = process.stdout.read().decode()
    finally:
        process.kill()
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
    assert (dataset.version, len(dataset)) == ("v1", 3)
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

    for suffix in ("npz", "vtu"):
        file = tmp_path / f"prediction.{suffix}"
        asked = ("predict", str(out / "runs" / name), case.id, "--out", str(file))
        predicted = run(environment, "courant", *asked, "--start", "2", "--steps", "2")
        assert predicted.returncode == 0, predicted.stderr
        assert file.stat().st_size > 1000
    mesh = meshio.read(tmp_path / "prediction.vtu")
    fields = {field: np.concatenate(blocks) for field, blocks in mesh.cell_data.items()}
    assert fields["velocity"].shape == (case.num_points, 3)
    np.testing.assert_allclose(
        fields["velocity"] - fields["velocity_solver"], fields["velocity_error"], atol=1e-6
    )


def test_the_same_job_runs_on_s3(environment, tiny_experiment, s3_server):
    environment = {**environment, **s3_server.environment}
    base = f"{s3_server.url}/whole-path"
    done = run(
        environment, "courant", *MAIN_JOB, "--experiment", str(tiny_experiment), "--out", base
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{base}/report/index.html" in done.stdout
    shown = run(environment, "courant", "dataset", "show", f"{base}/store/cylinder-flow")
    assert "3 accepted cases: 1 train, 1 validation, 1 test" in shown.stdout
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
