"""A dataset's Icechunk repository: open it, commit to it, find its versions, delete its garbage.

Notable decisions:
- Every failure is one line that names the store and the way out (`translated`).
- One committer at a time on a local path (`committing`): of two commits at once S3 rejects one by
  itself (conditional writes), Icechunk's file storage does not.
- A local commit is durable once it is reported (`sync_all`). Icechunk calls no fsync.
- A publication is one commit, whose metadata names its version; every commit has the number of
  the newest version so far. Tags keep commits from `collect`; a writer makes a lost one again.
"""

import contextlib
import ctypes
import functools
import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from itertools import islice, pairwise
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
        super().__init__(what, url, place, version)
        self.what = what

    def __str__(self) -> str:
        what, url, place, version = self.args
        named, option = (f" {version}", f" --version {version}") if version else ("", "")
        return (
            f"{url}{named}: {place} is damaged ({what}); restore the store from a copy, and list"
            f" all damage with: courant dataset verify {url}{option}"
        )


class ConflictError(StoreError):
    """Another writer has moved the branch meanwhile."""


@contextlib.contextmanager
def translated(url: str, place: str = "", version: str = "") -> Iterator[None]:
    """Turn errors of Icechunk, Zarr and the operating system into a StoreError of one line.

    `place` is what is read, such as `case b0159c13a91f, array velocity,`. All that is stored
    was valid when it was written, so whatever cannot be decoded is damaged.
    """
    try:
        yield
    except (SimgenError, MemoryError, ImportError):
        raise
    except (OSError, UnicodeEncodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StoreError(
            f"store {url} cannot be used: {reason}; choose another path or mend its permissions"
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
        return "a checksum does not match, or it cannot be decoded"
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
_KEYS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or AWS_PROFILE)"
_STAYS = "run again, what was committed stays"
#: What a failed request may mean, by signs in its message, the likeliest first.
_CAUSES = {
    "invalidaccesskeyid|signaturedoesnotmatch|accessdenied| 403 |forbidden|not authorized": (
        f" refused the credentials: check {_KEYS}"
    ),
    "nosuchbucket|bucket does not exist": ": the bucket does not exist; create it first",
    "credentials provider|no credentials|credentialsnotloaded|loading credentials": (
        f": no S3 credentials found: set {_KEYS}"
    ),
    f"{_BEHIND}|object store clock": (
        " cannot be written: this machine's clock differs from that of the newest commit or of the"
        f" store ({{first}}); set the clock right and {_STAYS}"
    ),
    "dispatch failure|connection|timeout|timed out|io error|dns|unreachable": (
        " cannot be reached at {endpoint}: check the network and AWS_ENDPOINT_URL"
    ),
    "no space left|file too large|disk quota|storage full": (
        f" cannot be written: there is no room left; make room and {_STAYS}"
    ),
    "permission denied|read-only": (
        " cannot be used: permission denied; check who may read and write its files"
    ),
}


def explain(url: str, message: str) -> str:
    """Explain what a failed request to a store most likely means."""
    text = _reason_in(message.replace(url, ""))
    first = message.strip(" \t\n×").partition("\n")[0].removeprefix("x ") or "no reason given"
    causes = (cause for signs, cause in _CAUSES.items() if re.search(signs, text))
    cause = next(causes, " failed: {first}")
    return f"store {url}{cause.format(endpoint=_endpoint() or 'AWS', first=first)}"


MOST_NAMED = 5  # Datasets of a store that are named


class IsStoreError(InputError):
    """A store, where a dataset was asked for; `datasets` are the URLs of those in it."""

    def __init__(self, url: str, names: Sequence[str]) -> None:
        self.datasets = [f"{url.rstrip('/')}/{name}" for name in names]
        named = " or ".join([*self.datasets[:1], *names[1:MOST_NAMED]])
        super().__init__(f"there is no dataset at {url}; it is a store: give {named}")


_WAY_TO_ONE = "courant generate FAMILY --store STORE makes one at STORE/FAMILY, or import cases"
_KINDS = "use a local path or s3://bucket/prefix"


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
        # By default each session fetches the manifests of up to fifty arrays of any cases.
        preload = icechunk.ManifestPreloadConfig(max_total_refs=0)
        manifest = icechunk.ManifestConfig(preload=preload)
        # Chunks of a few numbers are kept inside the manifest, not as objects.
        config = icechunk.RepositoryConfig(inline_chunk_threshold_bytes=1024, manifest=manifest)
        if not icechunk.Repository.exists(storage):
            _await_branch(url, storage, create)
        return icechunk.Repository.open(storage, config=config)


CREATION_S = 5.0  # How long another writer's branch may come after its first commit


def _await_branch(url: str, storage: icechunk.Storage, create: bool) -> None:
    """Create the repository, or wait for the writer who does; raise where there is none."""
    files, path = fsspec.core.url_to_fs(url, skip_instance_cache=True, use_listings_cache=False)
    snapshots = f"{path}/snapshots"
    failure: Exception = DamageError("it is missing", url, f"branch {BRANCH}")
    deadline = time.monotonic() + CREATION_S
    while not icechunk.Repository.exists(storage):
        is_late, begun = time.monotonic() > deadline, set[str]()
        if files.isdir(snapshots):
            begun = {name.partition("#")[0] for name in files.ls(snapshots, detail=False)}
        if begun and not is_late:
            time.sleep(0.02)
        elif len(begun) == 1 and create:
            # One commit, and no branch: a creation was cut off, and nothing is lost with it.
            files.rm(snapshots, recursive=True)
        elif begun:
            raise failure
        elif not create:
            raise _no_dataset(url)
        else:
            try:  # without its configuration, over which two writers would stop each other
                icechunk.Repository.create(storage, **_FORMAT)
                sync_all(url)
            except icechunk.IcechunkError as error:
                if is_late:
                    raise
                failure = error
                time.sleep(0.02)


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


def _no_dataset(url: str) -> InputError:
    """Return the error for a URL without a dataset, which names those in it or beside it."""
    store, _, name = url.rstrip("/").rpartition("/")
    for place in (url, store):
        files, path = fsspec.core.url_to_fs(place, skip_instance_cache=True)
        if found := [each for each in folders_in(place) if files.isdir(f"{path}/{each}/refs")]:
            if place == url:
                return IsStoreError(url, found)
            near = get_close_matches(name, found, 1) or found[:1]
            there = f"{store} has {', '.join(found[:MOST_NAMED])}: did you mean {store}/{near[0]}?"
            return InputError(f"there is no dataset at {url}; {there}")
        if place == url and files.exists(f"{path}/experiment.json"):
            own = "not on record"
            with contextlib.suppress(OSError, ValueError, KeyError):
                own = json.loads(files.cat_file(f"{path}/dataset.json"))["url"]
            return InputError(f"{url} is a trained run, no dataset; its dataset is {own}")
    return InputError(f"there is no dataset at {url}; {_WAY_TO_ONE}")


def is_empty(repository: icechunk.Repository, snapshot_id: str) -> bool:
    """Check whether its creation was interrupted: a first, empty snapshot and no root group."""
    return repository.lookup_snapshot(snapshot_id).parent_id is None


_first_process = functools.cache(os.getpid)


def check_process(url: str) -> None:
    """Raise StoreError in a process forked from one with an open store: Icechunk would hang."""
    if _first_process() != os.getpid():
        raise StoreError(
            f"{url} cannot be read here: this process was forked from one that had opened a"
            ' dataset; start it by "spawn"'
        )


def _storage(url: str, create: bool) -> icechunk.Storage:
    if url.startswith("s3://"):
        return _s3_storage(url)
    if "://" in url:
        raise InputError(f"store URL {url} is of no known kind; {_KINDS}")
    path = local_path(url)
    if create:
        path.mkdir(parents=True, exist_ok=True)
    elif not path.is_dir():  # Icechunk panics at a file
        raise _no_dataset(url)
    return icechunk.local_filesystem_storage(str(path))


def _s3_storage(url: str) -> icechunk.Storage:
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    if not bucket:
        raise InputError(f"store URL {url} names no bucket; {_KINDS}")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    options: dict[str, Any] = {"region": region}
    if endpoint := _endpoint():
        try:  # The S3 client tries a dead endpoint for half a minute.
            parts = urlsplit(endpoint)
            address = parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443)
            socket.create_connection(address, timeout=5.0).close()
        except (OSError, ValueError) as error:
            raise StoreError(explain(url, f"connection: {error}")) from error
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

    Its file is beside the dataset's folder, since Icechunk creates a repository only in an empty
    one. The kernel releases it when its holder dies.
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
) -> None:
    """Commit a session's changes.

    Everything is on the disk before the branch names it, and so is the branch's own file before
    the commit is reported: a power cut takes back what was not reported, and no more.
    ConflictError where another writer has committed since the session was opened.
    """
    parent = session.snapshot_id
    newest = newest_in_history(repository, parent)
    commit_id = session.flush(message, metadata={VERSION: newest, **metadata})
    sync_all(url)
    try:
        repository.reset_branch(BRANCH, commit_id, from_snapshot_id=parent)
    except icechunk.IcechunkError as error:
        if "update conflict" in str(error):
            raise ConflictError(
                f"{url}: other writers kept committing at the same time; {_STAYS}"
            ) from error
        raise
    sync_all(url)


def sync_all(url: str) -> None:
    """Write everything of the local store's file system to its disk (2 to 8 ms on a quiet one)."""
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
    """Retry `attempt`: other writers may interfere, or their clocks be a little ahead."""
    for pause in (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0):
        time.sleep(pause)
        with committing(url):
            try:
                with translated(url, "its newest state"):
                    return attempt()
            except StoreError as error:
                last = error
                if not isinstance(error, ConflictError) and _BEHIND not in str(error.__cause__):
                    raise
    raise last


# Versions.


def version_number(name: str) -> int | None:
    """Return 3 for v3; None for any other name."""
    return int(name[1:]) if re.fullmatch(r"v[1-9][0-9]{0,8}", name) else None


def history(repository: icechunk.Repository, commit_id: str) -> Iterator[icechunk.SnapshotInfo]:
    """Yield a commit and those before it; MismatchError where they go in a circle."""
    seen = set()
    for each in repository.ancestry(snapshot_id=commit_id):
        if each.id in seen:
            raise MismatchError("its commits go in a circle")
        seen.add(each.id)
        yield each


def newest_in_history(repository: icechunk.Repository, commit_id: str) -> int:
    """Return the number of the newest version up to a commit, by the commit's metadata."""
    numbers = (each.metadata.get(VERSION) for each in history(repository, commit_id))
    return next((int(number) for number in numbers if number is not None), 0)


@dataclass(frozen=True)
class VersionInfo:
    """One published version; `metadata` is its commit's, with the run's parameters under `run`."""

    name: str
    snapshot_id: str
    time: datetime
    message: str
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
        return VersionInfo(name, found.id, found.written_at, found.message, dict(found.metadata))

    def root(self, name: str | None = None) -> zarr.Group:
        """Open the root group of a version, or of the newest commit, to read it."""
        snapshot_id = self.tip.id if name is None else self.read(name).snapshot_id
        session = self._repository.readonly_session(snapshot_id=snapshot_id)
        return zarr.open_group(session.store, mode="r")


def tag_versions(repository: icechunk.Repository, url: str) -> None:
    """Make the tags that versions lack: a new one, or one whose writer was killed.

    The lock must be held. Where another writer was quicker, or a damaged tag is there, which
    Icechunk neither lists nor replaces, nothing is done: readers find the version in the history.
    """
    versions = Versions(repository, url)
    for number in set(range(1, versions.newest + 1)) - versions.tagged:
        name = f"v{number}"
        snapshot_id = versions.read(name).snapshot_id
        with contextlib.suppress(icechunk.IcechunkError):
            repository.create_tag(name, snapshot_id=snapshot_id)
        sync_all(url)


# The newest state, published or not.


@dataclass(frozen=True)
class OnRecord:
    """The newest state of a dataset, whether a version holds it or not."""

    schema: Schema
    design: Mapping[str, Record]  # Each case's row of the design table
    splits: Mapping[str, str]  # The splits that bind the next version
    version: str | None  # The newest version, if any
    published: Mapping[str, Record]  # The rows of that version
    commits: list[icechunk.SnapshotInfo]  # The last few, newest first

    @property
    def is_published(self) -> bool:
        """Whether the newest version holds all that is on record."""
        return self.version is not None and outcomes(self.published) == outcomes(self.design)

    @property
    def unpublished(self) -> set[str]:
        """Accepted cases that the newest version does not hold."""
        now, then = (
            {name for name, row in of.items() if row["status"] == "accepted"}
            for of in (self.design, self.published)
        )
        return now - then

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
        root = versions.root()
        version = versions.choose(None) if versions.newest else None
        return OnRecord(
            Schema.from_attrs(root.attrs, url),
            read_design(root),
            bound_splits(root),
            version,
            {} if version is None else read_design(versions.root(version)),
            list(islice(history(repository, versions.tip.id), 2)),
        )


def outcomes(design: Mapping[str, Record]) -> dict[str, tuple[str, str]]:
    """Return each case's status with its content where it is accepted, else with the reason."""
    # A case that was withdrawn and solved again differs by its content alone.
    return {
        case: (row["status"], row["digest" if row["status"] == "accepted" else "reason"])
        for case, row in design.items()
    }


DatasetState = Literal["begun", "solving", "silent", "unpublished", "published"]
STATUSES: tuple[Status, ...] = ("accepted", "rejected", "failed")
PATIENCE_S, PATIENT_CASES = 600.0, 2
"""A dataset with cases left is silent after so long, and so many of its longest cases, without a
commit"""


@dataclass(frozen=True)
class DatasetProgress:
    """How far a dataset is by its newest commit."""

    url: str
    family: str
    version: str | None  # The newest version, if any
    state: DatasetState  # `begun` where no case is on record yet
    num_cases: dict[Status, int]
    solver_s: float  # Core-seconds of all solvers
    num_left: int | None
    """Cases that the last writer had still to commit; None where it did not record them"""
    left_s: float | None
    """Seconds until the last case at the pace of the last commit; None before the second one"""


def read_progress(url: str) -> DatasetProgress:
    """Read how far the dataset at `url` is; InputError where there is none or it is empty."""
    found = read_on_record(url)
    if found is None:
        raise InputError(f"{url} holds nothing yet: its creation was interrupted or has just begun")
    rows, (last, *before) = list(found.design.values()), found.commits
    silent_s = max(0.0, (datetime.now(UTC) - last.written_at).total_seconds())
    num_left, left_s = last.metadata.get(NUM_LEFT), None
    # Another writer's commit, or an earlier run's, has no more cases left than this one.
    former = before[0].metadata.get(NUM_LEFT) if before else None
    if num_left is not None and former is not None and former > num_left:
        taken_s = (last.written_at - before[0].written_at).total_seconds()
        left_s = taken_s * num_left / (former - num_left)
    state: DatasetState = "unpublished"
    if found.is_published:
        num_left = 0  # also where another run has committed cases of this one
        state = "published"
    elif num_left:
        longest_s = max(float(row["wall_time_s"]) for row in rows)
        is_solving = silent_s < max(PATIENCE_S, PATIENT_CASES * longest_s)
        state = "solving" if is_solving else "silent"
    elif not rows:
        state = "begun"
    return DatasetProgress(
        url,
        found.schema.family,
        found.version,
        state,
        {status: sum(row["status"] == status for row in rows) for status in STATUSES},
        float(sum(row[CORE_S] for row in rows)),
        num_left,
        left_s,
    )


# Garbage. Killed runs and lost races leave chunks without a commit, and each commit leaves a
# snapshot that lists the whole dataset and is useless once the next one exists. An unreferenced
# object may belong to a case that is being written: so only objects older than an age limit are
# deleted, and a writer never commits a fork whose first chunk is older than `FORK_LIFETIME`.

FORK_LIFETIME = timedelta(hours=6)
AGE_LIMIT = timedelta(days=1)
LEAST_AGE = FORK_LIFETIME + timedelta(hours=2)


def collect(
    url: str, *, older_than: timedelta = AGE_LIMIT, dry_run: bool = False
) -> icechunk.GCSummary:
    """Delete what is older than `older_than` and unused by every version and the newest state.

    `dry_run` only counts, a lower bound: objects that only the history refers to are found once it
    is dropped. InputError for an age below `LEAST_AGE`, StoreError for a damaged store; nothing is
    deleted then.
    """
    if older_than < LEAST_AGE:
        hours, least = (each.total_seconds() / 3600 for each in (older_than, LEAST_AGE))
        raise InputError(
            f"age limit of {hours:g} hours is too short: what a running generation has written and"
            f" not committed yet would go; give at least {least:g} hours"
        )
    before = datetime.now(UTC) - older_than
    with committing(url), translated(url):
        repository = open_repository(url)
        tag_versions(repository, url)
        found = Versions(repository, url)
        versions = {name: found.read(name).snapshot_id for name in found.names}
        for name, snapshot_id in versions.items():  # without its tag a version's commit would go
            if repository.lookup_tag(name) != snapshot_id:
                raise DamageError("it names another commit", url, f"tag {name}")
        commits = history(repository, found.tip.id)
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
