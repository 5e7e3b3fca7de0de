"""Give work to a Ray cluster: cases where it was joined, else a stage as a job of its Jobs API.

    RAY_ADDRESS=http://head:8265 courant train s3://bucket/store/cylinder-flow --runs
    s3://bucket/runs

Notable features:
- A job executes a stage: its request has the stage's parameters and the content of its files. A
  job's id is a hash of it, so a flow whose process was restarted finds its job instead of
  submitting it again. The request is kept in object storage as JSON, where results are, too.
- The code is sent as the job's working directory, a copy of the three packages.
- Environment variables are passed only if they are named in COURANT_JOB_ENV. Ray shows a runtime
  environment on its pages, in logs and on command lines. So they are sealed with the token that the
  cluster asks for, which nodes and flows know already. Of a cluster without a token all users can
  run code as its user; its jobs get the variables as they are. Workers get them by a function that
  each of them runs first: Ray keeps it in the memory of its head, and shows its name only.
- A job is stopped when its flow is interrupted.
"""

import base64
import contextlib
import hashlib
import json
import logging
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import ray
from cryptography.fernet import Fernet, InvalidToken
from ray.job_submission import JobDetails, JobStatus, JobSubmissionClient

from courant.loopback import LOOPBACK
from courant.ray_session import connect_ray
from courant.runs.directory import RunDirectory
from flows.executor import ATTEMPTS, PAUSE_S, attempt, check_cores
from flows.settings import absolute, check_job_reach, host_of, load_settings
from simgen import log_lines, provenance
from simgen.errors import InputError, SimgenError, first_line
from simgen.whole_file import local_path

POLL_S = 2.0
PATIENCE_S = 300.0
"""How long a dashboard may fail to answer before the flow gives up on following its job"""
MOST_LOST = 5  # Answers in a row by which a cluster knows nothing of a job that it has taken
STOP_S = 30.0
NO_AGENT = "No available agent to submit job"  # Ray's words for a cluster that has just started
PLAIN_VARIABLES = (
    "AWS_ENDPOINT_URL",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "COURANT_LOG_FORMAT",
    "MLFLOW_TRACKING_URI",
    "MLFLOW_EXPERIMENT_NAME",
)
SEALED = "COURANT_SEALED_VARIABLES"
PACKAGES = ("simgen", "courant", "flows")
FILES = ("experiment", "space", "sizes", "designs")  # Parameters of stages that may name a file

LEAST_AT_ONCE = 32  # Cases under way on however small a cluster: it may grow
Result = TypeVar("Result")


class JobError(SimgenError):
    """A job that failed, was stopped, or can no longer be followed."""


def request_of(stage: Any) -> dict[str, Any]:
    """Return the stage's request: its class, its parameters, and the files that they name.

    InputError for a folder that the cluster does not see.
    """
    fields, files = asdict(stage), dict[str, list[str]]()
    for name in FILES:
        if (file := local_path(fields.get(name) or "")).is_file():
            files[name] = [file.name, file.read_text()]
    for name in {"dataset", "designs", "store", "runs", "out"} & (fields.keys() - files.keys()):
        if fields[name]:
            fields[name] = absolute(fields[name])
            check_job_reach(fields[name])
    return {"stage": type(stage).__name__, "fields": fields, "files": files}


def job_id(name: str, place: str, request: Mapping[str, Any]) -> str:
    """Return the id of a request's job, the same for everyone; attempts append their number."""
    content = json.dumps([place, request], sort_keys=True)
    return f"courant-{name}-{hashlib.sha256(content.encode()).hexdigest()[:10]}"


def run_job(name: str, place: str, stage: Any, on_line: Callable[[str], None]) -> None:
    """Execute a stage on the cluster and wait; `place` is where its request is kept, and its work.

    A running job of this request is followed instead of submitting it again. `on_line` is given
    each line of the job's log. An interruption (Ctrl-C, SIGTERM, Prefect's cancellation) stops the
    job; where only the following fails, the job continues and the next call finds it.

    Raises InputError where the cluster cannot take the job, JobError where the job did not succeed
    or can no longer be seen.
    """
    address = load_settings().jobs_address
    assert address is not None, "run_job is for RAY_ADDRESS=http://..."
    check_job_reach(place)
    request = request_of(stage)
    known = job_id(name, place, request)
    logging.getLogger("ray").setLevel(logging.WARNING)
    with _as_input_errors(address):
        client = JobSubmissionClient(address)
        jobs = {(job.submission_id or "").rpartition("-"): job for job in client.list_jobs()}
        tries = {int(n): job for (of, _, n), job in jobs.items() if of == known and n.isdecimal()}
        running = sorted(n for n, job in tries.items() if not job.status.is_terminal())
        # A number that none had: older attempts may have been deleted.
        number = running[-1] if running else max(tries, default=0) + 1
    job = f"{known}-{number}"
    try:
        if not running:
            with _as_input_errors(address):
                folder = RunDirectory(place) / "jobs"
                folder.write_json(f"{known}.json", request)
                _submit(client, f"{folder.url}/{known}.json", job, address)
        on_line(f"job {job} on {address}")
        details = _follow(client, job, on_line)
    except Exception:
        raise
    except BaseException:  # interrupted, even during submission: the job ends before the flow does
        with contextlib.suppress(RuntimeError, OSError):
            client.stop_job(job)
            deadline = time.monotonic() + STOP_S
            while not client.get_job_info(job).status.is_terminal() and time.monotonic() < deadline:
                time.sleep(0.5)
        raise
    if details.status == JobStatus.STOPPED:
        raise JobError(f"job {job} on {address} was stopped; run the same again to go on")
    if details.status != JobStatus.SUCCEEDED:
        lines = client.get_job_logs(job).splitlines()
        printed = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        reason = printed[-1] if printed else first_line(details.message or "no reason given")
        raise JobError(f"job {job} on {address} failed: {reason}")


def _submit(client: JobSubmissionClient, url: str, job: str, address: str) -> None:
    with tempfile.TemporaryDirectory(prefix="courant-job-") as code:
        pack_code(Path(code))
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                client.submit_job(
                    entrypoint=f"python -m flows.ray_entrypoint {shlex.quote(url)}",
                    submission_id=job,
                    runtime_env={"working_dir": code, "env_vars": job_variables(address)},
                    # Ray's dashboard shows it, and the job's log lines have it.
                    metadata=log_lines.fields_here(),
                )
                return
            except RuntimeError as error:
                # Another process with the same request may have been faster.
                if any(each.submission_id == job for each in client.list_jobs()):
                    return
                # A dashboard answers before the agent has started that starts jobs.
                if NO_AGENT not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(POLL_S)


def pack_code(target: Path) -> None:
    """Copy the packages under `target`, with the source revision for later records."""
    for name in PACKAGES:
        found = find_spec(name)
        assert found is not None and found.origin is not None
        ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
        shutil.copytree(Path(found.origin).parent, target / name, ignore=ignored)
    (target / provenance.REVISION_FILE).write_text(provenance.source_revision())


def _follow(client: JobSubmissionClient, job: str, on_line: Callable[[str], None]) -> JobDetails:
    """Follow a job to its end; its log is read whole each time, and so correct after any gap."""
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
                    f"the Ray cluster has not answered for {PATIENCE_S:g} s ({first_line(error)});"
                    f" job {job} may still be at work there: run the same again to follow it"
                ) from error
            time.sleep(POLL_S)
            continue
        ended = details.status.is_terminal()
        lines = log[shown:].splitlines(keepends=True)
        whole = lines if ended else [line for line in lines if line.endswith("\n")]
        shown += sum(map(len, whole))
        for line in map(str.rstrip, whole):
            if line:
                ids, message = log_lines.parse_line(line)  # of a line in JSON
                with log_lines.about(**ids):
                    on_line(message)
        if ended:
            return details
        time.sleep(POLL_S)


@contextlib.contextmanager
def _as_input_errors(address: str) -> Iterator[None]:
    try:
        yield
    except ray.exceptions.AuthenticationError as error:
        raise InputError(
            f"the Ray cluster at {address} (RAY_ADDRESS) asks for its token;"
            " set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to the token"
            " (or put it in ~/.ray/auth_token)"
        ) from error
    except (RuntimeError, OSError) as error:
        raise InputError(
            f"the Ray cluster at {address} (RAY_ADDRESS) takes no job: {first_line(error)}"
        ) from error


def job_variables(address: str) -> dict[str, str]:
    """Select variables of this environment for the job; those that may hold a secret are sealed."""
    names, secret = [*PLAIN_VARIABLES], [*load_settings().job_variables]
    api = os.environ.get("PREFECT_API_URL", "")
    if host_of(api) not in (None, *LOOPBACK) or host_of(address) in LOOPBACK:
        names.append("PREFECT_API_URL")
        secret.append("PREFECT_API_AUTH_STRING")
    there = os.environ
    sealed = seal({name: there[name] for name in secret if name in there})
    return {name: there[name] for name in names if name in there} | sealed


def seal(variables: dict[str, str]) -> dict[str, str]:
    """Return the variables of a job that hold these, readable only with the cluster's token."""
    cipher = _cipher()
    if cipher is None or not variables:
        return variables
    return {SEALED: cipher.encrypt(json.dumps(variables).encode()).decode()}


def unseal() -> Callable[[], None] | None:
    """Set the variables that this job was given sealed; return the function by which workers do.

    None where there are none. InputError if the token here is not the one that they were sealed
    with.
    """
    if SEALED not in os.environ:
        return None
    cipher = _cipher()
    try:
        content = cipher.decrypt(os.environ[SEALED].encode()) if cipher else b""
        variables: dict[str, str] = json.loads(content)
    except (InvalidToken, ValueError) as error:
        raise InputError(
            "the variables of COURANT_JOB_ENV were sealed with another token than this node's;"
            " give the flow and all nodes of the cluster the same RAY_AUTH_TOKEN, or none where the"
            " cluster asks for none"
        ) from error
    os.environ.update(variables)
    return lambda: os.environ.update(variables)


def _cipher() -> Fernet | None:
    """Return what seals with the cluster's token, from where Ray reads it; None without one."""
    if os.environ.get("RAY_AUTH_MODE", "").lower() != "token":
        return None
    file = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or "~/.ray/auth_token").expanduser()
    token = os.environ.get("RAY_AUTH_TOKEN") or (file.read_text() if file.is_file() else "")
    if not token.strip():
        return None
    key = hashlib.sha256(b"variables of a job\0" + token.strip().encode()).digest()
    return Fernet(base64.urlsafe_b64encode(key))


class RayExecutor(contextlib.AbstractContextManager["RayExecutor"]):
    """Tasks of Ray."""

    def __init__(self, cores: int) -> None:
        connect_ray()
        check_cores(cores, max(_cores_of_nodes(), default=0))
        self._cores = cores
        self._run = ray.remote(num_cpus=cores, max_retries=ATTEMPTS - 1)(_run)

    def at_once(self) -> int:
        """Return twice what there is room for: no node waits, and a cluster may grow."""
        room = sum(node // self._cores for node in _cores_of_nodes())
        return max(LEAST_AT_ONCE, 2 * room)

    def submit(self, function: Callable[..., Result], *arguments: Any) -> Future[Result]:
        reference = self._run.remote(log_lines.log_context(), function, *arguments)
        future: Future[Result] = Future()

        def ended(done: Future[Any]) -> None:
            error = done.exception()
            if error is None:
                future.set_result(done.result())
            else:
                future.set_exception(getattr(error, "cause", None) or error)

        reference.future().add_done_callback(ended)
        return future

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Disconnect after an error: Ray ends the tasks of a driver that has gone."""
        if kind is not None:
            ray.shutdown()


def _run(logs: log_lines.LogContext, function: Callable[..., Any], *arguments: Any) -> Any:
    logs.apply()
    return attempt(PAUSE_S, function, *arguments)


def _cores_of_nodes() -> list[int]:
    return [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
