"""What a job is made of: an id that says what is asked for, the code and nothing else, variables by
name.
"""

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from flows import ray_jobs
from flows.ray_jobs import RAY_LINE, SEALED, JobRequest, job_variables, pack_code, seal, unseal
from simgen.errors import InputError


def request(**changes) -> JobRequest:
    given = {"kind": "train", "name": "tiny", "place": "s3://bucket/runs", "parameters": {"a": 1}}
    return JobRequest(**{**given, **changes})


def test_the_same_request_has_the_same_id_and_any_other_another():
    known = request().submission_id
    assert known == request().submission_id and known.startswith("courant-train-tiny-")
    changes = ({"place": "s3://bucket/other"}, {"parameters": {"a": 2}}, {"kind": "sweep"})
    others = [request(**each).submission_id for each in changes]
    assert len({known, *others}) == 4


def test_the_code_is_packed_without_anything_that_lies_beside_it_and_runs_there(tmp_path: Path):
    pack_code(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["courant", "flows", "simgen", "source_revision"]
    assert not list(tmp_path.rglob("*.pyc"))
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 5e6
    code = "import simgen, simgen.provenance as p; print(simgen.__file__, p.source_revision())"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    file, revision = found.stdout.split()
    assert file == str(tmp_path / "simgen" / "__init__.py")
    assert revision == (tmp_path / "source_revision").read_text()


@pytest.mark.parametrize(
    ("address", "api", "is_passed"),
    [
        ("http://127.0.0.1:8265", "http://127.0.0.1:4200/api", True),
        ("http://ray.example:8265", "http://127.0.0.1:4200/api", False),
        ("http://ray.example:8265", "http://prefect.example:4200/api", True),
    ],
)
def test_variables_are_passed_by_name(monkeypatch, address, api, is_passed):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("PREFECT_API_URL", api)
    variables = job_variables(address)
    assert variables["AWS_ENDPOINT_URL"] == "http://127.0.0.1:9000"
    assert "AWS_SECRET_ACCESS_KEY" not in variables
    assert ("PREFECT_API_URL" in variables) == is_passed
    monkeypatch.setenv("COURANT_JOB_ENV", "AWS_SECRET_ACCESS_KEY, NOT_SET_ANYWHERE")
    # Whatever Ray this process has started before; with a token they are sealed.
    monkeypatch.setattr(ray_jobs, "_cipher", lambda: None)
    assert job_variables(address) == {**variables, "AWS_SECRET_ACCESS_KEY": "secret"}


@pytest.mark.parametrize(
    ("line", "is_rays"),
    [
        ("2026-11-21 11:18:19,664 INFO job_manager.py:581 -- Runtime env is setting up.", True),
        ("Running entrypoint for job courant-train-1: python -m flows.ray_entrypoint", True),
        ("epoch 12/60  loss 0.2310", False),
    ],
)
def test_lines_of_ray_itself_are_told_from_the_jobs_own(line: str, is_rays: bool) -> None:
    assert bool(RAY_LINE.search(line)) == is_rays


def test_a_job_that_the_cluster_has_lost_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's head has been started again, and keeps no record of what ran before."""
    monkeypatch.setattr(ray_jobs, "POLL_S", 0.0)

    class Client:
        asked = 0

        def get_job_info(self, job: str) -> None:
            self.asked += 1
            raise RuntimeError(f"Request failed with status code 404: Job {job} does not exist")

    client = Client()
    with pytest.raises(ray_jobs.JobError, match=r"knows job a no more: .* run the same again"):
        ray_jobs._follow(client, "a", lambda line: None, lambda: None)
    assert client.asked == ray_jobs.MOST_LOST + 1


@pytest.mark.parametrize(
    ("reason", "attempts", "taken"),
    [
        (ray_jobs.NO_AGENT, 2, True),
        (ray_jobs.NO_AGENT, 1_000, False),
        ("no such version", 1, False),
    ],
)
def test_a_cluster_that_has_just_started_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reason: str, attempts: int, taken: bool
) -> None:
    failures = iter([RuntimeError(f"status code 500: {reason}")] * attempts)
    submitted = []

    def submit_job(**job: object) -> None:
        for failure in failures:
            raise failure
        submitted.append(job["submission_id"])

    monkeypatch.setattr(ray_jobs, "POLL_S", 0.01)
    monkeypatch.setattr(ray_jobs, "PATIENCE_S", 0.5)
    client = SimpleNamespace(submit_job=submit_job, list_jobs=list)
    asked = request(place=str(tmp_path))
    with contextlib.nullcontext() if taken else pytest.raises(RuntimeError, match=reason):
        ray_jobs._submit(client, asked, "job-1", "http://127.0.0.1:8265")
    assert submitted == ["job-1"] * taken


def test_the_next_attempt_has_a_number_that_none_had() -> None:
    """`ray job delete` takes older attempts away."""
    known = request().submission_id

    class Client:
        def list_jobs(self) -> list[object]:
            names = (f"{known}-3", f"{known}-2", f"{known}-x", "another-9", None)
            return [SimpleNamespace(submission_id=name) for name in names]

    assert list(ray_jobs._attempts(Client(), request())) == [2, 3]


GIVEN = {"AWS_SECRET_ACCESS_KEY": "a long secret", "LICENCE": "ünï"}


@pytest.fixture
def token(monkeypatch):
    """Set the token of the cluster, as Ray reads it."""
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/nowhere/token")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    return lambda value: monkeypatch.setenv("RAY_AUTH_TOKEN", value)


def test_the_cluster_sees_no_value_and_job_and_workers_have_them_all(token, monkeypatch, tmp_path):
    (tmp_path / "token").write_text("of the cluster\n")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    sealed = seal(GIVEN)
    assert set(sealed) == {SEALED}
    assert not [value for value in GIVEN.values() if value in sealed[SEALED]]
    token("of the cluster")
    assert unseal() is None and seal({}) == {}
    monkeypatch.setenv(SEALED, sealed[SEALED])
    for name in GIVEN:
        monkeypatch.delenv(name, raising=False)
    set_variables = unseal()
    assert {name: os.environ[name] for name in GIVEN} == GIVEN
    for name in GIVEN:
        monkeypatch.delenv(name)
    set_variables()
    assert {name: os.environ[name] for name in GIVEN} == GIVEN


def test_a_cluster_without_a_token_gets_them_as_they_are(token):
    assert seal(GIVEN) == GIVEN


@pytest.mark.parametrize("other", ["another one", ""])
def test_another_token_is_one_line(token, monkeypatch, other):
    token("of the cluster")
    monkeypatch.setenv(SEALED, seal(GIVEN)[SEALED])
    token(other)
    with pytest.raises(InputError, match="same RAY_AUTH_TOKEN"):
        unseal()
