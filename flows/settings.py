"""Read the settings of the flows and the command line from the environment.

S3 clients read the AWS variables themselves.

COURANT_STORE                datasets, one per family
                             default: courant-data/store
COURANT_RUNS                 trained models
                             default: courant-data/runs
COURANT_REPORTS              reports
                             default: courant-data/reports
COURANT_SCRATCH              running cases, on a local disk
                             default: ~/.cache/courant/scratch (in $XDG_CACHE_HOME where it is set)
RAY_ADDRESS                  http://head:8265 submits jobs to that Ray cluster, head:6379 joins it
                             default: processes of this machine; for sweeps and benchmarks a Ray
                             on loopback
COURANT_JOB_ENV              comma-separated names of variables that a submitted job gets from this
                             environment
                             default: none
COURANT_MODELS               modules that register models of your own, read by courant.models
                             default: none
COURANT_LOG_FORMAT           text, or json: log lines as objects on standard error, with the ids of
                             dataset, case, flow run and training run
                             default: text
PREFECT_API_URL              the server whose pages show the stages of each command
                             default: none; commands need no server
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import cast, get_args
from urllib.parse import urlsplit

from simgen.errors import InputError
from simgen.log_lines import Format
from simgen.store.local_files import local_path

#: Whole numbers beyond 64 bits make Prefect's database unreadable.
MAX_SEED = 2**32 - 1
MOST_TIME_S = 2_000_000
"""What a case may be given to be meshed, and to be solved: operating systems wait no longer"""
STORE, RUNS, REPORTS = "courant-data/store", "courant-data/runs", "courant-data/reports"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Hosts that mean this machine"""


@dataclass(frozen=True)
class Settings:
    """URLs are local paths or s3://bucket/prefix; the scratch folder is local to each node."""

    store: str
    runs: str
    reports: str
    scratch: str
    ray_address: str | None
    job_variables: tuple[str, ...]
    log_format: Format = "text"

    @property
    def jobs_address(self) -> str | None:
        """The address for jobs; None where Ray is embedded or joined."""
        address = self.ray_address or ""
        return address.rstrip("/") if address.startswith(("http://", "https://")) else None


def load_settings() -> Settings:
    """Read the settings of this process."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Settings(
        # Empty is as good as not set: it would be the folder that a command happens to run in.
        store=os.environ.get("COURANT_STORE") or STORE,
        runs=os.environ.get("COURANT_RUNS") or RUNS,
        reports=os.environ.get("COURANT_REPORTS") or REPORTS,
        scratch=os.environ.get("COURANT_SCRATCH")
        or str(Path(cache).expanduser() / "courant" / "scratch"),
        ray_address=os.environ.get("RAY_ADDRESS") or None,
        job_variables=tuple(
            filter(None, map(str.strip, os.environ.get("COURANT_JOB_ENV", "").split(",")))
        ),
        log_format=_log_format(),
    )


def _log_format() -> Format:
    given = os.environ.get("COURANT_LOG_FORMAT") or "text"
    if given not in get_args(Format):
        raise InputError(f"COURANT_LOG_FORMAT is {given!r}; give {' or '.join(get_args(Format))}")
    return cast(Format, given)


def absolute(url: str) -> str:
    """Make a URL mean the same in every process of this machine: local paths become absolute.

    InputError for what is meant as S3 and would become a local folder named `s3:`, and for the home
    of an unknown user.
    """
    if url.startswith("s3:") and not re.match(r"s3://[^/]", url):
        raise InputError(f"the URL {url} names no bucket; write s3://bucket/prefix")
    return url if "://" in url else str(local_path(url))


def check_folder(place: str) -> None:
    """Raise InputError if a local folder cannot be written; what it takes to find out is little."""
    if "://" in place:
        return
    path = local_path(place)
    there = next(each for each in (path, *path.parents) if each.exists())
    if not there.is_dir():
        raise InputError(f"{place} cannot be written: {there} is a file; choose another folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"{place} cannot be written: permission denied in {there}")


def host_of(address: str) -> str | None:
    """Return the host of an address; InputError where it is none."""
    try:
        return urlsplit(address).hostname
    except ValueError as error:
        raise InputError(f"{address} is no address ({error}); give http://host:port") from None


def check_reach(address: str, place: str) -> None:
    """Raise InputError if the Ray cluster at `address` does not see a folder that it is to use."""
    if "://" not in place and host_of(address) not in LOOPBACK:
        raise InputError(
            f"{place} is a folder of this machine, which the Ray cluster at {address} (RAY_ADDRESS)"
            " does not see; give stores and runs as s3://bucket/prefix"
        )


def keep_loopback_direct() -> None:
    """Have no client of this process reach this machine's own servers through a proxy."""
    for name in ("NO_PROXY", "no_proxy"):
        given = [part for part in os.environ.get(name, "").split(",") if part]
        os.environ[name] = ",".join(dict.fromkeys([*given, *LOOPBACK]))
    # Prefect's client ends at its start where it finds a SOCKS proxy and not this package.
    for name in ("ALL_PROXY", "all_proxy"):
        if os.environ.get(name, "").startswith("socks") and find_spec("socksio") is None:
            del os.environ[name]


def prefect_defaults(verbose: bool = False) -> None:
    """Set what Prefect needs inside one command; the user's own variables win."""
    defaults = {
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        # The command prints what a person needs to know; Prefect would repeat each error with its
        # traceback.
        "PREFECT_LOGGING_LEVEL": "INFO" if verbose else "CRITICAL",
    }
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
