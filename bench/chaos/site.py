"""Where one schedule takes place: folders, environment, servers, and what heals when."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.chaos.schedule import Schedule
from bench.chaos.servers import Servers, small_file_system
from tests.end_to_end.conftest import BIN, ROOT, stop
from tests.store.proxy import Proxy

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

    @property
    def server(self) -> str:
        """Prefect's, by the name of its database."""
        return self.schedule.server

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
        """A Prefect worker that takes up the deployment's runs."""
        with self.worker_log.open("ab") as log:
            self.worker = subprocess.Popen(
                [str(BIN / "prefect"), "worker", "start", "--pool", "local"],
                env=self.environment,
                cwd=ROOT,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

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
        s3 = self.servers.s3
        self.proxy = Proxy(s3.server.endpoint)
        endpoint = self._open.enter_context(self.proxy.running())
        self.base = f"{s3.url}/{self.folder.name}-{time.time_ns()}"
        self.environment |= {**s3.keys, "AWS_ENDPOINT_URL": endpoint}

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
