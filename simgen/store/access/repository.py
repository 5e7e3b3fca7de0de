"""Open the Icechunk repository at a local path or s3://bucket/prefix, with one-line errors.

S3 credentials come from the standard AWS chain (variables, profile, instance role), the endpoint
from AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL. No secret is ever part of a URL or written to a
dataset.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fsspec
import icechunk

from simgen.errors import InputError, StoreError
from simgen.store.access.local_files import check_regular, local_path, sync_all
from simgen.store.format.damage import describe_damage, reason_in

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

BRANCH = "main"
ENDPOINT_TIMEOUT_S = 5.0
#: How long another writer's creation of a repository may take.
CREATION_S = 5.0
#: How long its branch may be missing after its first commit.
BRANCH_S = 2.0

# At every opening Icechunk warns that local files are not safe for concurrent commits (`lock.py`
# handles that), and it prints several lines for each error that it raises.
icechunk.set_logs_filter("off")


class _Process:
    """The process whose threads read for Icechunk; they do not survive a fork."""

    id: int | None = None


def check_process(url: str) -> None:
    """Raise StoreError in a process that was forked from one that had opened a store.

    Icechunk would wait for ever for threads that only the other process has.
    """
    _Process.id = _Process.id or os.getpid()
    if _Process.id != os.getpid():
        raise StoreError(
            f"{url} cannot be read here: this process was forked from one that had opened a"
            ' dataset; start it by "spawn", such as a DataLoader\'s with'
            ' multiprocessing_context="spawn"'
        )


class LostBranchError(StoreError):
    """The reference that everything starts from is missing or damaged."""


def open_repository(url: str, *, create: bool = False) -> icechunk.Repository:
    """Open the repository at `url`.

    Raises InputError where there is none (unless `create`), StoreError where the store cannot be
    reached.
    """
    check_process(url)
    _check_name(url)
    with translated(url):
        storage = _storage(url, create)
        if icechunk.Repository.exists(storage):
            return icechunk.Repository.open(storage, config=_config())
        if _has_commits(url):
            # A writer that creates the repository writes its first commit before the branch.
            if not _appears(storage, BRANCH_S):
                raise LostBranchError(_lost_branch(url))
            return icechunk.Repository.open(storage, config=_config())
        if not create:
            raise InputError(f"there is no dataset at {url}; {_way_to_one(url)}")
        try:
            created = icechunk.Repository.create(storage, config=_config())
            sync_all(url)
            return created
        except icechunk.IcechunkError:
            if not _appears(storage, CREATION_S):
                raise
            return icechunk.Repository.open(storage, config=_config())  # another writer was quicker


def repository_exists(url: str) -> bool:
    """Tell whether `open_repository` would open rather than create."""
    check_process(url)
    _check_name(url)
    with translated(url):
        if "://" not in url and not local_path(url).exists():
            return False
        return icechunk.Repository.exists(_storage(url, create=False))


def _check_name(url: str) -> None:
    """Raise InputError for a local path that is no UTF-8, which Icechunk cannot open."""
    if "://" in url:
        return
    try:
        str(local_path(url)).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{url} is in a folder whose name is no UTF-8; choose another") from error


def _appears(storage: icechunk.Storage, within_s: float) -> bool:
    """Tell whether there is a repository, or will be in a moment.

    Another writer may be creating it.
    """
    deadline = time.monotonic() + within_s
    while not icechunk.Repository.exists(storage):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _config() -> icechunk.RepositoryConfig:
    return icechunk.RepositoryConfig(
        # Chunks of a few numbers (volumes of a tiny case, times) are kept inside the manifest, not
        # as objects.
        inline_chunk_threshold_bytes=1024,
        # By default each session fetches the manifests of up to fifty arrays with names such as
        # `time`, of any cases.
        manifest=icechunk.ManifestConfig(preload=icechunk.ManifestPreloadConfig(max_total_refs=0)),
    )


def _storage(url: str, create: bool) -> icechunk.Storage:
    if url.startswith("s3://"):
        return _s3_storage(url)
    if "://" in url:
        raise InputError(
            f"store URL {url} is of no known kind; use a local path or s3://bucket/prefix"
        )
    path = local_path(url)
    if create:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied", str(path))
    elif not path.is_dir():  # Icechunk panics at a file
        reason = "it is a file" if path.exists() else "the folder does not exist"
        raise InputError(f"there is no dataset at {url}: {reason}; {_way_to_one(url)}")
    check_regular(path, url)
    return icechunk.local_filesystem_storage(str(path))


def _way_to_one(url: str) -> str:
    """Say how to make the dataset that is missing; a command only where it would work."""
    from simgen.cases import FAMILIES  # which only this line needs

    store, _, family = url.rpartition("/")
    if family in FAMILIES:
        return f"make it with: courant generate {family} --store {store or '.'}"
    return "a dataset is a folder in a store, and has the name of its family"


def _s3_storage(url: str) -> icechunk.Storage:
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    if not bucket:
        raise InputError(f"store URL {url} names no bucket; write s3://bucket/prefix")
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    options: dict[str, Any] = {}
    if endpoint:
        _check_endpoint(url, endpoint)
        # Self-hosted servers rarely have a domain name per bucket.
        options = {
            "endpoint_url": endpoint,
            "allow_http": endpoint.startswith("http://"),
            "force_path_style": True,
        }
    region = (
        os.environ.get("AWS_REGION")
        or os.environ.get("AWS_DEFAULT_REGION")
        or ("us-east-1" if endpoint else None)
    )
    return icechunk.s3_storage(
        bucket=bucket, prefix=prefix.strip("/"), region=region, from_env=True, **options
    )


def _check_endpoint(url: str, endpoint: str) -> None:
    """Check once that the endpoint listens; the S3 client tries a dead one for half a minute."""
    try:
        parts = urlsplit(endpoint)
        port = parts.port or (80 if parts.scheme == "http" else 443)
    except ValueError as error:
        raise InputError(f"AWS_ENDPOINT_URL={endpoint} is no address: {error}") from error
    try:
        socket.create_connection((parts.hostname or "", port), timeout=ENDPOINT_TIMEOUT_S).close()
    except OSError as error:
        raise StoreError(
            f"store {url} cannot be reached at {endpoint} ({error.strerror or error}): check"
            " AWS_ENDPOINT_URL and the network"
        ) from error


@contextlib.contextmanager
def translated(url: str) -> Iterator[None]:
    """Turn errors of Icechunk and the operating system into one line.

    It names the store and the way out.
    """
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"store {url} cannot be used: {error.strerror or error}; choose another path or mend"
            " its permissions"
        ) from error
    except icechunk.IcechunkError as error:
        if "fetch_branch" in str(error) and "cannot serialize ref json" in str(error):
            raise LostBranchError(_lost_branch(url)) from error
        what = describe_damage(error)
        if what is not None:
            raise StoreError(f"store {url} is damaged ({what}); restore it from a copy") from error
        raise StoreError(explain(url, str(error))) from error


def _has_commits(url: str) -> bool:
    """Tell whether there are commits although the branch is missing.

    Icechunk sees no repository then.
    """
    from botocore.exceptions import BotoCoreError

    try:
        # A fresh instance: an older one may know another endpoint or other keys.
        files, path = fsspec.core.url_to_fs(url, skip_instance_cache=True)
        return bool(files.isdir(f"{path}/snapshots") and files.ls(f"{path}/snapshots"))
    except (OSError, BotoCoreError):
        # Unreachable now; the next request fails too, with its own message.
        return False


def folders_in(url: str) -> list[str]:
    """List the names of the folders in a store; empty where it cannot be read."""
    from botocore.exceptions import BotoCoreError

    try:
        files, path = fsspec.core.url_to_fs(url, skip_instance_cache=True)
        found = files.ls(path, detail=True) if files.isdir(path) else []
    except (OSError, BotoCoreError):
        return []
    return sorted(Path(each["name"]).name for each in found if each["type"] == "directory")


def _lost_branch(url: str) -> str:
    return f"{url}: its branch {BRANCH} is missing or damaged; " + (
        f"restore refs/branch.{BRANCH} from a copy"
        if "://" in url
        else f"make it again with: courant dataset gc {url}"
    )


def explain(url: str, message: str) -> str:
    """Explain what a failed request to a store most likely means."""
    text = reason_in(message.replace(url, ""))
    if any(
        sign in text
        for sign in (
            "invalidaccesskeyid",
            "signaturedoesnotmatch",
            "accessdenied",
            " 403 ",
            "forbidden",
            "not authorized",
        )
    ):
        return (
            f"store {url} refused the credentials: check AWS_ACCESS_KEY_ID and"
            " AWS_SECRET_ACCESS_KEY (or AWS_PROFILE)"
        )
    if "nosuchbucket" in text or "bucket does not exist" in text:
        return f"store {url}: the bucket does not exist; create it first"
    if any(
        sign in text
        for sign in (
            "credentials provider",
            "no credentials",
            "credentialsnotloaded",
            "loading credentials",
        )
    ):
        return (
            f"store {url}: no S3 credentials found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            " (or AWS_PROFILE)"
        )
    if any(
        sign in text
        for sign in (
            "dispatch failure",
            "connection",
            "timeout",
            "timed out",
            "io error",
            "dns",
            "unreachable",
        )
    ):
        endpoint = (
            os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or "AWS"
        )
        return (
            f"store {url} cannot be reached at {endpoint}: check the network and AWS_ENDPOINT_URL"
        )
    if any(
        sign in text for sign in ("no space left", "file too large", "disk quota", "storage full")
    ):
        return (
            f"store {url} cannot be written: there is no room left; make room and run again, what"
            " was committed stays"
        )
    if "permission denied" in text:
        return (
            f"store {url} cannot be used: permission denied; check who may read and write its files"
        )
    if "read-only" in text:
        return (
            f"store {url} cannot be written: it is on a read-only file system; choose another path"
        )
    lines = [
        line.strip(" \t×").removeprefix("x ") for line in _COLOURS.sub("", message).splitlines()
    ]
    first = next(filter(None, lines), "no reason given")
    return f"store {url} failed: {first}; where that lasts, restore it from a copy"
