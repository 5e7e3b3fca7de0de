"""Repair a dataset's references: its branch, and the two references of each version.

A reference is a few bytes that name a commit. Its right value is known from the version's second
reference, or from the commits, which say what they publish; no array, table or commit is ever
touched. Damage inside arrays, tables and commits can only be repaired from a copy of the store.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import fsspec
import icechunk

from simgen.errors import InputError, StoreError
from simgen.store.access.lock import committing
from simgen.store.access.repository import BRANCH, explain, open_repository, translated

_REFERENCE = "ref.json"


@dataclass(frozen=True)
class Repair:
    """The repaired references, and those beyond repair."""

    done: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Commit:
    """One readable commit."""

    id: str
    written_at: Any
    num_before: int
    publication: str


def repair(url: str) -> Repair:
    """Repair the references to the dataset's versions, and its branch.

    Raises InputError where there is no dataset, StoreError where the store cannot be reached or
    written.
    """
    files = _References(url)
    if not files.commit_ids():
        raise InputError(f"there is no dataset at {url}: it has no commit")
    with committing(url), translated(url):
        try:
            return _repair(url, files)
        except icechunk.IcechunkError as error:
            raise StoreError(explain(url, str(error))) from error


def _repair(url: str, files: _References) -> Repair:
    found = Repair()
    lost_branch = files.named_by("branch", BRANCH) is None
    if (
        lost_branch
    ):  # Icechunk opens nothing without it; which commit it should name shows once it is open
        files.write("branch", BRANCH, files.commit_ids()[0])
    repository = open_repository(url)
    commits = {commit.id: commit for commit in _commits(repository, files)}
    if lost_branch:
        _mend_branch(repository, url, commits, found)
    elif repository.lookup_branch(BRANCH) not in commits:
        found.left.append(
            f"branch {BRANCH}: its commit cannot be read; restore the store from a copy"
        )
    known = {name.partition(".")[2] for name in files.names()} - {BRANCH}
    numbers = [int(name[1:]) for name in known if name[1:].isdigit()]
    published = [
        int(commit.publication[1:])
        for commit in commits.values()
        if commit.publication[1:].isdigit()
    ]
    for number in range(1, max([0, *numbers, *published]) + 1):
        _mend_version(files, commits, f"v{number}", found)
    return found


def _commits(repository: icechunk.Repository, files: _References) -> Iterator[_Commit]:
    """Return all readable commits, whatever refers to them."""
    for id_ in files.commit_ids():
        history = list(_history(repository, id_))
        if history:
            publication = str(dict(history[0].metadata).get("publication", ""))
            yield _Commit(id_, history[0].written_at, len(history), publication)


def _history(repository: icechunk.Repository, id_: str) -> Iterator[icechunk.SnapshotInfo]:
    """Return a commit and its ancestors, as far as they can be read."""
    with contextlib.suppress(icechunk.IcechunkError):
        yield from repository.ancestry(snapshot_id=id_)


def _mend_branch(
    repository: icechunk.Repository, url: str, commits: dict[str, _Commit], found: Repair
) -> None:
    """Point the branch at the commit with the longest history.

    A commit that lost a race has no other on top of it.
    """
    if not commits:
        raise StoreError(f"{url}: none of its commits can be read; restore the store from a copy")
    newest = max(commits.values(), key=lambda commit: (commit.num_before, commit.written_at))
    repository.reset_branch(BRANCH, newest.id)
    found.done.append(
        f"branch {BRANCH} was lost: it names commit {newest.id} again,"
        " the last of the longest history"
    )


def _mend_version(
    files: _References, commits: dict[str, _Commit], name: str, found: Repair
) -> None:
    named = {kind: files.named_by(kind, name) for kind in ("tag", "branch")}
    right = _rightly_named(commits, name, named)
    if right is None:
        found.left.append(f"{name}: no commit of it can be read; restore the store from a copy")
        return
    for kind, what in (("tag", "tag"), ("branch", "second reference")):
        if named[kind] != right:
            files.write(kind, name, right)
            found.done.append(f"{name}: its {what} was made again")


def _rightly_named(
    commits: dict[str, _Commit], name: str, named: dict[str, str | None]
) -> str | None:
    """Find the commit of a version.

    It is the commit that the references name, unless that one says it belongs to another version;
    else the commit that says it publishes this one.
    """
    for id_ in named.values():
        if id_ in commits and commits[id_].publication in (name, ""):
            return id_
    of_name = [commit for commit in commits.values() if commit.publication == name]
    return max(of_name, key=lambda commit: commit.written_at).id if of_name else None


class _References:
    """Read and write the repository's references as plain objects.

    Icechunk neither lists nor replaces references that it cannot read.
    """

    def __init__(self, url: str) -> None:
        with translated(url):
            self._files, self._path = fsspec.core.url_to_fs(url, skip_instance_cache=True)

    def commit_ids(self) -> list[str]:
        return self._listed("snapshots")

    def names(self) -> list[str]:
        """List the names, such as tag.v1 and branch.main."""
        return self._listed("refs")

    def named_by(self, kind: str, name: str) -> str | None:
        """Return the commit that a reference names; None where it is missing or damaged."""
        place = self._place(kind, name)
        if not self._files.isfile(place):
            return None
        try:
            content = json.loads(self._files.cat_file(place))
        except ValueError:
            return None
        named = content.get("snapshot") if isinstance(content, dict) else None
        return named if named in self.commit_ids() else None

    def write(self, kind: str, name: str, commit_id: str) -> None:
        place = self._place(kind, name)
        if self._files.exists(place):
            self._files.rm(place, recursive=True)
        self._files.makedirs(place.rpartition("/")[0], exist_ok=True)
        self._files.pipe_file(
            place, json.dumps({"snapshot": commit_id}, separators=(",", ":")).encode()
        )

    def _place(self, kind: str, name: str) -> str:
        return f"{self._path}/refs/{kind}.{name}/{_REFERENCE}"

    def _listed(self, folder: str) -> list[str]:
        try:
            entries = self._files.ls(f"{self._path}/{folder}", detail=False)
        except FileNotFoundError:
            return []
        return sorted(entry.rstrip("/").rpartition("/")[2] for entry in entries)
