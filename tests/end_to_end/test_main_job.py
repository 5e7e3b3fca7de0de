"""The main job from one command: cases, dataset, model, report; again without work; on S3 as
well.

It opens nothing beyond loopback, and nothing there without its token or password.
"""

import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import meshio
import numpy as np
import pytest

import courant
import simgen
from courant.runs.directory import RunDirectory
from tests.end_to_end.conftest import SHORT, run
from tests.end_to_end.interrupting import start_courant
from tests.end_to_end.intruding import (
    WITHOUT_TOKEN,
    address,
    answer,
    intrude,
    read_of_each,
    secrets_of,
)
from tests.end_to_end.processes import Listener, command_line, listeners_until_end, tree

pytestmark = [pytest.mark.end_to_end, pytest.mark.openfoam]

MAIN_JOB = ("run", "cylinder-flow", "--cases", "3", *SHORT)


@dataclass
class Watched:
    """A main job that has ended, and what was seen of it from beside."""

    out: Path
    folder: Path
    experiment: str
    command_lines: str
    secrets: dict[str, str]
    intrusions: list[str]
    answers: tuple[int, int]
    listeners: set[Listener]
    printed: str
    code: int


@pytest.fixture(scope="module")
def job(environment, tiny_experiment, tmp_path_factory) -> Watched:
    """With a server of its own, which dies on the way, and two workers that talk to each other."""
    folder = tmp_path_factory.mktemp("main_job")
    alone = {name: value for name, value in environment.items() if name != "PREFECT_API_URL"}
    experiment = json.loads(tiny_experiment.read_text())
    experiment["training"]["workers"] = 2
    (folder / "experiment.json").write_text(json.dumps(experiment))
    where = ("--experiment", str(folder / "experiment.json"), "--out", str(folder / "out"))
    process = start_courant(
        {**alone, "COURANT_SCRATCH": str(folder / "scratch")}, *MAIN_JOB, *where
    )
    try:
        ray, prefect = address(process, "gcs_server"), address(process, "uvicorn")
        intrusions = [intrude(environment, ray, variables) for variables in WITHOUT_TOKEN]
        answers = (
            answer(f"http://{prefect}/api/flows/count"),
            answer(f"http://{prefect}/api/health"),
        )
        secrets, lines = secrets_of(process), "\n".join(read_of_each(process, "cmdline"))
        server = next(one for one in tree(process.pid) if "uvicorn" in command_line(one))
        os.kill(server, signal.SIGKILL)
        found = listeners_until_end(process, 400)
        printed = process.stdout.read().decode()
    finally:
        process.kill()
    return Watched(
        folder / "out", folder, where[1], lines, secrets, intrusions, answers, found, printed,
        process.returncode,
    )  # fmt: skip


def test_it_listens_on_loopback_alone_and_lets_nobody_in(job):
    assert job.intrusions == ["refused"] * len(WITHOUT_TOKEN)
    assert job.answers == (401, 200)
    assert set(job.secrets) == {"RAY_AUTH_TOKEN", "PREFECT_API_AUTH_STRING"}
    assert not [secret for secret in job.secrets.values() if secret in job.command_lines]
    assert not [one for one in job.listeners if not one.on_loopback]
    names = " ".join(one.process for one in job.listeners)
    agents = ("DashboardAgent", "RuntimeEnvAgent")
    for expected in ("raylet", "gcs_server", *agents, "RayTrainWorker", "uvicorn"):
        assert expected in names
    left = [path for path in job.folder.rglob("*") if path.is_file()]
    assert left
    for path in left:
        content = path.read_bytes()
        assert not [secret for secret in job.secrets.values() if secret.encode() in content], path


def test_it_does_not_hang_on_its_dashboard(job):
    assert job.code == 0, job.printed
    assert "Prefect's server died; starting it again" in job.printed
    assert "Traceback" not in job.printed


def test_one_command_makes_a_dataset_a_model_and_a_report_and_again_does_nothing(
    prefect_server, job, tmp_path
):
    out = job.out
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
        prefect_server, "courant", *MAIN_JOB, "--experiment", job.experiment, "--out", str(out)
    )
    assert again.returncode == 0, again.stderr
    changed = [path for path, time in files.items() if path.stat().st_mtime_ns != time]
    assert changed == []

    # Stages that are done elsewhere are skipped.
    runs, reports = str(out / "runs"), tmp_path / "reports"
    elsewhere = {**prefect_server, "COURANT_RUNS": runs, "COURANT_REPORTS": str(reports)}
    skipped = ["courant", "run", "--experiment", job.experiment]
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
        predicted = run(
            prefect_server,
            "courant",
            "predict",
            str(out / "runs" / name),
            case.id,
            "--start",
            "2",
            "--steps",
            "2",
            "--out",
            str(file),
        )
        assert predicted.returncode == 0, predicted.stderr
        assert file.stat().st_size > 1000
    mesh = meshio.read(tmp_path / "prediction.vtu")
    fields = {field: np.concatenate(blocks) for field, blocks in mesh.cell_data.items()}
    assert fields["velocity"].shape == (case.num_points, 3)
    np.testing.assert_allclose(
        fields["velocity"] - fields["velocity_solver"], fields["velocity_error"], atol=1e-6
    )


def test_the_same_job_runs_on_s3(prefect_server, tiny_experiment, s3_server):
    environment = {**prefect_server, **s3_server.environment}
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
    assert set(json.loads(files.cat_file(page))["overall"]) == {
        "model",
        "persistence",
        "training mean",
        "nearest design",
        "DMD",
    }
