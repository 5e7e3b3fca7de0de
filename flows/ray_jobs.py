"""Run work on a Ray cluster through its Jobs API.

    RAY_ADDRESS=http://head:8265 courant train s3://bucket/store/cylinder-flow --runs
    s3://bucket/runs

Notable features:
- A job's id is a hash of its request, so a flow whose process was restarted finds its job instead
  of submitting it again.
- The request is kept in object storage as JSON; the job's entrypoint gets its URL, and results are
  where the request says.
- The code is sent as the job's working directory, packed from a copy of the three packages: no
  dataset, run or environment.
- Environment variables are passed only if they are named in COURANT_JOB_ENV, and sealed, because
  Ray shows the values (`ray_variables`).
- A job is stopped when its flow is interrupted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from ray.exceptions import AuthenticationError
from ray.job_submission import JobDetails, JobStatus, JobSubmissionClient

from courant.runs.directory import RunDirectory
from flows.ray_variables import seal
from flows.settings import LOOPBACK, check_reach, host_of, load_settings
from simgen.errors import InputError, SimgenError
from simgen.log_lines import about, fields_here, parse_line
from simgen.provenance import REVISION_FILE, source_revision

POLL_S = 2.0
#: Written by Ray's job manager into a job's log; the flow has said it already.
RAY_LINE = re.compile(r"INFO job_manager\.py|^Running entrypoint for job ")
#: How long a dashboard may fail to answer before the flow gives up on following its job.
PATIENCE_S = 120.0
MOST_LOST = 5
"""Answers in a row by which a cluster knows nothing of a job that it has taken"""
STOP_S = 30.0
#: Their names are read here; where the cluster's nodes have their own values, nothing is passed.
PLAIN_VARIABLES = (
    "AWS_ENDPOINT_URL",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "COURANT_LOG_FORMAT",
    "MLFLOW_TRACKING_URI",
    "MLFLOW_EXPERIMENT_NAME",
)


PACKAGES = ("simgen", "courant", "flows")


class JobError(SimgenError):
    """A job that failed, was stopped, or can no longer be followed."""


@dataclass(frozen=True)
class JobRequest:
    """A job's request; `parameters` are JSON, and kept as `<place>/jobs/<id>.json`."""

    kind: Literal["train", "sweep", "benchmark", "solve"]
    name: str
    place: str
    """The store or the runs that the job writes to: a URL that the cluster reaches"""
    parameters: dict[str, Any]

    @property
    def submission_id(self) -> str:
        """Return the id of a request's job, the same for everyone and at any time.

        The number of the attempt is appended.
        """
        content = json.dumps([self.kind, self.place, self.parameters], sort_keys=True)
        return (
            f"courant-{self.kind}-{self.name}-{hashlib.sha256(content.encode()).hexdigest()[:10]}"
        )


def run_job(
    request: JobRequest, on_line: Callable[[str], None], on_poll: Callable[[], None] = lambda: None
) -> str:
    """Run the request on the cluster and wait; return the id of the job that did it.

    A running job of this request is followed instead of submitting it again. `on_line` is given
    each line of the job's log, `on_poll` is called every POLL_S seconds. An interruption (Ctrl-C,
    SIGTERM, Prefect's cancellation) stops the job; where only the following fails, the job
    continues and the next call finds it.

    Raises InputError where the cluster cannot take the job, JobError where the job did not succeed
    or can no longer be seen.
    """
    address = load_settings().jobs_address
    assert address is not None, "run_job is for RAY_ADDRESS=http://..."
    check_reach(address, request.place)
    logging.getLogger("ray").setLevel(logging.WARNING)
    with _speaking_plainly(address):
        client = JobSubmissionClient(address)
        found = _find(client, request)
        job = found or f"{request.submission_id}-{_next_number(client, request)}"
    with _ended_with_its_flow(client, job):
        if found is None:
            with _speaking_plainly(address):
                _submit(client, request, job, address)
        on_line(f"job {job} on {address}")
        details = _follow(client, job, on_line, on_poll)
    if details.status != JobStatus.SUCCEEDED:
        raise JobError(f"job {job} on {address} {_reason(client, job, details)}")
    return job


def _next_number(client: JobSubmissionClient, request: JobRequest) -> int:
    """Return the number after the newest attempt's: older ones may have been deleted."""
    return max((_number(job) for job in _attempts(client, request)), default=0) + 1


def _number(job: JobDetails) -> int:
    """Return which attempt of its request a job is; 0 for an id that was not made here."""
    number = (job.submission_id or "").rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def _attempts(client: JobSubmissionClient, request: JobRequest) -> list[JobDetails]:
    """List this request's jobs on the cluster, the oldest first."""
    known = request.submission_id
    found = [
        job for job in client.list_jobs() if (job.submission_id or "").rpartition("-")[0] == known
    ]
    return sorted(found, key=_number)


def _find(client: JobSubmissionClient, request: JobRequest) -> str | None:
    """Find the request's running job."""
    running = [
        job.submission_id for job in _attempts(client, request) if not job.status.is_terminal()
    ]
    return running[-1] if running else None


def _submit(client: JobSubmissionClient, request: JobRequest, job: str, address: str) -> None:
    folder, file = RunDirectory(request.place) / "jobs", f"{request.submission_id}.json"
    folder.write_json(file, {"kind": request.kind, **request.parameters})
    with tempfile.TemporaryDirectory(prefix="courant-job-") as code:
        pack_code(Path(code))
        try:
            client.submit_job(
                entrypoint=f"python -m flows.ray_entrypoint {shlex.quote(f'{folder.url}/{file}')}",
                submission_id=job,
                runtime_env={"working_dir": code, "env_vars": job_variables(address)},
                # Ray's dashboard shows it, and the job's log lines carry it.
                metadata=fields_here(),
            )
        except RuntimeError:
            # Another process with the same request may have been faster.
            if not any(attempt.submission_id == job for attempt in _attempts(client, request)):
                raise


def pack_code(target: Path) -> None:
    """Copy the packages under `target`, with the source revision for later records."""
    for name in PACKAGES:
        found = find_spec(name)
        assert found is not None and found.origin is not None
        shutil.copytree(
            Path(found.origin).parent,
            target / name,
            ignore=shutil.ignore_patterns("__pycache__", "*.pyc"),
        )
    (target / REVISION_FILE).write_text(source_revision())


def job_variables(address: str) -> dict[str, str]:
    """Select the variables of this process's environment for the job's processes.

    Those that may hold a secret are sealed.
    """
    names, secret = [*PLAIN_VARIABLES], [*load_settings().job_variables]
    api = os.environ.get("PREFECT_API_URL", "")
    if host_of(api) not in (None, *LOOPBACK) or host_of(address) in LOOPBACK:
        names.append("PREFECT_API_URL")
        secret.append("PREFECT_API_AUTH_STRING")
    return {**_of_here(names), **seal(_of_here(secret))}


def _of_here(names: list[str]) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}


def _follow(
    client: JobSubmissionClient,
    job: str,
    on_line: Callable[[str], None],
    on_poll: Callable[[], None],
) -> JobDetails:
    """Follow a job to its end.

    Its log is read whole each time: it is short, and this way correct after any gap.
    """
    shown, answered, lost = 0, time.monotonic(), 0
    while True:
        try:
            details = client.get_job_info(job)
            log = client.get_job_logs(job)
            answered, lost = time.monotonic(), 0
        except (RuntimeError, OSError) as error:
            # The cluster does answer, and knows nothing of the job.
            lost = lost + 1 if "does not exist" in str(error) else 0
            if lost > MOST_LOST:
                raise JobError(
                    f"the Ray cluster knows job {job} no more: its head was started again, and what"
                    " ran there has ended; what was done is kept: run the same again"
                ) from error
            if time.monotonic() - answered > PATIENCE_S:
                raise JobError(
                    f"the Ray cluster has not answered for {PATIENCE_S:g} s ({_first_line(error)});"
                    f" job {job} may still be at work there: run the same again to follow it"
                ) from error
            time.sleep(POLL_S)
            continue
        ended = details.status.is_terminal()
        lines = log[shown:].splitlines(keepends=True)
        whole = lines if ended else [line for line in lines if line.endswith("\n")]
        shown += sum(map(len, whole))
        for line in map(str.rstrip, whole):
            if line and not RAY_LINE.search(line):
                _pass_on(line, on_line)
        on_poll()
        if ended:
            return details
        time.sleep(POLL_S)


def _pass_on(line: str, on_line: Callable[[str], None]) -> None:
    """Give a line of the job to `on_line`; of one in JSON its message, with its ids."""
    ids, message = parse_line(line)
    with about(**ids):
        on_line(message)


@contextlib.contextmanager
def _ended_with_its_flow(client: JobSubmissionClient, job: str) -> Iterator[None]:
    """Stop the job if the flow is interrupted, even during submission; not on errors."""
    try:
        yield
    except Exception:
        raise
    except BaseException:
        _stop(client, job)
        raise


def _stop(client: JobSubmissionClient, job: str) -> None:
    """Tell the cluster to end the job, and wait for it: the job ends before the flow does."""
    with contextlib.suppress(RuntimeError, OSError):
        client.stop_job(job)
        deadline = time.monotonic() + STOP_S
        while not client.get_job_info(job).status.is_terminal() and time.monotonic() < deadline:
            time.sleep(0.5)


def _reason(client: JobSubmissionClient, job: str, details: JobDetails) -> str:
    """Give the reason in one line: the job's own error where it printed one."""
    if details.status == JobStatus.STOPPED:
        return "was stopped; run the same again to go on from there"
    printed = [line for line in client.get_job_logs(job).splitlines() if line.startswith("error: ")]
    if printed:
        return f"failed: {printed[-1].removeprefix('error: ')}"
    return f"failed: {_first_line(details.message or 'no reason given')}"


@contextlib.contextmanager
def _speaking_plainly(address: str) -> Iterator[None]:
    try:
        yield
    except AuthenticationError as error:
        raise InputError(
            f"the Ray cluster at {address} (RAY_ADDRESS) asks for its token;"
            " set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to the token"
            " (or put it in ~/.ray/auth_token)"
        ) from error
    except (RuntimeError, OSError) as error:
        raise InputError(
            f"the Ray cluster at {address} (RAY_ADDRESS) takes no job: {_first_line(error)}"
        ) from error


def _first_line(error: object) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
