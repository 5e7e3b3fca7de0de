"""Read the settings of the flows and the command line from the environment.

COURANT_STORE, _RUNS, _REPORTS   places of datasets, trained models and reports: courant-data/...
COURANT_SCRATCH     running cases, on a local disk: ~/.cache/courant/scratch, or in $XDG_CACHE_HOME
RAY_ADDRESS         http://head:8265 submits jobs to that Ray cluster, head:6379 joins it
COURANT_JOB_ENV     comma-separated names of variables that a submitted job gets
COURANT_MODELS      modules that register models of your own, read by courant.models
COURANT_LOG_FORMAT  text, or json: log lines as objects on standard error, with ids
PREFECT_API_URL     the server whose pages show the stages; without it commands need no server

S3 clients read the AWS variables themselves.
"""

import os
import re
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal, cast, get_args
from urllib.parse import urlsplit

from courant.loopback import LOOPBACK
from simgen.errors import InputError
from simgen.log_lines import Format
from simgen.whole_file import cache_folder, local_path

#: Whole numbers beyond 64 bits make Prefect's database unreadable.
MAX_SEED = 2**32 - 1
MOST_TIME_S = 2_000_000
"""Limit of a case's meshing, and of its solver: operating systems wait no longer"""
STORE, RUNS, REPORTS = "courant-data/store", "courant-data/runs", "courant-data/reports"
ANSWER_S = 10.0  # For Prefect's server to answer


@dataclass(frozen=True)
class Settings:
    """URLs are local paths or s3://bucket/prefix; the scratch folder is local to each node."""

    store: str
    runs: str | None
    reports: str | None
    scratch: str
    ray_address: str | None
    job_variables: tuple[str, ...]
    log_format: Format = "text"

    @property
    def jobs_address(self) -> str | None:
        """The address for jobs; None where Ray is embedded or joined."""
        address = self.ray_address or ""
        return address.rstrip("/") if address.startswith(("http://", "https://")) else None

    def store_url(self, given: str | None = None) -> str:
        """Return the URL of the store that is given, else of COURANT_STORE."""
        return absolute(given or self.store).rstrip("/")


def load_settings() -> Settings:
    """Read the settings of this process."""
    # Empty is as good as not set: it would be the folder that a command happens to run in.
    given = {name: value for name, value in os.environ.items() if value}
    log_format = given.get("COURANT_LOG_FORMAT", "text")
    if log_format not in get_args(Format):
        formats = " or ".join(get_args(Format))
        raise InputError(f"COURANT_LOG_FORMAT is {log_format!r}; give {formats}")
    return Settings(
        store=given.get("COURANT_STORE", STORE),
        runs=given.get("COURANT_RUNS"),
        reports=given.get("COURANT_REPORTS"),
        scratch=given.get("COURANT_SCRATCH") or str(cache_folder("scratch")),
        ray_address=given.get("RAY_ADDRESS"),
        job_variables=tuple(re.findall(r"[^\s,]+", given.get("COURANT_JOB_ENV", ""))),
        log_format=cast(Format, log_format),
    )


def beside(
    run: str, kind: Literal["reports", "analysis", "optimisations"], given: str | None = None
) -> str:
    """Return the URL of what is made of a run: as `given`, or beside the folder of the runs.

    Of FOLDER/runs/NAME it is FOLDER/<kind>/NAME, unless COURANT_REPORTS names a place of reports.
    """
    if given is not None:
        return absolute(given)
    runs, _, name = absolute(run).rstrip("/").rpartition("/")
    place = load_settings().reports if kind == "reports" else None
    place = place or f"{runs.rpartition('/')[0]}/{kind}"
    return f"{absolute(place).rstrip('/')}/{name.removesuffix('.zip')}"


def absolute(url: str) -> str:
    """Return a URL that means the same in every process; InputError for half a URL of S3."""
    if url.startswith("s3:") and not re.match(r"s3://[^/]", url):
        raise InputError(f"the URL {url} names no bucket; write s3://bucket/prefix")
    return url if "://" in url else str(local_path(url))


def check_folder(place: str) -> None:
    """Raise InputError if a local folder cannot be written."""
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


def check_job_reach(place: str) -> None:
    """Raise InputError if jobs go to a cluster that does not see a folder that they are to use."""
    address = load_settings().jobs_address
    if address and "://" not in place and host_of(address) not in LOOPBACK:
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


def prefect_url() -> str | None:
    """Return PREFECT_API_URL; None where it is not set."""
    return os.environ.get("PREFECT_API_URL") or None


def check_prefect(url: str) -> None:
    """Raise InputError where no server answers: a proxy that asks for a password is an answer."""
    import httpx

    try:
        if httpx.get(f"{url}/health", timeout=ANSWER_S).status_code < 500:
            return
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):  # no server, or no address of one
        pass
    raise InputError(
        f"Prefect's server at {url} (PREFECT_API_URL) does not answer; start it, or unset"
        " PREFECT_API_URL: no command needs a server"
    )
