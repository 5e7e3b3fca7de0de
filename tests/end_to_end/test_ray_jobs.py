"""Hand-over to a Ray cluster by its Jobs API: one job a request, found again, stopped with its flow, no secret in sight."""

import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import s3fs
from ray.job_submission import JobSubmissionClient

import simgen
from courant.run_directory import RunDirectory
from courant.training.checkpoint import checkpoint_epochs
from courant.training.record import is_finished, read_records
from tests.end_to_end.conftest import BIN, ROOT, run, wait_for
from tests.ray_nodes import RayNode, ray_head
from tests.training.waves import publish_waves, tiny_experiment

pytestmark = pytest.mark.end_to_end


@pytest.fixture(scope="module")
def head() -> Iterator[RayNode]:

    with ray_head({name: value for name, value in os.environ.items() if not name.startswith("AWS_")}) as node:
        yield node


@pytest.fixture
def submitter(prefect_server, s3, head):
    """Of the process that submits: the cluster has no keys of its own, they are handed over by name."""
    s3fs.S3FileSystem.clear_instance_cache()
    yield {
        **prefect_server, **s3.environment, "RAY_ADDRESS": head.dashboard, "RAY_AUTH_MODE": "disabled",
        "COURANT_JOB_ENV": "AWS_ACCESS_KEY_ID,AWS_SECRET_ACCESS_KEY",
    }  # fmt: skip
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def place(s3, request) -> str:
    return f"{s3.url}/{request.node.name[:24]}"


def submit(environment, *arguments) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(BIN / "courant"), *arguments], env=environment, cwd=ROOT, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def jobs(head: RayNode, word: str) -> dict[str, str]:
    """Submission id -> status of the jobs that have the word in their id."""
    found = JobSubmissionClient(head.dashboard).list_jobs()
    return {str(job.submission_id): job.status.value for job in found if word in str(job.submission_id)}


def experiment_file(folder: Path, name: str, **training) -> tuple[Path, object]:
    experiment = tiny_experiment(**training).derive(name=name)
    (folder / "experiment.json").write_text(experiment.model_dump_json())
    return folder / "experiment.json", experiment


def test_a_killed_flow_finds_its_job_again_and_no_secret_is_on_show(submitter, head, place, tmp_path):
    dataset = simgen.open_dataset(publish_waves(f"{place}/store/cylinder-flow"))
    file, experiment = experiment_file(tmp_path, "found-again", epochs=200, checkpoint_every=10)
    run_ = RunDirectory(f"{place}/runs") / experiment.run_id(dataset.snapshot_id)
    command = ["train", dataset.url, "--experiment", str(file), "--runs", f"{place}/runs"]
    first = submit(submitter, *command)
    try:
        wait_for(lambda: len(read_records(run_)) > 3, 150)
        first.send_signal(signal.SIGKILL)
        first.wait()
    finally:
        first.kill()
    assert set(jobs(head, "found-again").values()) == {"RUNNING"}
    again = run(submitter, "courant", *command)
    assert again.returncode == 0, again.stdout + again.stderr
    assert jobs(head, "found-again") == dict.fromkeys(jobs(head, "found-again"), "SUCCEEDED")
    assert len(jobs(head, "found-again")) == 1
    assert f"run  {run_.url}" in again.stdout
    assert "epoch 200/200" in again.stderr, "the job's log is the flow's"
    assert is_finished(run_)
    assert run_.read_json("environment.json")["source_revision"] not in (None, "unknown")

    (job,) = jobs(head, "found-again")
    (request,) = (RunDirectory(f"{place}/runs") / "jobs").names()
    told = [
        JobSubmissionClient(head.dashboard).get_job_info(job).entrypoint,
        JobSubmissionClient(head.dashboard).get_job_logs(job),
        (RunDirectory(f"{place}/runs") / "jobs").read_bytes(request).decode(),
        urllib.request.urlopen(f"{submitter['PREFECT_API_URL']}/health").read().decode(),
        again.stdout + again.stderr,
    ]
    assert not [text for text in told if submitter["AWS_SECRET_ACCESS_KEY"] in text]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_an_interrupted_flow_stops_its_job(submitter, head, place, tmp_path, how):
    dataset = simgen.open_dataset(publish_waves(f"{place}/store/cylinder-flow"))
    name = f"stopped-{how.name.lower()}"
    file, experiment = experiment_file(tmp_path, name, epochs=100, checkpoint_every=20)
    run_ = RunDirectory(f"{place}/runs") / experiment.run_id(dataset.snapshot_id)
    flow = submit(submitter, "train", dataset.url, "--experiment", str(file), "--runs", f"{place}/runs")
    try:
        wait_for(lambda: checkpoint_epochs(run_), 150)
        flow.send_signal(how)
        output, _ = flow.communicate(timeout=90)
    finally:
        flow.kill()
    assert flow.returncode != 0, output
    assert list(jobs(head, name).values()) == ["STOPPED"], output
    assert not is_finished(run_)
    if how == signal.SIGINT:
        kept = read_records(run_)[: max(checkpoint_epochs(run_))]
        again = run(submitter, "courant", "train", dataset.url, "--experiment", str(file), "--runs", f"{place}/runs")
        assert again.returncode == 0, again.stdout + again.stderr
        assert sorted(jobs(head, name).values()) == ["STOPPED", "SUCCEEDED"], "a second attempt"
        assert read_records(run_)[: len(kept)] == kept, "which went on from the checkpoint"


def test_a_cluster_that_is_not_there_or_cannot_see_the_place_is_one_line(prefect_server, tmp_path):
    dataset = publish_waves(str(tmp_path / "store" / "cylinder-flow"))
    file, _ = experiment_file(tmp_path, "nowhere")
    command = ["courant", "train", dataset, "--experiment", str(file), "--runs", str(tmp_path / "runs")]
    for address, message in (
        ("http://127.0.0.1:9", "the Ray cluster at http://127.0.0.1:9 (RAY_ADDRESS) takes no job"),
        ("http://ray.example:8265", "is a folder of this machine, which the Ray cluster at http://ray.example:8265"),
    ):
        refused = run({**prefect_server, "RAY_ADDRESS": address}, *command)
        assert refused.returncode == 1
        (line,) = [line for line in refused.stderr.splitlines() if line.startswith("error: ")]
        assert message in line
        assert "Traceback" not in refused.stderr
