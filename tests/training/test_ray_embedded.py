"""An embedded Ray: waited for on a busy machine, and nothing left of one that was killed."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from ray._private import services
from ray._raylet import (
    DASHBOARD_AGENT_LISTEN_PORT_NAME,
    METRICS_AGENT_PORT_NAME,
    METRICS_EXPORT_PORT_NAME,
    RUNTIME_ENV_AGENT_PORT_NAME,
)
from typer.testing import CliRunner

from courant.ray_folder import make_ray_folder, remove_abandoned_rays, remove_ray_folder
from courant.ray_patience import patient_start
from flows.cli.app import app
from tests.end_to_end.conftest import wait_for


def node_that_comes_up_after(num_questions, monkeypatch):
    asked = []

    def get_node(gcs_address, node_id):
        asked.append((gcs_address, node_id))
        if len(asked) <= num_questions:
            raise RuntimeError("not there yet")
        return {"node": node_id}

    monkeypatch.setattr(services, "get_node", get_node)
    return asked


def test_a_node_that_comes_up_late_is_waited_for_with_pauses(monkeypatch):
    asked = node_that_comes_up_after(4, monkeypatch)
    began = time.monotonic()
    with patient_start(pause_s=0.05):
        assert services.get_node("gcs", "id") == {"node": "id"}
    assert asked == [("gcs", "id")] * 5
    assert time.monotonic() - began >= 4 * 0.05


def test_the_wait_has_an_end_and_ray_is_as_it_was(monkeypatch):
    node_that_comes_up_after(10**9, monkeypatch)
    ours = services.get_node
    with patient_start(seconds=0.2, pause_s=0.01), pytest.raises(RuntimeError, match="not there"):
        services.get_node("gcs", "id")
    assert services.get_node is ours


def test_a_raylet_finds_the_ports_of_its_agents_when_it_starts(monkeypatch, tmp_path):
    found = {}

    def start(
        node_id, session_dir, metrics_agent_port=None, metrics_export_port=None,
        dashboard_agent_listen_port=None, runtime_env_agent_port=None,
    ):  # fmt: skip
        found[METRICS_AGENT_PORT_NAME] = metrics_agent_port
        found[METRICS_EXPORT_PORT_NAME] = metrics_export_port
        found[DASHBOARD_AGENT_LISTEN_PORT_NAME] = dashboard_agent_listen_port
        found[RUNTIME_ENV_AGENT_PORT_NAME] = runtime_env_agent_port

    node = "0" * 56
    monkeypatch.setattr(services, "start_raylet", start)
    with patient_start():
        services.start_raylet(node, str(tmp_path))
    assert len(set(found.values())) == 4
    for name, port in found.items():
        assert int((tmp_path / f"{name}_{node}").read_text()) == port
    assert services.start_raylet is start


@pytest.fixture
def short_folder(monkeypatch):
    """A place for folders whose path is short enough for Ray's sockets."""
    with tempfile.TemporaryDirectory(prefix="cr-", dir="/tmp") as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)
        yield Path(folder)


def test_a_killed_process_s_folder_goes_with_the_next_command(short_folder):
    program = "from courant.ray_folder import make_ray_folder as m; f = m(); print(f, flush=True)"
    killed = subprocess.Popen(
        [sys.executable, "-c", f"{program}; input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert killed.stdout is not None
    killed.stdout.readline()
    (left,) = short_folder.iterdir()
    remove_abandoned_rays()
    assert left.is_dir(), "its process lives"
    killed.kill()
    killed.wait()
    remove_abandoned_rays()
    assert not left.exists()


def test_commands_that_start_no_ray_remove_it_as_well(short_folder):
    folder, lock = make_ray_folder()
    lock.close()
    assert CliRunner().invoke(app, ["evaluate", "/nowhere/run"]).exit_code == 1
    assert not folder.exists()


def test_what_is_left_of_a_killed_process_s_ray_ends_with_the_next_command(short_folder):
    folder, lock = make_ray_folder()
    log = folder / "worker.out"
    worker = subprocess.Popen(
        [sys.executable, "-c", f"file = open({str(log)!r}, 'w'); input()"], stdin=subprocess.PIPE
    )
    wait_for(log.exists, 60)
    reader = subprocess.Popen(["tail", "-f", str(log)], stdout=subprocess.DEVNULL)
    try:
        remove_abandoned_rays()
        assert worker.poll() is None, "its Ray's process lives"
        lock.close()
        remove_abandoned_rays()
        assert worker.wait(60) == -signal.SIGKILL
        assert reader.poll() is None, "a user who looks at a log is not of the Ray"
    finally:
        for process in (worker, reader):
            process.kill()
            process.wait()


def test_a_command_that_looks_at_a_lock_is_not_of_the_ray(short_folder):
    folder, lock = make_ray_folder()
    other = subprocess.Popen(
        [sys.executable, "-c", "import sys; l = open(sys.argv[1]); print(l, flush=True); input()",
         str(folder / "lock")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert other.stdout is not None
        other.stdout.readline()
        remove_ray_folder(folder)
        lock.close()
        assert not folder.exists() and other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_line_written_while_a_folder_is_removed_leaves_none(short_folder):
    folder, lock = make_ray_folder()
    lock.close()
    logs = folder / "logs"
    logs.mkdir()
    program = (
        "import pathlib, sys, time\n"
        "end = time.monotonic() + 1\n"
        "while time.monotonic() < end:\n"
        "    pathlib.Path(sys.argv[1], f'{time.monotonic_ns()}').write_text('a last line')\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", program, str(logs)], stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: any(logs.iterdir()), 60)
        remove_abandoned_rays()
        assert not folder.exists()
    finally:
        writer.kill()
        writer.wait()


def test_a_ray_whose_workers_are_late_starts_all_the_same(short_folder):
    program = (
        "from courant.ray_embedded import start_embedded_ray as start; start(num_cpus=2);"
        "print('is there')"
    )
    # The raylet gives up on every worker that it starts beforehand: the driver waited for ever.
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "RAY_worker_register_timeout_seconds": "0"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "is there" in done.stdout
