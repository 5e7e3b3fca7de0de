"""Settings of the flows and the command line, from the environment. S3 clients read the AWS variables themselves.

COURANT_STORE      datasets, one per family         default courant-data/store
COURANT_RUNS       trained models                   default courant-data/runs
COURANT_REPORTS    reports                          default courant-data/reports
COURANT_SCRATCH    running cases, on a local disk   default <the system's temporary folder>/courant-<user id>
RAY_ADDRESS        http://head:8265: jobs are submitted to that Ray cluster; head:6379: it is joined; default: an embedded Ray
COURANT_JOB_ENV    names of variables, comma-separated, that a submitted job gets from this environment
COURANT_MODELS     modules that register models of your own; read by courant.models wherever an experiment is
COURANT_PREFECT_PATIENCE_S
                   for how long the server of PREFECT_API_URL may be away, in seconds       default 120
"""

from __future__ import annotations

import math
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from simgen.errors import InputError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Hosts that mean this machine."""


@dataclass(frozen=True)
class Settings:
    """URLs are local paths or s3://bucket/prefix; the scratch folder is local to each node."""

    store: str
    runs: str
    reports: str
    scratch: str
    ray_address: str | None
    job_variables: tuple[str, ...]
    prefect_patience_s: float = 120.0

    @property
    def jobs_address(self) -> str | None:
        """Where jobs are submitted to; None where Ray is embedded or joined."""
        address = self.ray_address or ""
        return address.rstrip("/") if address.startswith(("http://", "https://")) else None


def load_settings() -> Settings:
    """The settings of this process."""
    return Settings(
        store=os.environ.get("COURANT_STORE", "courant-data/store"),
        runs=os.environ.get("COURANT_RUNS", "courant-data/runs"),
        reports=os.environ.get("COURANT_REPORTS", "courant-data/reports"),
        scratch=os.environ.get("COURANT_SCRATCH", str(Path(tempfile.gettempdir()) / f"courant-{os.getuid()}")),
        ray_address=os.environ.get("RAY_ADDRESS") or None,
        job_variables=tuple(filter(None, map(str.strip, os.environ.get("COURANT_JOB_ENV", "").split(",")))),
        prefect_patience_s=_seconds("COURANT_PREFECT_PATIENCE_S", 120.0),
    )


def _seconds(name: str, default: float) -> float:
    given = os.environ.get(name) or str(default)
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not seconds > 0:
        raise InputError(f"{name} is {given!r}; give seconds above 0, such as {default:g}")
    return seconds


def absolute(url: str) -> str:
    """A URL that means the same in every process on this machine: local paths made absolute."""
    return url if "://" in url else str(Path(url).expanduser().absolute())


def embedded_defaults() -> None:
    """What Prefect and Ray need to run inside one command; whatever the user has set stands."""
    defaults = {
        # The embedded API server creates its database at first start, which takes a slow machine more than the usual 20 s.
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        # The command prints what a person needs to know; Prefect would repeat each error with its traceback.
        "PREFECT_LOGGING_LEVEL": "CRITICAL",
        # On a busy machine a server needs longer to start again than Prefect's five attempts take.
        "PREFECT_CLIENT_MAX_RETRIES": "6",
        # Asked by every task as it starts, and fatal to it while the server is away.
        "PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED": "false",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
