"""Jobs on a Ray cluster: one a request, found again, stopped with its flow, no secret in sight."""

import contextlib
import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray.job_submission import JobSubmissionClient

import simgen
from courant.experiment import Experiment
from courant.runs.checkpoint import checkpoint_epochs
from courant.runs.directory import RunDirectory
from courant.runs.record import is_finished, read_records
from tests.end_to_end.conftest import courant_at_work, run, wait_for
from tests.ray_nodes import RayNode, ray_head
from tests.world import publish_waves, tiny_experiment

pytestmark = pytest.mark.end_to_end


@pytest.fixture(scope="module")
def head() -> Iterator[RayNode]:
    """A cluster that asks for a token, and has no keys of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    with ray_head(environment, token=secrets.token_hex(32)) as node:
        yield node


@pytest.fixture
def submitter(environment, s3, head):
    """Of the process that submits: the token and, by name, the keys that it hands over."""
    return {
        **environment,
        **s3.environment,
        **head.authentication,
        "RAY_ADDRESS": head.dashboard,
        "COURANT_JOB_ENV": "AWS_ACCESS_KEY_ID,AWS_SECRET_ACCESS_KEY",
    }


@pytest.fixture
def place(s3, request) -> str:
    return f"{s3.url}/{request.node.name[:24]}"


def jobs(head: RayNode, word: str) -> dict[str, str]:
    """Status of the jobs that have the word in their submission id, the first attempt first."""
    found = {str(job.submission_id): job.status.value for job in client(head).list_jobs()}
    return {name: found[name] for name in sorted(found) if word in name}


def client(head: RayNode) -> JobSubmissionClient:
    return JobSubmissionClient(head.dashboard, headers=head.headers)


def shown_by(head: RayNode) -> Iterator[str]:
    """What the cluster tells of its jobs: its API, its nodes' logs, and command lines."""
    for path in ("/api/jobs/", "/api/v0/runtime_envs", "/api/v0/jobs?detail=1"):
        yield head.get(path).decode()
    for log in head.folder.rglob("*"):
        if log.is_file() and log.suffix in (".log", ".out", ".err", ".txt", ".json"):
            yield log.read_text(errors="replace")
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            yield (process / "cmdline").read_text(errors="replace")


def experiment_file(
    folder: Path, name: str, experiment: Experiment, **training
) -> tuple[Path, Experiment]:
    experiment = experiment.derive(name=name, training=training)
    (folder / "experiment.json").write_text(experiment.model_dump_json())
    return folder / "experiment.json", experiment


def test_one_job_a_request_found_again_stopped_with_its_flow_and_continued(
    submitter, head, place, tmp_path
):
    dataset = simgen.open_dataset(publish_waves(f"{place}/store/cylinder-flow"))
    file, experiment = experiment_file(
        tmp_path, "story", tiny_experiment(), epochs=600, checkpoint_every=10
    )
    run_ = RunDirectory(f"{place}/runs") / experiment.run_id(dataset.snapshot_id)
    command = ["train", dataset.url, "--experiment", str(file), "--runs", f"{place}/runs"]

    def attempts() -> list[str]:
        return list(jobs(head, "story").values())

    # Killed, the flow leaves its job at work. Started again it finds it, and Ctrl-C ends both.
    with courant_at_work(submitter, *command) as first:
        wait_for(lambda: first.poll() is not None or checkpoint_epochs(run_), 150)
        assert first.poll() is None, first.communicate()[0]
        first.send_signal(signal.SIGKILL)
        first.wait()
    assert attempts() == ["RUNNING"]
    with courant_at_work(submitter, *command) as again:
        assert next(line for line in again.stdout if "epoch " in line), "the job's log"
        again.send_signal(signal.SIGINT)
        output, _ = again.communicate(timeout=300)
    assert again.returncode != 0, output
    wait_for(lambda: attempts() == ["STOPPED"], 300)
    assert not is_finished(run_), "the job has to be stopped in the middle"
    kept = read_records(run_)[: max(checkpoint_epochs(run_))]

    # So does SIGTERM, in whatever state the job is.
    with courant_at_work(submitter, *command) as second:
        wait_for(lambda: len(attempts()) == 2, 300)
        second.send_signal(signal.SIGTERM)
        output, _ = second.communicate(timeout=300)
    assert second.returncode != 0, output
    wait_for(lambda: attempts() == ["STOPPED", "STOPPED"], 300)
    # Ray ends a stopped job's workers a while later, which may just have begun to train: the next
    # job waits for them.
    last = run(submitter, "courant", *command)
    assert last.returncode == 0, last.stdout + last.stderr
    assert attempts() == ["STOPPED", "STOPPED", "SUCCEEDED"]
    assert f"run  {run_.url}" in last.stdout
    assert "epoch 600/600" in last.stderr
    assert is_finished(run_)
    assert read_records(run_)[: len(kept)] == kept, "it went on from the checkpoint"
    assert run_.read_json("environment.json")["source_revision"] not in (None, "unknown")

    job = list(jobs(head, "story"))[-1]
    (request,) = (RunDirectory(f"{place}/runs") / "jobs").names()
    told = [
        client(head).get_job_info(job).entrypoint,
        client(head).get_job_logs(job),
        (RunDirectory(f"{place}/runs") / "jobs").read_bytes(request).decode(),
        last.stdout + last.stderr,
        *shown_by(head),
    ]
    for secret in (submitter["AWS_SECRET_ACCESS_KEY"], submitter["RAY_AUTH_TOKEN"]):
        assert not [text for text in told if secret in text]


def test_a_cluster_that_is_not_there_or_cannot_see_the_place_or_asks_for_a_token_is_one_line(
    environment, head, tmp_path
):
    dataset = publish_waves(str(tmp_path / "store" / "cylinder-flow"))
    file, _ = experiment_file(tmp_path, "nowhere", tiny_experiment())
    command = ["train", dataset, "--experiment", str(file), "--runs", str(tmp_path / "runs")]
    for address, message in (
        ("http://127.0.0.1:9", "the Ray cluster at http://127.0.0.1:9 (RAY_ADDRESS) takes no job"),
        ("http://ray.example:8265", "is a folder of this machine, which the Ray cluster at"),
        (head.dashboard, "asks for its token; set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to"),
    ):
        refused = run({**environment, "RAY_ADDRESS": address}, "courant", *command)
        assert refused.returncode == 1 and "Traceback" not in refused.stderr
        (line,) = [line for line in refused.stderr.splitlines() if line.startswith("error: ")]
        assert message in line
