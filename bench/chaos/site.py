"""Where one schedule takes place: folders, environment, what heals when, and the servers that
outlive a schedule, started when first asked for: Prefect's, S3, PostgreSQL.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import pwd
import shutil
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from bench.chaos.schedule import POSTGRES, Schedule
from tests.conftest import SeaweedFS, free_ports
from tests.end_to_end.conftest import BIN, ROOT, run, running_prefect_server, stop
from tests.end_to_end.processes import tree
from tests.store.proxy import Proxy

#: Flow runs that have not come to an end.
_RUNNING = (
    "select id || '  ' || name || '  ' || state_type from flow_run where state_type in "
    "('RUNNING', 'PENDING', 'CANCELLING', 'SCHEDULED', 'PAUSED')"
)


class Servers:
    """The servers of one row of schedules, under a folder that is kept for the next."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open = contextlib.ExitStack()
        self._started: list[int] = []

    def __enter__(self) -> Servers:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *raised: object) -> None:
        self._open.close()

    @property
    def processes(self) -> set[int]:
        """Direct children of this process that are no schedule's."""
        found = set(self._started)
        if (s3 := self.__dict__.get("s3")) is not None and s3.process is not None:
            found.add(s3.process.pid)
        if (postgres := self.__dict__.get("postgres")) is not None:
            found |= postgres.processes
        return found

    def environment(self, home: str) -> dict[str, str]:
        """Of a process whose Prefect has its files in the home of that name."""
        own = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
        return {
            **own,
            "PREFECT_HOME": str(self.folder / home),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "DO_NOT_TRACK": "1",
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "COLUMNS": "250",
            # Caches of a user, not of a run.
            "MPLCONFIGDIR": str(self.folder / "matplotlib"),
            "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "torchinductor"),
        }

    def open_prefect(
        self, name: str, environment: dict[str, str], until: contextlib.ExitStack
    ) -> dict[str, str]:
        """A server that lives until the stack is closed; the environment of its clients."""
        before = set(tree(os.getpid()))
        server = running_prefect_server(environment, self.folder / f"{name}.log")
        running = until.enter_context(server)
        process = next(each for each in tree(os.getpid()) if each not in before)
        self._started.append(process)
        until.callback(self._started.remove, process)
        return running

    @cached_property
    def deployment(self) -> dict[str, str]:
        """The environment of a client of Prefect's server, with a work pool and the deployments."""
        client = self.open_prefect("shared", self.environment("shared"), self._open)
        deploy(client)
        return client

    @cached_property
    def s3(self) -> SeaweedFS:
        folder = self.folder / "s3"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        s3 = SeaweedFS(folder)
        self._open.callback(s3.stop)
        s3.start()
        return s3

    @cached_property
    def postgres(self) -> Postgres:
        postgres = Postgres(self.folder / "postgres")
        self._open.callback(postgres.stop)
        return postgres

    def unfinished_flows(self, server: str) -> set[str]:
        """Flow runs that Prefect's database holds as not ended."""
        if server == "postgres":
            return set(self.postgres.query(_RUNNING))
        database = self.folder / server / "prefect.db"
        if not database.exists():
            return set()
        with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as opened:
            return {line for (line,) in opened.execute(_RUNNING)}


def deploy(client: Mapping[str, str]) -> None:
    """Make the work pool `local` and the deployments of the README; RuntimeError."""
    pool = ["work-pool", "create", "local", "--type", "process", "--overwrite"]
    for command in (pool, ["--no-prompt", "deploy", "--all"]):
        done = run(dict(client), "prefect", *command)
        if done.returncode:
            last = (done.stdout + done.stderr).strip().splitlines()[-1:]
            raise RuntimeError(f"prefect {' '.join(command)}: {''.join(last)}")


def start_prefect_worker(environment: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start a worker of the pool `local`, whose output is added to the log."""
    with log.open("ab") as file:
        return subprocess.Popen(
            [str(BIN / "prefect"), "worker", "start", "--pool", "local"],
            env=environment,
            cwd=ROOT,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )


def deployment_run(base: str, report: str, **parameters: Any) -> tuple[str, ...]:
    """The command that runs the whole job as a deployment, with stores and runs below `base`."""
    places = {"store": f"{base}/store", "runs": f"{base}/runs", "report": report}
    values = {**parameters, **places}
    options = [f"--param={name}={json.dumps(value)}" for name, value in values.items()]
    name = "generate-and-train/cylinder-flow"
    return ("prefect", "deployment", "run", name, "--watch", *options)


class Postgres:
    """A PostgreSQL of our own on loopback, run by the user `postgres`."""

    def __init__(self, folder: Path) -> None:
        (self._bin,) = glob.glob(POSTGRES)[-1:]  # noqa: PTH207 - an absolute pattern
        self._folder = folder
        (self.port,) = free_ports(1)
        user = pwd.getpwnam("postgres")
        self._as_postgres = [
            "setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups",
        ]  # fmt: skip
        if not (folder / "PG_VERSION").exists():
            folder.mkdir()
            os.chown(folder, user.pw_uid, user.pw_gid)
            self._run("initdb", "-D", str(folder), "-U", "postgres", "-A", "trust")
        self._process = self._start()
        self._create_database()

    @property
    def processes(self) -> set[int]:
        return {self._process.pid}

    @property
    def url(self) -> str:
        """As Prefect wants it."""
        return f"postgresql+asyncpg://postgres:none@127.0.0.1:{self.port}/prefect"

    def restart(self) -> None:
        """At once, as after a crash: connections are cut, and the log is replayed."""
        self._run("pg_ctl", "stop", "-m", "immediate", "-w", "-D", str(self._folder))
        self._process.wait()
        self._process = self._start()

    def stop(self) -> None:
        stop(self._process)

    def query(self, sql: str, database: str = "prefect") -> list[str]:
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-d", database]
        return self._run("psql", *where, "-tAc", sql).splitlines()

    def _start(self) -> subprocess.Popen[bytes]:
        log = self._folder.with_suffix(".log").open("ab")
        with log:
            process = subprocess.Popen(
                [*self._as_postgres, f"{self._bin}/postgres", "-D", str(self._folder),
                 "-p", str(self.port), "-h", "127.0.0.1", "-k", "/tmp"],
                stdout=log, stderr=log, cwd="/",
            )  # fmt: skip
        self._run("pg_isready", "-h", "127.0.0.1", "-p", str(self.port), "-t", "30", attempts=60)
        return process

    def _create_database(self) -> None:
        if "prefect" not in self.query("select datname from pg_database", "postgres"):
            self.query("create database prefect", "postgres")

    def _run(self, program: str, *arguments: str, attempts: int = 1) -> str:
        command = [*self._as_postgres, f"{self._bin}/{program}", *arguments]
        for attempt in range(attempts):
            done = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=300)
            if done.returncode == 0:
                return done.stdout
            if attempt < attempts - 1:
                subprocess.run(["sleep", "0.5"], check=True)
        raise RuntimeError(f"{program}: {done.stdout}{done.stderr}")


@contextlib.contextmanager
def small_file_system(folder: Path, megabytes: int) -> Iterator[None]:
    """A tmpfs at the folder, for as long as the block runs."""
    folder.mkdir(parents=True, exist_ok=True)
    options = ["-t", "tmpfs", "-o", f"size={megabytes}m,mode=0700", "tmpfs"]
    subprocess.run(["mount", *options, str(folder)], check=True)
    try:
        yield
    finally:
        # What has just ended may take a moment to let go.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


#: Of the small file systems, in MB; runs, datasets and reports of the job take a few.
DISK_MB = 96


class Site:
    """The schedule's surroundings, which end with the block."""

    def __init__(self, schedule: Schedule, servers: Servers, folder: Path) -> None:
        self.schedule, self.servers, self.folder = schedule, servers, folder
        self.scratch = folder / "scratch"
        self.proxy: Proxy | None = None
        self.clock = folder / "clock"
        self.worker: subprocess.Popen[bytes] | None = None
        """`prefect worker`"""
        self.worker_log = folder / "worker.log"
        self.base = str(folder / "out")
        self.environment: dict[str, str] = {}
        self._open = contextlib.ExitStack()
        self._heals: list[tuple[float, Callable[[], None]]] = []

    def __enter__(self) -> Site:
        try:
            self._prepare()
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        self.heal()
        self._open.close()

    @property
    def spared(self) -> set[int]:
        """Children of this process that no schedule has to end."""
        return self.servers.processes

    def later(self, seconds: float, heal: Callable[[], None]) -> None:
        """Have it done when the time has come."""
        self._heals.append((time.monotonic() + seconds, heal))

    def tend(self) -> bool:
        """Do what is due; whether anything is still to come."""
        now = time.monotonic()
        due = [heal for when, heal in self._heals if when <= now]
        self._heals = [each for each in self._heals if each[0] > now]
        for heal in due:
            heal()
        return bool(self._heals)

    def heal(self) -> None:
        """Everything at once."""
        heals, self._heals = self._heals, []
        for _, heal in heals:
            heal()

    def start_worker(self) -> None:
        """A Prefect worker that starts the deployment's runs."""
        self.worker = start_prefect_worker(self.environment, self.worker_log)

    def end_worker(self) -> None:
        """Stop it, where there is one."""
        if self.worker is not None:
            stop(self.worker)

    def _prepare(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        kinds = {fault.kind for fault in self.schedule.faults}
        if "scratch full" in kinds:
            self._open.enter_context(small_file_system(self.scratch, DISK_MB))
        if "store full" in kinds:
            self._open.enter_context(small_file_system(Path(self.base), DISK_MB))
        temporary = tempfile.mkdtemp(prefix="chaos-", dir="/tmp")
        self._open.callback(shutil.rmtree, temporary, ignore_errors=True)
        self.temporary = Path(temporary)
        self.environment = {
            **self._prefect(),
            "COURANT_SCRATCH": str(self.scratch),
            "TMPDIR": temporary,
            "HOME": str(self.folder / "home"),
        }
        if self.schedule.store == "s3":
            self._put_behind_a_proxy()
        if "clock set back" in kinds:
            self._put_under_a_clock()
        if self.schedule.deployed:
            self.start_worker()
            self._open.callback(self.end_worker)

    def _prefect(self) -> dict[str, str]:
        if self.schedule.server == "none":
            return self.servers.environment("none")
        if self.schedule.server == "postgres":
            database = self.servers.postgres.url
            environment = self.servers.environment("postgres-home")
            environment["PREFECT_API_DATABASE_CONNECTION_URL"] = database
            return self.servers.open_prefect("over-postgres", environment, self._open)
        return self.servers.deployment

    def _put_behind_a_proxy(self) -> None:
        server = self.servers.s3.server
        self.proxy = Proxy(server.endpoint)
        endpoint = self._open.enter_context(self.proxy.running())
        self.base = f"{server.url}/{self.folder.name}-{time.time_ns()}"
        self.environment |= {**server.environment, "AWS_ENDPOINT_URL": endpoint}

    def _put_under_a_clock(self) -> None:
        self.set_clock(0)
        library = self.folder / "clock.so"
        source = Path(__file__).with_name("clock.c")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
        self.environment |= {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(self.clock)}

    def set_clock(self, seconds: int) -> None:
        """The wall clock of the command and of its processes, against the machine's."""
        part = self.clock.with_suffix(".part")
        part.write_text(f"{seconds:+d}\n")
        part.replace(self.clock)
