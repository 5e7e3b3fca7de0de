"""A real Prefect server on loopback for the whole session, and a training of seconds."""

import contextlib
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from courant.experiment import Experiment
from courant.recipes import get_recipe
from tests.conftest import free_ports

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent

#: How much slower than a quiet machine one may be that others use as well.
LOAD = 3

#: Twelve seconds of flow on a coarse mesh: what a test can wait for.
SHORT = ("--set", "end_time=12", "--set", "mesh_size=2")
#: A minute of it: long enough to be caught while it is solved.
MINUTE = ("--set", "end_time=60", "--set", "mesh_size=2")


@pytest.fixture(scope="session")
def environment(tmp_path_factory) -> dict[str, str]:
    """Prefect's and the project's files in temporary folders, which tests leave clean."""
    home = tmp_path_factory.mktemp("home")
    return {
        **os.environ,
        "PREFECT_HOME": str(home / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "COURANT_SCRATCH": str(home / "scratch"),
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "COLUMNS": "250",
    }


@pytest.fixture(scope="session")
def prefect_server(environment, tmp_path_factory) -> Iterator[dict[str, str]]:
    """The environment of a process that talks to the session's server."""
    with running_prefect_server(environment, tmp_path_factory.mktemp("server") / "log") as running:
        yield running


@contextlib.contextmanager
def running_prefect_server(environment: dict[str, str], log: Path) -> Iterator[dict[str, str]]:
    """The environment with the address of a server of its own, ended by its process id."""
    (port,) = free_ports(1)
    where = ["--host", "127.0.0.1", "--port", str(port)]
    with log.open("ab") as file:
        server = subprocess.Popen(
            [str(BIN / "prefect"), "server", "start", *where, "--no-ui"],
            env=environment,
            stdout=file,
            stderr=file,
            cwd=ROOT,
        )
    api = f"http://127.0.0.1:{port}/api"
    try:
        wait_for(lambda: _healthy(api), 600, lambda: log.read_text()[-2000:])
        yield {**environment, "PREFECT_API_URL": api}
    finally:
        stop(server)


def _healthy(api: str) -> bool:
    try:
        return urllib.request.urlopen(f"{api}/health", timeout=2).status == 200
    except OSError:
        return False


@pytest.fixture(scope="session")
def tiny_experiment(tmp_path_factory) -> Path:
    """A file of an experiment that trains for two epochs, which take seconds."""
    file = tmp_path_factory.mktemp("experiment") / "tiny.json"
    file.write_text(tiny_recipe(epochs=2).model_dump_json())
    return file


def wait_for(
    condition: Callable[[], object], seconds: float, explain: Callable[[], str] = str
) -> None:
    """Until the condition holds; what went wrong otherwise. `seconds` are a quiet machine's."""
    deadline = time.monotonic() + LOAD * seconds
    while not condition():
        assert time.monotonic() < deadline, f"timed out after {seconds} s: {explain()}"
        time.sleep(0.2)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a server by its process id, gently first."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def run(
    environment: dict[str, str], *command: str, timeout: float = 600, folder: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """A command from the repository's root, as the README gives it, or from another folder."""
    return subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def solvers(scratch: Path) -> list[int]:
    """Process ids of solvers at work under a scratch folder."""
    found = []
    # Asked for twenty times a second by those who watch: at most two links of a process are read.
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "exe").readlink().name != "icoFoam":
                continue
            if (process / "cwd").readlink().is_relative_to(scratch):
                found.append(int(process.name))
        except OSError:
            continue
    return found


@contextlib.contextmanager
def courant_at_work(
    environment: Mapping[str, str], *arguments: str
) -> Iterator[subprocess.Popen[str]]:
    """The command, from the repository's root; it does not outlive the block."""
    command, out = [str(BIN / "courant"), *arguments], subprocess.PIPE
    process = subprocess.Popen(
        command, env=environment, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def tiny_recipe(epochs: int) -> Experiment:
    """The demo's recipe, cut down to seconds: a narrow model, windows of two steps."""
    return get_recipe("cylinder-flow-demo").derive(
        name="tiny",
        model={"num_anchors": 8, "width": 32, "num_heads": 2, "num_levels": 1},
        data={
            "start_s": 2.0,
            "stride_s": 1.0,
            "step_s": 2.0,
            "window_steps": 2,
            "points_per_sample": 64,
            "queries_per_sample": 64,
        },
        training={
            "epochs": epochs,
            "batch_size": 2,
            "samples_per_epoch": 8,
            "warmup_steps": 0,
            "validation_windows": 2,
        },
    )
