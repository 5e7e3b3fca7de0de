"""Open the Icechunk repository at a local path or s3://bucket/prefix, and commit to it.

Notable properties:
- Every failure is one line that names the store and the way out (`store_error`).
- One committer at a time on a local path: S3 refuses a second commit by itself (conditional
  writes), Icechunk's file storage does not.
- A local commit is durable once it is reported. Icechunk writes files without a single fsync; a
  power cut would leave a branch that names commits whose files are empty.

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
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import fsspec
import icechunk
import zarr
import zarr.errors
from filelock import FileLock, Timeout

from simgen.errors import InputError, SimgenError, StoreError
from simgen.store.local_files import check_regular, local_path, sync_all, sync_file
from simgen.store.schema import DamagedError

BRANCH = "main"
PUBLICATION, VERSION = "publication", "version"
"""Keys of a commit's metadata: the version that it publishes; the number of the newest so far"""
ENDPOINT_TIMEOUT_S = 5.0
#: How long another writer's creation of a repository may take.
CREATION_S = 5.0
#: How long its branch may be missing after its first commit.
BRANCH_S = 2.0
#: How long to wait for another committer.
WAIT_S = 60.0
#: The wait before each attempt at a commit, where other writers may interfere; a commit takes some
#: tens of milliseconds.
RETRY_PAUSES_S = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
#: How far the clock may be behind the newest commit for the next one to wait.
CLOCK_TOLERANCE_S = 30.0
_VERSION_NAME = re.compile(r"v([1-9][0-9]{0,8})")
T = TypeVar("T")

#: Icechunk 2 writes another format by default, which Icechunk 1 cannot read.
_FORMAT: dict[str, Any] = {} if icechunk.__version__.startswith("1.") else {"spec_version": 1}

# At every opening Icechunk warns that local files are not safe for concurrent commits, which
# `committing` handles, and it prints several lines for each error that it raises.
icechunk.set_logs_filter("off")


def version_number(name: str) -> int | None:
    """Return 3 for v3; None for any other name."""
    return int(name[1:]) if _VERSION_NAME.fullmatch(name) else None


# Opening.


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
                raise _lost_branch(url)
            return icechunk.Repository.open(storage, config=_config())
        if not create:
            raise InputError(f"there is no dataset at {url}; {_way_to_one(url)}")
        try:
            created = icechunk.Repository.create(storage, config=_config(), **_FORMAT)
            sync_all(url)
            return created
        except icechunk.IcechunkError:
            if not _appears(storage, CREATION_S):
                raise
            return icechunk.Repository.open(storage, config=_config())  # another writer was quicker


def repository_exists(url: str) -> bool:
    """Check whether `open_repository` would open rather than create."""
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


def root_of(repository: icechunk.Repository, snapshot_id: str) -> zarr.Group:
    """Open the root group of a snapshot to read it."""
    session = repository.readonly_session(snapshot_id=snapshot_id)
    return zarr.open_group(session.store, mode="r")


def is_empty(repository: icechunk.Repository, snapshot_id: str) -> bool:
    """Check whether its creation was interrupted: a first, empty snapshot and no root group."""
    return repository.lookup_snapshot(snapshot_id).parent_id is None


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


def _appears(storage: icechunk.Storage, within_s: float) -> bool:
    """Wait for a repository that another writer may be creating; return whether it is there."""
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


def _has_commits(url: str) -> bool:
    """Check for commits although the branch is missing; Icechunk sees no repository then."""
    from botocore.exceptions import BotoCoreError

    try:
        # A fresh instance: an older one may know another endpoint or other keys.
        files, path = fsspec.core.url_to_fs(url, skip_instance_cache=True)
        return bool(files.isdir(f"{path}/snapshots") and files.ls(f"{path}/snapshots"))
    except (OSError, BotoCoreError):
        # Unreachable now; the next request fails too, with its own message.
        return False


def _lost_branch(url: str) -> LostBranchError:
    way_out = (
        f"restore refs/branch.{BRANCH} from a copy"
        if "://" in url
        else f"make it again with: courant dataset gc {url}"
    )
    return LostBranchError(f"{url}: its branch {BRANCH} is missing or damaged; {way_out}")


def folders_in(url: str) -> list[str]:
    """List the names of the folders in a store; empty where it cannot be read."""
    from botocore.exceptions import BotoCoreError

    try:
        files, path = fsspec.core.url_to_fs(url, skip_instance_cache=True)
        found = files.ls(path, detail=True) if files.isdir(path) else []
    except (OSError, BotoCoreError):
        return []
    return sorted(Path(each["name"]).name for each in found if each["type"] == "directory")


# Committing.


@contextlib.contextmanager
def committing(url: str) -> Iterator[None]:
    """Hold the dataset's lock; wait for another committer on this machine.

    The lock's file is next to the dataset's folder (`store/.cylinder-flow.lock`), since Icechunk
    creates a repository only in an empty folder. The kernel releases it when its holder dies.

    StoreError where the wait takes over a minute.
    """
    if "://" in url:
        yield
        return
    folder = local_path(url).resolve()
    lock = FileLock(folder.parent / f".{folder.name}.lock", timeout=WAIT_S, poll_interval=0.02)
    with translated(url):
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire()
        except Timeout:
            raise StoreError(
                f"{url}: another process has been committing to it for {WAIT_S:g} s; wait for it"
                " or stop it, and run again"
            ) from None
    try:
        yield
    finally:
        lock.release()


class ConflictError(Exception):
    """Another writer has moved the branch meanwhile."""


def commit(
    repository: icechunk.Repository,
    url: str,
    session: icechunk.Session,
    message: str,
    metadata: Mapping[str, Any],
) -> str:
    """Commit a session's changes, durable once this returns; return the commit's id.

    Everything is on the disk before the branch names it, and so is the branch's own file before
    the commit is reported: a power cut takes back what was not reported, and no more.

    Raises ConflictError where another writer has committed since the session was opened.
    """
    parent = session.snapshot_id
    published = version_number(str(metadata.get(PUBLICATION)))
    newest = published or newest_in_history(repository, parent)
    commit_id = session.flush(message, metadata={**metadata, VERSION: newest})
    sync_all(url)
    try:
        repository.reset_branch(BRANCH, commit_id, from_snapshot_id=parent)
    except icechunk.IcechunkError as error:
        if "update conflict" in str(error):
            raise ConflictError from error
        raise
    sync_file(url, f"refs/branch.{BRANCH}/ref.json")
    return commit_id


def history(repository: icechunk.Repository, commit_id: str) -> Iterator[icechunk.SnapshotInfo]:
    """Return a commit and those before it, the newest first.

    DamagedError where they go in a circle, as where a commit has the content of a later one.
    """
    seen = set()
    for each in repository.ancestry(snapshot_id=commit_id):
        if each.id in seen:
            raise DamagedError("its commits go in a circle")
        seen.add(each.id)
        yield each


def newest_in_history(repository: icechunk.Repository, commit_id: str) -> int:
    """Return the number of the newest version up to a commit, as the commit itself says."""
    for each in history(repository, commit_id):
        published = version_number(str(each.metadata.get(PUBLICATION)))
        if published or VERSION in each.metadata:
            return published or int(each.metadata[VERSION])
    return 0


def until_landed(url: str, attempt: Callable[[], T]) -> T:
    """Retry `attempt` while other writers interfere, or their clocks are a little ahead.

    Each try covers everything from the first look at the store to the commit.
    """
    behind = 0.0
    for pause in RETRY_PAUSES_S:
        time.sleep(max(pause, behind))
        behind = 0.0
        with committing(url):
            try:
                return attempt()
            except ConflictError:
                continue
            except (icechunk.IcechunkError, OSError, ValueError) as error:
                behind = _seconds_behind(error) or 0.0
                if 0 < behind <= CLOCK_TOLERANCE_S:
                    continue
                raise store_error(url, error, "its newest state") from error
    raise StoreError(
        f"{url}: other writers kept committing at the same time;"
        " run again, what was committed stays"
    )


# Errors. Icechunk has one class for all of them, so its words say what failed.


class DamageError(StoreError):
    """A damaged place of a dataset. One line names it and the way out."""

    def __init__(self, what: str, url: str, place: str, version: str = "") -> None:
        named, option = (f" {version}", f" --version {version}") if version else ("", "")
        super().__init__(
            f"{url}{named}: {place} is damaged ({what}); restore the store from a copy, and list"
            f" all damage with: courant dataset verify {url}{option}"
        )
        self.what, self._made_of = what, (what, url, place, version)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._made_of


@contextlib.contextmanager
def translated(url: str, place: str = "", version: str = "") -> Iterator[None]:
    """Turn errors of Icechunk, Zarr and the operating system into one line, as `store_error`."""
    try:
        yield
    except (SimgenError, MemoryError, ImportError, ConflictError):
        raise
    except Exception as error:
        raise store_error(url, error, place, version) from error
    except BaseException as error:
        # Icechunk panics at a node of unknown kind, for one; its exception is no Exception.
        if type(error).__name__ != "PanicException":
            raise
        panic = ValueError(f"decoding failed: {error}")
        raise store_error(url, panic, place, version) from error


def store_error(url: str, error: Exception, place: str = "", version: str = "") -> StoreError:
    """Return the error to raise: DamageError, or StoreError with the most likely cause.

    `place` is what was read, such as `case b0159c13a91f, array velocity,`. All that is stored
    was valid when it was written, so whatever cannot be decoded is damaged.
    """
    if isinstance(error, StoreError):
        return error
    if isinstance(error, OSError):
        return StoreError(
            f"store {url} cannot be used: {error.strerror or error}; choose another path or mend"
            " its permissions"
        )
    text = str(error)
    if "fetch_branch" in text and "cannot serialize ref json" in text:
        return _lost_branch(url)
    what = damage_in(error)
    if what is not None:
        return DamageError(what, url, place or "a part of it", version)
    return StoreError(_wrong_clock(url, error) or explain(url, text))


# Icechunk names the object in the context of its errors, the object store by its location.
_OBJECTS = (
    re.compile(r"/((?:chunks|manifests|snapshots|transactions)/[0-9A-Z]{20})\b"),
    re.compile(r"\b(chunk|manifest|snapshot)(?:_id)?[ =]([0-9A-Z]{20})\b"),
)
_MISSING = ("not found", "nosuchkey", "no such file", " 404 ")
# "I/O error" is Icechunk's word for bytes that cannot be decompressed or parsed; "object store
# error" is the network's.
_UNREADABLE = (
    "i/o error",
    "flatbuffer",
    "deserialization",
    "cannot serialize",
    "invalid magic",
    "magic number",
    "icechunk object",
    "icechunk header",
    "icechunk metadata",
    "spec version",
    "parsing",
    "range",
    "node not found",
    "chunk checksum",
)
# Signs of an unreachable store, whatever else the message says: it names the object that could not
# be requested.
_UNREACHABLE = (
    "dispatch failure",
    "connection",
    "timed out",
    "timeout",
    "dns error",
    "service error",
    "access denied",
    "permission denied",
    " 403 ",
)


def damage_in(error: Exception) -> str | None:
    """Describe the damage that an error is a sign of; None if it is no sign of damage."""
    if isinstance(error, DamagedError):
        return str(error)
    if isinstance(error, KeyError | zarr.errors.NodeNotFoundError):
        return "a part of it cannot be found"  # Zarr takes an unreadable snapshot for an empty one
    if isinstance(error, OSError | MemoryError | ImportError):
        return None
    if not isinstance(error, icechunk.IcechunkError):
        is_chunk = "checksum" in str(error)  # of a table, which Zarr checks
        return "a checksum does not match" if is_chunk else "its metadata cannot be decoded"
    text = _reason_in(str(error))
    is_absent = any(sign in text for sign in ("nosuchkey", " 404 "))
    if any(sign in text for sign in _UNREACHABLE) and not is_absent:
        return None
    if any(sign in text for sign in _MISSING):
        return f"{_object_in(str(error))} is missing"
    if any(sign in text for sign in _UNREADABLE):
        return f"{_object_in(str(error))} cannot be decoded"
    return None


def _object_in(text: str) -> str:
    """Return the object that an error is about, such as manifests/SAW9GHJKSF34S2H1JV4G."""
    located = _OBJECTS[0].search(text)
    if located:
        return located.group(1)
    named = _OBJECTS[1].search(text)
    return f"{named.group(1)}s/{named.group(2)}" if named else "an object"


_PATHS = re.compile(r"(?:\b\w+:/|(?<!\w))/[^\s\"'`,)]+")
# Ids of requests and objects, and lines of Icechunk's own source: these may contain any number.
_NUMBERED = re.compile(r"\b(?=\w*\d)\w{10,}\b|\.rs:\d+")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def _reason_in(message: str) -> str:
    """Return a message in lower case without paths, addresses, ids and source lines.

    Such names say nothing of the cause: a request's id may well contain "404". Every number is
    surrounded by spaces.
    """
    words = _NUMBERED.sub("", _PATHS.sub("", message)).lower()
    return re.sub(r"(\d+)", r" \1 ", words)


def _causes(url: str, endpoint: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """List what a failed request may mean, by signs in its message, the likeliest first."""
    yield (
        (
            "invalidaccesskeyid",
            "signaturedoesnotmatch",
            "accessdenied",
            " 403 ",
            "forbidden",
            "not authorized",
        ),
        (
            f"store {url} refused the credentials: check AWS_ACCESS_KEY_ID and"
            " AWS_SECRET_ACCESS_KEY (or AWS_PROFILE)"
        ),
    )
    yield (
        ("nosuchbucket", "bucket does not exist"),
        f"store {url}: the bucket does not exist; create it first",
    )
    yield (
        ("credentials provider", "no credentials", "credentialsnotloaded", "loading credentials"),
        (
            f"store {url}: no S3 credentials found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            " (or AWS_PROFILE)"
        ),
    )
    yield (
        (
            "dispatch failure",
            "connection",
            "timeout",
            "timed out",
            "io error",
            "dns",
            "unreachable",
        ),
        f"store {url} cannot be reached at {endpoint}: check the network and AWS_ENDPOINT_URL",
    )
    yield (
        ("no space left", "file too large", "disk quota", "storage full"),
        (
            f"store {url} cannot be written: there is no room left; make room and run again, what"
            " was committed stays"
        ),
    )
    yield (
        ("permission denied",),
        f"store {url} cannot be used: permission denied; check who may read and write its files",
    )
    yield (
        ("read-only",),
        f"store {url} cannot be written: it is on a read-only file system; choose another path",
    )


def explain(url: str, message: str) -> str:
    """Explain what a failed request to a store most likely means."""
    text = _reason_in(message.replace(url, ""))
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or "AWS"
    for signs, cause in _causes(url, endpoint):
        if any(sign in text for sign in signs):
            return cause
    lines = [
        line.strip(" \t×").removeprefix("x ") for line in _COLOURS.sub("", message).splitlines()
    ]
    first = next(filter(None, lines), "no reason given")
    return f"store {url} failed: {first}; where that lasts, restore it from a copy"


# Icechunk orders snapshots by the clocks of those who commit. It takes none that is older than its
# parent, and none that is minutes away from the store's own time. The clocks of two machines differ
# by fractions of a second, so that the first passes by itself.
_EARLIER = re.compile(r"snapshot timestamp ordering. parent: `(.+?) UTC`, child: `(.+?) UTC`")
_DRIFTED = re.compile(r"object store clock: `([-\d]+ [:\d]+)")
_LOCAL = re.compile(r"local clock: `([-\d]+ [:\d]+)")


def _seconds_behind(error: Exception) -> float | None:
    """Return how far this machine's clock is behind the newest commit; None for other errors."""
    refused = _EARLIER.search(str(error)) if isinstance(error, icechunk.IcechunkError) else None
    if refused is None:
        return None
    newest, ours = map(datetime.fromisoformat, refused.groups())
    return (newest - ours).total_seconds()


def _wrong_clock(url: str, error: Exception) -> str | None:
    """Explain in one line that a commit was refused for its time; None for other errors."""
    behind = _seconds_behind(error)
    if behind is not None:
        wrong = f"{behind:.0f} s behind that of the newest commit"
    else:
        theirs, ours = _DRIFTED.search(str(error)), _LOCAL.search(str(error))
        if theirs is None or ours is None:
            return None
        there, here = (datetime.fromisoformat(found[1]) for found in (theirs, ours))
        seconds = (here - there).total_seconds()
        wrong = f"{abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'} the store's"
    return (
        f"store {url} cannot be written: this machine's clock is {wrong}; set the clock right and"
        " run again, what was committed stays"
    )
