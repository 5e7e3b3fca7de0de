"""A dataset's Icechunk repository: open it, commit to it, find its versions, delete its garbage.

Notable decisions:
- Every failure is one line that names the store and the way out (`translated`).
- One committer at a time on a local path (`committing`): S3 refuses a second commit by itself
  (conditional writes), Icechunk's file storage does not.
- A local commit is durable once it is reported. Icechunk writes files without a single fsync: a
  power cut would leave a branch that names commits whose files are empty.
- A publication is one commit, whose metadata names its version; every commit has the number of
  the newest version so far. Tags keep commits from `collect`; a writer makes a lost one again.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

import fsspec
import icechunk
import zarr
import zarr.errors
from botocore.exceptions import BotoCoreError
from filelock import FileLock, Timeout

from simgen.case import Status
from simgen.errors import InputError, SimgenError, StoreError
from simgen.store.schema import CORE_S, MismatchError, Record, Schema, bound_splits, read_design
from simgen.whole_file import local_path

BRANCH = "main"
PUBLICATION, VERSION, NUM_LEFT = "publication", "version", "num_left"
"""Keys of a commit's metadata: the version that it publishes; the number of the newest version so
far; cases that its writer has still to commit"""
#: How long to wait for another committer.
WAIT_S = 60.0
T = TypeVar("T")

#: Icechunk 2 writes another format by default, which Icechunk 1 cannot read.
_FORMAT: dict[str, Any] = {} if icechunk.__version__.startswith("1.") else {"spec_version": 1}

# At every opening Icechunk warns that local files are not safe for concurrent commits, which
# `committing` handles, and it prints several lines for each error that it raises.
icechunk.set_logs_filter("off")


# Errors. Icechunk has one class for all of them, so its words show what failed.


class DamageError(StoreError):
    """A damaged place of a dataset."""

    def __init__(self, what: str, url: str, place: str, version: str = "") -> None:
        named, option = (f" {version}", f" --version {version}") if version else ("", "")
        super().__init__(
            f"{url}{named}: {place} is damaged ({what}); restore the store from a copy, and list"
            f" all damage with: courant dataset verify {url}{option}"
        )
        self.what, self._made_of = what, (what, url, place, version)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._made_of


class ConflictError(Exception):
    """Another writer has moved the branch meanwhile."""


@contextlib.contextmanager
def translated(url: str, place: str = "", version: str = "") -> Iterator[None]:
    """Turn errors of Icechunk, Zarr and the operating system into a StoreError of one line.

    `place` is what is read, such as `case b0159c13a91f, array velocity,`. All that is stored
    was valid when it was written, so whatever cannot be decoded is damaged.
    """
    try:
        yield
    except (SimgenError, MemoryError, ImportError, ConflictError):
        raise
    except UnicodeEncodeError as error:
        message = f"{url} is in a folder whose name is no UTF-8; choose another"
        raise StoreError(message) from error
    except OSError as error:
        raise StoreError(
            f"store {url} cannot be used: {error.strerror or error}; choose another path or mend"
            " its permissions"
        ) from error
    except BaseException as error:
        # Icechunk panics at a node of unknown kind, for one; its exception is no Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        what = damage_in(error)
        if what is not None:
            raise DamageError(what, url, place or "a part of it", version) from error
        raise StoreError(explain(url, str(error))) from error


def damage_in(error: BaseException) -> str | None:
    """Describe the damage that an error is a sign of; None if it is no sign of damage."""
    if isinstance(error, MismatchError):
        return str(error)
    if isinstance(error, KeyError | zarr.errors.NodeNotFoundError):
        return "a part of it cannot be found"  # Zarr takes an unreadable snapshot for an empty one
    if not isinstance(error, icechunk.IcechunkError):
        is_chunk = "checksum" in str(error)  # of a table, which Zarr checks
        return "a checksum does not match" if is_chunk else "its metadata cannot be decoded"
    text = _reason_in(str(error))
    is_absent = re.search("nosuchkey| 404 ", text)
    if not is_absent and any(re.search(signs, text) for signs in _CAUSES):
        return None
    is_missing = is_absent or re.search("not found|no such file", text)
    return f"an object {'is missing' if is_missing else 'cannot be decoded'}"


_PATHS = re.compile(r"(?:\b\w+:/|(?<!\w))/[^\s\"'`,)]+")
# Ids of requests and objects, and lines of Icechunk's own source: these may contain any number.
_NUMBERED = re.compile(r"\b(?=\w*\d)\w{10,}\b|\.rs:\d+")


def _reason_in(message: str) -> str:
    """Drop paths, ids and source lines, which may well contain "404"; space numbers out."""
    return re.sub(r"(\d+)", r" \1 ", _NUMBERED.sub("", _PATHS.sub("", message)).lower())


# Icechunk orders snapshots by the clocks of those who commit. It takes none that is older than its
# parent, and none that is minutes away from the store's own time.
_BEHIND = "snapshot timestamp ordering"
#: What a failed request may mean, by signs in its message, the likeliest first.
_CAUSES = {
    "invalidaccesskeyid|signaturedoesnotmatch|accessdenied| 403 |forbidden|not authorized": (
        "store {url} refused the credentials: check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        " (or AWS_PROFILE)"
    ),
    "nosuchbucket|bucket does not exist": (
        "store {url}: the bucket does not exist; create it first"
    ),
    "credentials provider|no credentials|credentialsnotloaded|loading credentials": (
        "store {url}: no S3 credentials found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or"
        " AWS_PROFILE)"
    ),
    f"{_BEHIND}|object store clock": (
        "store {url} cannot be written: this machine's clock differs from that of the newest commit"
        " or of the store ({first}); set the clock right and run again, what was committed stays"
    ),
    "dispatch failure|connection|timeout|timed out|io error|dns|unreachable": (
        "store {url} cannot be reached at {endpoint}: check the network and AWS_ENDPOINT_URL"
    ),
    "no space left|file too large|disk quota|storage full": (
        "store {url} cannot be written: there is no room left; make room and run again, what was"
        " committed stays"
    ),
    "permission denied": (
        "store {url} cannot be used: permission denied; check who may read and write its files"
    ),
    "read-only": (
        "store {url} cannot be written: it is on a read-only file system; choose another path"
    ),
}


def explain(url: str, message: str) -> str:
    """Explain what a failed request to a store most likely means."""
    text = _reason_in(message.replace(url, ""))
    lines = [line.strip(" \t×").removeprefix("x ") for line in message.splitlines()]
    first = next(filter(None, lines), "no reason given")
    causes = (cause for signs, cause in _CAUSES.items() if re.search(signs, text))
    cause = next(causes, "store {url} failed: {first}")
    return cause.format(url=url, endpoint=_endpoint() or "AWS", first=first)


_WAY_TO_ONE = "courant generate FAMILY --store STORE makes one at STORE/FAMILY"


# Opening. S3 credentials come from the standard AWS chain (variables, profile, instance role). No
# secret is ever part of a URL or written to a dataset.


def _endpoint() -> str | None:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def open_repository(url: str, *, create: bool = False) -> icechunk.Repository:
    """Open the repository at `url`; InputError where there is none, unless `create`."""
    check_process(url)
    with translated(url, f"its branch {BRANCH}, or its configuration,"):
        url.encode()  # Icechunk takes UTF-8 alone
        storage = _storage(url, create)
        # By default each session fetches the manifests of up to fifty arrays with names such as
        # `time`, of any cases.
        preload = icechunk.ManifestPreloadConfig(max_total_refs=0)
        config = icechunk.RepositoryConfig(
            # Chunks of a few numbers are kept inside the manifest, not as objects.
            inline_chunk_threshold_bytes=1024,
            manifest=icechunk.ManifestConfig(preload=preload),
        )
        deadline = time.monotonic() + 5.0
        while not icechunk.Repository.exists(storage):
            files, path = fsspec.core.url_to_fs(url, skip_instance_cache=True)
            is_begun = files.isdir(f"{path}/snapshots")
            if not create and not is_begun:
                raise InputError(f"there is no dataset at {url}; {_WAY_TO_ONE}")
            if is_begun and time.monotonic() > deadline:
                raise DamageError("it is missing", url, f"branch {BRANCH}")
            try:
                if not is_begun:  # else another writer has the first commit, and soon the branch
                    # Without its configuration, over which two writers would stop each other.
                    icechunk.Repository.create(storage, **_FORMAT)
                    sync_all(url)
            except icechunk.IcechunkError:
                is_late = time.monotonic() > deadline
                if is_late and not icechunk.Repository.exists(storage):
                    raise
            time.sleep(0.02)
        return icechunk.Repository.open(storage, config=config)


def repository_exists(url: str) -> bool:
    """Check whether `open_repository` would open rather than create."""
    check_process(url)
    with translated(url):
        url.encode()
        if "://" not in url and not local_path(url).exists():
            return False
        return icechunk.Repository.exists(_storage(url, create=False))


def folders_in(url: str) -> list[str]:
    """List the names of the folders in a store; empty where it cannot be read."""
    try:
        files, path = fsspec.core.url_to_fs(url, skip_instance_cache=True)
        found = files.ls(path, detail=True) if files.isdir(path) else []
    except (OSError, BotoCoreError):
        return []
    return sorted(Path(each["name"]).name for each in found if each["type"] == "directory")


def root_of(repository: icechunk.Repository, snapshot_id: str) -> zarr.Group:
    """Open the root group of a snapshot to read it."""
    session = repository.readonly_session(snapshot_id=snapshot_id)
    return zarr.open_group(session.store, mode="r")


def is_empty(repository: icechunk.Repository, snapshot_id: str) -> bool:
    """Check whether its creation was interrupted: a first, empty snapshot and no root group."""
    return repository.lookup_snapshot(snapshot_id).parent_id is None


_first_process = functools.cache(os.getpid)


def check_process(url: str) -> None:
    """Raise StoreError in a process that was forked from one that had opened a store.

    Icechunk would wait for ever for threads that only the other process has.
    """
    if _first_process() != os.getpid():
        raise StoreError(
            f"{url} cannot be read here: this process was forked from one that had opened a"
            ' dataset; start it by "spawn", such as a DataLoader\'s with'
            ' multiprocessing_context="spawn"'
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
    elif not path.is_dir():  # Icechunk panics at a file
        reason = "it is a file" if path.exists() else "the folder does not exist"
        raise InputError(f"there is no dataset at {url}: {reason}; {_WAY_TO_ONE}")
    folders = [os.fspath(path)]
    while folders:  # a FIFO, socket or device in place of an object would be read without end
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif not entry.is_file(follow_symlinks=False):
                    at = Path(entry.path)  # a link to nothing fails when it is opened
                    if at.exists() and not (at.is_file() or at.is_dir()):
                        what = "it is a FIFO, a socket or a device"
                        raise DamageError(what, url, str(at.relative_to(path)))
    return icechunk.local_filesystem_storage(str(path))


def _s3_storage(url: str) -> icechunk.Storage:
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    if not bucket:
        raise InputError(f"store URL {url} names no bucket; write s3://bucket/prefix")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    options: dict[str, Any] = {"region": region}
    if endpoint := _endpoint():
        try:  # The S3 client tries a dead endpoint for half a minute.
            parts = urlsplit(endpoint)
            address = parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443)
            socket.create_connection(address, timeout=5.0).close()
        except (OSError, ValueError) as error:
            raise StoreError(
                f"store {url} cannot be reached at {endpoint} ({error}): check AWS_ENDPOINT_URL"
                " and the network"
            ) from error
        # Self-hosted servers rarely have a domain name per bucket.
        options = {
            "region": region or "us-east-1",
            "endpoint_url": endpoint,
            "allow_http": endpoint.startswith("http://"),
            "force_path_style": True,
        }
    return icechunk.s3_storage(bucket=bucket, prefix=prefix.strip("/"), from_env=True, **options)


# Committing.


@contextlib.contextmanager
def committing(url: str) -> Iterator[None]:
    """Hold the dataset's lock; StoreError where another committer here has it for a minute.

    Its file is next to the dataset's folder (`store/.cylinder-flow.lock`), since Icechunk creates a
    repository only in an empty folder. The kernel releases it when its holder dies.
    """
    if "://" in url:
        yield
        return
    folder = local_path(url).resolve()
    lock = FileLock(folder.parent / f".{folder.name}.lock", timeout=WAIT_S, poll_interval=0.02)
    with translated(url):
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            held = lock.acquire()
        except Timeout:
            raise StoreError(
                f"{url}: another process has been committing to it for {WAIT_S:g} s; wait for it or"
                " stop it, and run again"
            ) from None
    with held:
        yield


def commit(
    repository: icechunk.Repository,
    url: str,
    session: icechunk.Session,
    message: str,
    metadata: Mapping[str, Any],
) -> str:
    """Commit a session's changes; return the commit's id.

    Everything is on the disk before the branch names it, and so is the branch's own file before
    the commit is reported: a power cut takes back what was not reported, and no more.
    ConflictError where another writer has committed since the session was opened.
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
    sync_all(url)
    return commit_id


def sync_all(url: str) -> None:
    """Write everything of the local store's file system to its disk; nothing for S3.

    It takes 2 to 8 ms on a quiet disk, where an fsync for each file and folder took 80 to 240 ms.
    """
    if "://" in url:
        return
    file = os.open(local_path(url), os.O_RDONLY)
    try:
        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if syncfs is None:  # macOS
            os.sync()
        elif syncfs(file) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.close(file)


def retry_commit(url: str, attempt: Callable[[], T]) -> T:
    """Retry `attempt`, from the first look at the store to the commit.

    Other writers may interfere, or their clocks be a little ahead.
    """
    for pause in (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0):
        time.sleep(pause)
        with committing(url):
            try:
                with translated(url, "its newest state"):
                    return attempt()
            except ConflictError:
                last = StoreError(
                    f"{url}: other writers kept committing at the same time; run again, what was"
                    " committed stays"
                )
            except StoreError as error:
                last = error
                if _BEHIND not in str(error.__cause__):
                    raise
    raise last


# Versions.


def version_number(name: str) -> int | None:
    """Return 3 for v3; None for any other name."""
    return int(name[1:]) if re.fullmatch(r"v[1-9][0-9]{0,8}", name) else None


def history(repository: icechunk.Repository, commit_id: str) -> Iterator[icechunk.SnapshotInfo]:
    """Return a commit and those before it, the newest first.

    MismatchError where they go in a circle, as where a commit has the content of a later one.
    """
    seen = set()
    for each in repository.ancestry(snapshot_id=commit_id):
        if each.id in seen:
            raise MismatchError("its commits go in a circle")
        seen.add(each.id)
        yield each


def newest_in_history(repository: icechunk.Repository, commit_id: str) -> int:
    """Return the number of the newest version up to a commit, by the commit's metadata."""
    for each in history(repository, commit_id):
        published = version_number(str(each.metadata.get(PUBLICATION)))
        if published or VERSION in each.metadata:
            return published or int(each.metadata[VERSION])
    return 0


@dataclass(frozen=True)
class VersionInfo:
    """One published version; `metadata` is its commit's, with the run's parameters under `run`."""

    name: str
    snapshot_id: str
    time: datetime
    message: str
    author: str
    num_cases: int
    metadata: Mapping[str, Any]


class Versions:
    """The versions of a dataset at one moment."""

    def __init__(self, repository: icechunk.Repository, url: str) -> None:
        check_process(url)
        self.url, self._repository = url, repository

    @functools.cached_property
    def tip(self) -> icechunk.SnapshotInfo:
        """The branch's newest commit."""
        with translated(self.url, f"the newest commit of branch {BRANCH}"):
            return self._repository.lookup_snapshot(self._repository.lookup_branch(BRANCH))

    @functools.cached_property
    def newest(self) -> int:
        """The number of the newest version; 0 if none was published."""
        with translated(self.url, "its history"):
            in_history = newest_in_history(self._repository, self.tip.id)
            # Tags last: each is made after its commit, also while this reads.
            return max([in_history, *self.tagged])

    @property
    def tagged(self) -> set[int]:
        """The numbers of the versions that have a tag."""
        with translated(self.url, "its tags"):
            return {version_number(name) or 0 for name in self._repository.list_tags()}

    @property
    def names(self) -> list[str]:
        """The names of all versions, oldest first."""
        return [f"v{number}" for number in range(1, self.newest + 1)]

    def choose(self, version: str | None) -> str:
        """Return the version of this name, or the newest; InputError where there is none."""
        if version is not None and version_number(version) in self.tagged:
            return version  # also where the newest commit is damaged
        if not self.newest:
            raise InputError(
                f"{self.url} has no published version yet; finish it with the same courant generate"
                " or courant dataset import command that began it"
            )
        name = f"v{self.newest}" if version is None else version
        if name not in self.names:
            raise InputError(
                f"{self.url} has no version {version}; there are {', '.join(self.names)}"
            )
        return name

    def read(self, name: str) -> VersionInfo:
        """Read the commit of a version; StoreError where it is damaged or out of reach.

        Its tag names the commit, or where that is missing or damaged, the history.
        """
        with translated(self.url, "its commit", name):
            try:
                snapshot_id = self._repository.lookup_tag(name)
            except icechunk.IcechunkError as error:
                if damage_in(error) is None:
                    raise
                snapshot_id = ""
            found = self._repository.lookup_snapshot(snapshot_id) if snapshot_id else None
            if found is None or found.metadata.get(PUBLICATION) != name:
                commits = history(self._repository, self.tip.id)
                published = (each for each in commits if each.metadata.get(PUBLICATION) == name)
                found = next(published, None)
        if found is None:
            raise DamageError("its commit cannot be found", self.url, "the history", name)
        author, cases = str(found.metadata.get("author", "")), found.metadata.get("num_cases", 0)
        of_commit = (name, found.id, found.written_at, found.message, author, int(cases))
        return VersionInfo(*of_commit, dict(found.metadata))

    def root(self, name: str) -> zarr.Group:
        """Open the root group of a version to read it."""
        return root_of(self._repository, self.read(name).snapshot_id)


def open_to_write(url: str, *, create: bool = False) -> icechunk.Repository:
    """Open the repository at `url`, and make the tag that a killed writer did not come to.

    The lock must be held.
    """
    repository = open_repository(url, create=create)
    versions = Versions(repository, url)
    for number in set(range(1, versions.newest + 1)) - versions.tagged:
        tag(repository, url, f"v{number}", versions.read(f"v{number}").snapshot_id)
    return repository


def tag(repository: icechunk.Repository, url: str, name: str, snapshot_id: str) -> None:
    """Put the tag of a version on its commit.

    Where another writer was quicker, or a damaged tag is there, which Icechunk neither lists nor
    replaces, nothing is done: readers find the version in the history.
    """
    with contextlib.suppress(icechunk.IcechunkError):
        repository.create_tag(name, snapshot_id=snapshot_id)
    sync_all(url)


# The newest state, published or not.


@dataclass(frozen=True)
class OnRecord:
    """The newest state of a dataset, whether a version holds it or not."""

    schema: Schema
    design: Mapping[str, Record]
    """Each case's row of the design table"""
    splits: Mapping[str, str]
    """The splits that bind the next version"""
    version: str | None
    """The newest version, if any"""
    is_published: bool
    """Whether that version holds all that is on record"""

    @property
    def known(self) -> dict[str, Status]:
        """The status of every case, published or not."""
        return {case: row["status"] for case, row in self.design.items()}

    @property
    def held(self) -> dict[str, Record]:
        """The rows of cases that are not withdrawn; withdrawn ones may come again, mended."""
        return {name: row for name, row in self.design.items() if row["status"] != "withdrawn"}


def read_on_record(url: str) -> OnRecord | None:
    """Return what is on record at `url`, or None where there is no dataset yet."""
    if not repository_exists(url):
        return None
    repository = open_repository(url)
    versions = Versions(repository, url)
    with translated(url, "its newest state"):
        if is_empty(repository, versions.tip.id):
            return None
        root = root_of(repository, versions.tip.id)
        design = read_design(root)
        version = versions.choose(None) if versions.newest else None
        is_published = version is not None and same_outcomes(
            read_design(versions.root(version)), design
        )
        schema = Schema.from_attrs(root.attrs, url)
        return OnRecord(schema, design, bound_splits(root), version, is_published)


def same_outcomes(one: Mapping[str, Record], other: Mapping[str, Record]) -> bool:
    """Check whether two designs have the same cases, each with the same end and content."""

    def outcome(row: Record) -> tuple[str, str, str]:
        # A case that was withdrawn and solved again differs by its content alone.
        content = row["digest"] if row["status"] == "accepted" else ""
        return row["status"], row["reason"], content

    first, second = ({c: outcome(row) for c, row in of.items()} for of in (one, other))
    return first == second


STATUSES: tuple[Status, ...] = ("accepted", "rejected", "failed")
PATIENCE_S, PATIENT_CASES = 600.0, 2
"""A dataset with cases left is called silent after so long without a commit, and after so many of
the longest cases so far"""


@dataclass(frozen=True)
class DatasetProgress:
    """How far a dataset is by its newest commit; `version` and `is_published` as `OnRecord`."""

    url: str
    family: str
    version: str | None
    is_published: bool
    num_cases: dict[Status, int]
    solver_s: float
    """Core-seconds of all solvers"""
    committed_at: datetime
    num_left: int | None
    """Cases that the last writer had still to commit; None where it did not record them"""
    case_s: float | None
    """Seconds between two cases of that writer, lately; None before its second commit"""
    longest_s: float
    """Seconds of the longest case on record, with meshing"""

    @property
    def state(self) -> Literal["begun", "solving", "silent", "unpublished", "published"]:
        """The dataset's state, `begun` where no case is on record yet."""
        if self.num_left:
            patience_s = max(PATIENCE_S, PATIENT_CASES * self.longest_s)
            return "solving" if self.silent_s < patience_s else "silent"
        if self.is_published:
            return "published"
        return "unpublished" if any(self.num_cases.values()) else "begun"

    @property
    def left_s(self) -> float | None:
        """The seconds until the last case, at this pace."""
        return None if not self.num_left or self.case_s is None else self.num_left * self.case_s

    @property
    def silent_s(self) -> float:
        """The seconds since the last commit."""
        return max(0.0, (datetime.now(UTC) - self.committed_at).total_seconds())


def read_progress(url: str) -> DatasetProgress:
    """Read how far the dataset at `url` is; InputError where there is none or it is empty."""
    found = read_on_record(url)
    if found is None:
        raise InputError(
            f"{url} holds nothing yet: its creation was interrupted, or has just begun"
        )
    with translated(url, "its history"):
        commits = list(islice(open_repository(url).ancestry(branch=BRANCH), 20))
    counted = [each for each in commits if NUM_LEFT in each.metadata]
    left = [(each.metadata[NUM_LEFT], each.written_at) for each in counted]
    # Another writer's commits, or an earlier run's, have no more cases left than their successors.
    grows = takewhile(lambda pair: pair[1][0] > pair[0][0], pairwise(left))
    own = [*left[:1], *(older for _, older in grows)]
    num_left, case_s = own[0][0] if own else None, None
    if len(own) > 1:
        case_s = (own[0][1] - own[-1][1]).total_seconds() / (own[-1][0] - own[0][0])
    rows = list(found.design.values())
    return DatasetProgress(
        url=url,
        family=found.schema.family,
        version=found.version,
        is_published=found.is_published,
        num_cases={status: sum(row["status"] == status for row in rows) for status in STATUSES},
        solver_s=float(sum(row[CORE_S] for row in rows)),
        committed_at=commits[0].written_at,
        # A case that another run has solved makes no commit here, which would have counted it.
        num_left=0 if own and found.is_published else num_left,
        case_s=case_s,
        longest_s=max((float(row["wall_time_s"]) for row in rows), default=0.0),
    )


# Garbage. Killed runs and lost races leave chunks without a commit, and each commit leaves a
# snapshot that lists the whole dataset and is useless once the next one exists: with 96 cases they
# took 5 % of the store. An unreferenced object may belong to a case that is being written right
# now. So only objects older than an age limit are deleted, and a writer never commits a fork whose
# first chunk is older than `FORK_LIFETIME`.

FORK_LIFETIME = timedelta(hours=6)
AGE_LIMIT = timedelta(days=1)
LEAST_AGE = FORK_LIFETIME + timedelta(hours=2)


def collect(
    url: str, *, older_than: timedelta = AGE_LIMIT, dry_run: bool = False
) -> icechunk.GCSummary:
    """Delete what is older than `older_than` and unused by every version and the newest state.

    `dry_run` only counts, and finds a lower bound: objects that only the history refers to are
    found once it is dropped. Raises InputError for an age below `LEAST_AGE`, StoreError where the
    store is damaged or cannot be reached; nothing is deleted then.
    """
    if older_than < LEAST_AGE:
        hours = older_than.total_seconds() / 3600
        raise InputError(
            f"age limit of {hours:g} hours is too short: what a running generation has written and"
            f" not committed yet would go; give at least {LEAST_AGE.total_seconds() / 3600:g} hours"
        )
    before = datetime.now(UTC) - older_than
    with committing(url), translated(url):
        repository = open_to_write(url)
        found = Versions(repository, url)
        versions = {name: found.read(name).snapshot_id for name in found.names}
        for name, snapshot_id in versions.items():  # without its tag a version's commit would go
            if repository.lookup_tag(name) != snapshot_id:
                raise DamageError("it names another commit", url, f"tag {name}")
        commits = history(repository, repository.lookup_branch(BRANCH))
        superseded = [
            commit
            for follower, commit in pairwise(commits)
            if follower.written_at < before
            and commit.id not in versions.values()
            and commit.parent_id is not None
        ]
        if superseded and not dry_run:
            repository.expire_snapshots(superseded[0].written_at + timedelta(microseconds=1))
        return repository.garbage_collect(before, dry_run=dry_run)
