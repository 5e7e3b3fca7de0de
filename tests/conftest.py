"""What several packages' tests share: a real S3 server, and the smallest real dataset."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import s3fs

import courant
import simgen
from simgen import log_lines
from simgen.store.read import Dataset, StoredCase
from tests.told_by_name import ToldByName

if TYPE_CHECKING:
    from tests.world import World

# A shell starts what runs beside it with SIGINT ignored, and children inherit that: tests interrupt
# theirs, and expect them to end.
signal.signal(signal.SIGINT, signal.default_int_handler)

#: Files of other tests between two files of end-to-end tests.
OTHERS_BETWEEN = 7

BUCKET = "courant-tests"
KEYS = {"AWS_ACCESS_KEY_ID": "test-key-id", "AWS_SECRET_ACCESS_KEY": "test-secret-key"}


def pytest_configure(config: pytest.Config) -> None:
    """Tell failures of a long run as they come, in the process that gives the tests to workers."""
    if config.getoption("numprocesses", None):
        config.pluginmanager.register(ToldByName(config))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread the end-to-end files, which are long and mostly wait, between the others: run beside
    each other they would all wait for the same two cores.
    """
    files = list(dict.fromkeys(item.path for item in items))
    long = [file for file in files if file.parent.name == "end_to_end"]
    others = [file for file in files if file.parent.name != "end_to_end"]
    place = {file: number for number, file in enumerate(others)}
    place |= {file: number * OTHERS_BETWEEN for number, file in enumerate(long)}
    items.sort(key=lambda item: place[item.path])


@pytest.fixture(autouse=True)
def terminal_as_it_was() -> Iterator[None]:
    """Whatever width a test gives to the commands' terminal, the next one has that of COLUMNS."""
    yield
    if terminal := sys.modules.get("flows.terminal"):
        terminal.screen._width = terminal.errors._width = None


@pytest.fixture
def own_logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Logging that a test may set up as a process does, and that is afterwards as it was."""
    root = logging.getLogger()
    handlers = root.handlers[:]
    levels = {name: logging.getLogger(name).level for name in log_lines.PACKAGES}
    monkeypatch.setattr(log_lines, "_here", log_lines.LogContext())
    yield
    root.handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@dataclass(frozen=True)
class S3Server:
    """A running SeaweedFS: set `environment` to use it."""

    endpoint: str

    @property
    def environment(self) -> dict[str, str]:
        return {**KEYS, "AWS_ENDPOINT_URL": self.endpoint, "AWS_REGION": "us-east-1"}

    @property
    def url(self) -> str:
        return f"s3://{BUCKET}"


def free_ports(num: int) -> list[int]:
    """Ports that nobody listens on, below 20,000: SeaweedFS puts its gRPC ports 10,000 higher.

    Processes that run tests beside each other, whose ids are neighbours, look far from each other.
    """
    found: list[int] = []
    for port in range(11000 + os.getpid() * 97 % 7000, 19000):
        with socket.socket() as probe, socket.socket() as grpc:
            try:
                probe.bind(("127.0.0.1", port))
                grpc.bind(("127.0.0.1", port + 10000))
            except OSError:
                continue
        found.append(port)
        if len(found) == num:
            return found
    raise RuntimeError("no free ports")


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """SeaweedFS on loopback for the whole session, stopped by its process id."""
    server = SeaweedFS(tmp_path_factory.mktemp("s3"))
    try:
        yield server.start()
    finally:
        server.stop()


class SeaweedFS:
    """A server over a folder, which can be killed and started again over what it has written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        names = ("master", "filer", "volume", "s3", "admin", "s3.port.iceberg", "s3.port.lance")
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.server = S3Server(f"http://127.0.0.1:{self._ports['s3']}")
        self.process: subprocess.Popen[bytes] | None = None
        """The running server, once it was started"""

    def start(self) -> S3Server:
        """Start it, and wait until it answers."""
        flags = [
            f"-{name if '.' in name else name + '.port'}={port}"
            for name, port in self._ports.items()
        ]
        weed = Path(sys.executable).parent / "weed"
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    str(weed),
                    "mini",
                    f"-dir={self.folder}",
                    "-ip=127.0.0.1",
                    "-ip.bind=127.0.0.1",
                    f"-bucket={BUCKET}",
                    *flags,
                    "-admin.ui=false",
                    "-webdav=false",
                ],
                env={**os.environ, **KEYS},
                stdout=log,
                stderr=log,
            )
        try:
            _wait(self.server.endpoint, self.process, self.folder / "log")
        except BaseException:
            self.stop()
            raise
        return self.server

    def kill(self) -> None:
        """As a power cut would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()


def _wait(endpoint: str, server: subprocess.Popen[bytes], log: Path) -> None:
    """Until the server answers and has made its bucket."""
    client = s3fs.S3FileSystem(
        key=KEYS["AWS_ACCESS_KEY_ID"],
        secret=KEYS["AWS_SECRET_ACCESS_KEY"],
        endpoint_url=endpoint,
        use_listings_cache=False,
        skip_instance_cache=True,
    )
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        assert server.poll() is None, f"the S3 server ended: {log.read_text()[-2000:]}"
        try:
            if client.exists(BUCKET):
                return
        except OSError:
            pass
        time.sleep(0.3)
    raise AssertionError(f"the S3 server did not come up: {log.read_text()[-2000:]}")


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """What is built once for all workers."""
    from tests.world import World  # torch, which most tests do without

    folder = tmp_path_factory.getbasetemp()
    return World((folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "world")


@pytest.fixture(scope="session")
def waves(world: World) -> Dataset:
    return simgen.open_dataset(world.waves())


@pytest.fixture(scope="session")
def dataset(waves: Dataset) -> Dataset:
    """Where nothing else is named: waves."""
    return waves


@pytest.fixture
def case(waves: Dataset) -> StoredCase:
    return waves[waves.cases("test")[0]]


@pytest.fixture(scope="session")
def surrogate(waves_run: str) -> courant.Surrogate:
    return courant.load(waves_run, device="cpu")


@pytest.fixture(scope="session")
def ducts(world: World) -> Dataset:
    return simgen.open_dataset(world.ducts())


@pytest.fixture(scope="session")
def waves_run(world: World) -> str:
    return world.waves_run()


@pytest.fixture(scope="session")
def pipes_run(world: World) -> str:
    return world.pipes_run()


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """The S3 server, with its keys and endpoint in this test's environment; no connection of
    another test is taken over, nor left behind.
    """
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    yield s3_server
    s3fs.S3FileSystem.clear_instance_cache()
