"""Servers that outlive a schedule, started when first asked for: Prefect's, S3, PostgreSQL."""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from bench.chaos.kinds import POSTGRES
from tests.conftest import BUCKET, KEYS, S3Server, SeaweedFS, free_ports
from tests.end_to_end.conftest import BIN, run, running_prefect_server, stop

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
            found.add(s3.process)
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

    @cached_property
    def prefect(self) -> dict[str, str]:
        """The environment of a process that talks to the running Prefect server."""
        return self.open_prefect("shared", self.environment("shared"), self._open)

    def open_prefect(
        self, name: str, environment: dict[str, str], until: contextlib.ExitStack
    ) -> dict[str, str]:
        """A server that lives until the stack is closed; the environment of its clients."""
        before = _children()
        server = running_prefect_server(environment, self.folder / f"{name}.log")
        running = until.enter_context(server)
        (process,) = _children() - before
        self._started.append(process)
        until.callback(self._started.remove, process)
        return running

    @cached_property
    def deployment(self) -> dict[str, str]:
        """As `prefect`, with the work pool and the deployments of the README."""
        pool = ["work-pool", "create", "local", "--type", "process", "--overwrite"]
        for command in (pool, ["--no-prompt", "deploy", "--all"]):
            done = run(self.prefect, "prefect", *command)
            if done.returncode:
                raise RuntimeError(done.stdout + done.stderr)
        return self.prefect

    @cached_property
    def s3(self) -> RestartableS3:
        folder = self.folder / "s3"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        s3 = RestartableS3(folder)
        self._open.callback(s3.stop)
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


class RestartableS3:
    """A SeaweedFS that is killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._server = SeaweedFS(folder)
        self.server: S3Server = self._server.start()
        self.url = f"s3://{BUCKET}"
        self.keys = {**KEYS, "AWS_REGION": "us-east-1"}

    @property
    def process(self) -> int | None:
        running = self._server.process
        return running.pid if running else None

    def restart(self) -> None:
        self._server.kill()
        self._server.start()

    def stop(self) -> None:
        self._server.stop()


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


def _children() -> set[int]:
    found: set[int] = set()
    for listed in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found |= set(map(int, listed.read_text().split()))
    return found


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
