"""What a job is made of: an id that says what is asked for, the code and nothing else, variables by
name.
"""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from flows import ray_jobs
from flows.ray_jobs import SEALED, job_id, job_variables, pack_code, request_of, seal, unseal
from flows.stages import Trials
from simgen.errors import InputError


def test_the_same_request_has_the_same_id_and_any_other_another(tmp_path: Path):
    (tmp_path / "space.yaml").write_text("design: grid")
    asked = Trials("s3://bucket/d", runs="s3://bucket/runs", space=str(tmp_path / "space.yaml"))
    request = request_of(asked)
    assert request["stage"] == "Trials" and request["fields"]["runs"] == "s3://bucket/runs"
    assert request["files"] == {"space": ["space.yaml", "design: grid"]}
    known = job_id("tiny", "s3://bucket/runs", request)
    assert known.startswith("courant-tiny-")
    assert known == job_id("tiny", "s3://bucket/runs", request_of(asked))
    others = [job_id("tiny", "s3://bucket/runs", request_of(replace(asked, seed=1)))]
    others.append(job_id("tiny", "s3://bucket/other", request))
    (tmp_path / "space.yaml").write_text("design: sobol")
    others.append(job_id("tiny", "s3://bucket/runs", request_of(asked)))
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
        ray_jobs._follow(client, "a", lambda line: None)
    assert client.asked == ray_jobs.MOST_LOST + 1


GIVEN = {"AWS_SECRET_ACCESS_KEY": "a long secret", "LICENCE": "ünï"}


@pytest.fixture
def token(monkeypatch):
    """Set the token of the cluster, as Ray reads it."""
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/nowhere/token")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    return lambda value: monkeypatch.setenv("RAY_AUTH_TOKEN", value)


def test_the_cluster_sees_no_value_and_job_and_workers_have_them_all(token, monkeypatch, tmp_path):
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    assert seal(GIVEN) == GIVEN, "without a token"
    (tmp_path / "token").write_text("of the cluster\n")
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


@pytest.mark.parametrize("other", ["another one", ""])
def test_another_token_is_one_line(token, monkeypatch, other):
    token("of the cluster")
    monkeypatch.setenv(SEALED, seal(GIVEN)[SEALED])
    token(other)
    with pytest.raises(InputError, match="same RAY_AUTH_TOKEN"):
        unseal()
