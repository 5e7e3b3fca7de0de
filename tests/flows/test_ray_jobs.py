"""What a job is made of: an id that says what is asked for, the code and nothing else, variables by
name.
"""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from flows import ray_jobs, ray_variables
from flows.ray_jobs import RAY_LINE, JobRequest, job_variables, pack_code


def request(**changes) -> JobRequest:
    return JobRequest(
        **{
            "kind": "train",
            "name": "tiny",
            "place": "s3://bucket/runs",
            "parameters": {"a": 1},
            **changes,
        }
    )


def test_the_same_request_has_the_same_id_and_any_other_another():
    assert request().submission_id == request().submission_id
    assert request().submission_id.startswith("courant-train-tiny-")
    others = [
        request(place="s3://bucket/other"),
        request(parameters={"a": 2}),
        request(kind="sweep"),
    ]
    assert len({request().submission_id, *(other.submission_id for other in others)}) == 4


def test_the_code_is_packed_without_anything_that_lies_beside_it_and_runs_there(tmp_path: Path):
    pack_code(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "courant",
        "flows",
        "simgen",
        "source_revision",
    ]
    assert not list(tmp_path.rglob("*.pyc"))
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 5e6
    code = (
        "import simgen, simgen.provenance; print(simgen.__file__,"
        " simgen.provenance.source_revision())"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert found.stdout.split() == [
        str(tmp_path / "simgen" / "__init__.py"),
        (tmp_path / "source_revision").read_text(),
    ]


@pytest.mark.parametrize(
    ("address", "api", "handed_over"),
    [
        ("http://127.0.0.1:8265", "http://127.0.0.1:4200/api", True),
        ("http://ray.example:8265", "http://127.0.0.1:4200/api", False),
        ("http://ray.example:8265", "http://prefect.example:4200/api", True),
    ],
)
def test_variables_are_handed_over_by_name(monkeypatch, address, api, handed_over):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("PREFECT_API_URL", api)
    variables = job_variables(address)
    assert variables["AWS_ENDPOINT_URL"] == "http://127.0.0.1:9000"
    assert "AWS_SECRET_ACCESS_KEY" not in variables
    assert ("PREFECT_API_URL" in variables) == handed_over
    monkeypatch.setenv("COURANT_JOB_ENV", "AWS_SECRET_ACCESS_KEY, NOT_SET_ANYWHERE")
    # Whatever Ray this process has started before; with a token they are sealed.
    monkeypatch.setattr(ray_variables, "_cipher", lambda: None)
    assert job_variables(address) == {**variables, "AWS_SECRET_ACCESS_KEY": "secret"}


def test_lines_of_ray_itself_are_told_from_the_jobs_own():
    assert RAY_LINE.search(
        "2026-11-21 11:18:19,664 INFO job_manager.py:581 -- Runtime env is setting up."
    )
    assert RAY_LINE.search(
        "Running entrypoint for job courant-train-1: python -m flows.ray_entrypoint"
    )
    assert not RAY_LINE.search("epoch 12/60  loss 0.2310")


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


def test_the_next_attempt_has_a_number_that_none_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ray job delete` takes older attempts away."""
    known = request().submission_id

    class Client:
        def list_jobs(self) -> list[object]:
            names = (f"{known}-2", f"{known}-3", f"{known}-x", "another-9", None)
            return [SimpleNamespace(submission_id=name) for name in names]

    assert ray_jobs._next_number(Client(), request()) == 4
