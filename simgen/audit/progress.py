"""Tell how far a dataset is, from its commits alone: nothing has to run for it.

progress = read_progress("s3://bucket/store/cylinder-flow")
progress.num_left, progress.left_s        # cases on their way; seconds, at the pace so far
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice, pairwise
from typing import Literal

import icechunk

from simgen.case import Status
from simgen.errors import InputError, StoreError
from simgen.store.access.lock import explain_failure
from simgen.store.access.publication import root_of, same_outcomes
from simgen.store.access.repository import BRANCH, open_repository
from simgen.store.access.versions import Versions
from simgen.store.access.writer import NUM_LEFT, is_empty
from simgen.store.format.case_record import CORE_S
from simgen.store.format.layout import Schema
from simgen.store.format.tables import read_design

STATUSES: tuple[Status, ...] = ("accepted", "rejected", "failed")
State = Literal["begun", "solving", "silent", "unpublished", "published"]
PATIENCE_S = 600.0
"""The shortest time without a commit after which a dataset with cases left is called silent"""
PATIENT_GAPS, PATIENT_CASES = 5, 2
"""More than so many usual gaps, and than so many of the longest cases so far, is silence too"""
RECENT = 20
"""Commits that the pace is measured on"""


@dataclass(frozen=True)
class DatasetProgress:
    """A dataset as its newest commit leaves it, published or not."""

    url: str
    family: str
    version: str | None
    """The newest version, if any"""
    is_published: bool
    """Whether that version holds all that is on record"""
    num_cases: dict[Status, int]
    solver_s: float
    """Core-seconds of all solvers; of cases of an older release, which did not record them, the
    wall time with meshing
    """
    num_bytes: int
    """Of the arrays as stored"""
    committed_at: datetime
    num_left: int | None
    """Cases that the last writer had still to commit; None where its release did not say"""
    case_s: float | None
    """Seconds between two cases of that writer, lately; None before its second commit"""
    longest_s: float
    """Seconds that the longest case on record took, with meshing"""
    flow_run: str | None
    """Prefect's id of the flow run that has committed last, where it said so"""

    @property
    def state(self) -> State:
        """Return `silent` where cases are left and no commit has come for long.

        `begun` where no case is on record yet.
        """
        if self.num_left:
            gaps_s, cases_s = PATIENT_GAPS * (self.case_s or 0.0), PATIENT_CASES * self.longest_s
            patience_s = max(PATIENCE_S, gaps_s, cases_s)
            return "solving" if self.silent_s < patience_s else "silent"
        if not any(self.num_cases.values()) and not self.is_published:
            return "begun"
        return "published" if self.is_published else "unpublished"

    @property
    def left_s(self) -> float | None:
        """Return the seconds until the last case, at this pace."""
        return None if not self.num_left or self.case_s is None else self.num_left * self.case_s

    @property
    def silent_s(self) -> float:
        """Return the seconds since the last commit."""
        return max(0.0, (datetime.now(UTC) - self.committed_at).total_seconds())


def read_progress(url: str) -> DatasetProgress:
    """Read how far the dataset at `url` is.

    InputError where there is none or its creation was interrupted, StoreError where it cannot be
    read.
    """
    repository = open_repository(url)
    try:
        commits = list(islice(repository.ancestry(branch=BRANCH), RECENT))
        if is_empty(repository, commits[0].id):
            raise InputError(
                f"{url} holds nothing yet: its creation was interrupted, or has just begun"
            )
        root = root_of(repository, commits[0].id)
        schema, design = Schema.from_attrs(root.attrs, url), read_design(root)
        versions = Versions(repository, url)
        version = versions.choose(None) if versions.newest else None
        held = root_of(repository, versions.read(version).snapshot_id) if version else None
        published = read_design(held) if held else {}
    except (icechunk.IcechunkError, OSError, ValueError, KeyError) as error:
        raise StoreError(explain_failure(url, error)) from error
    rows = list(design.values())
    is_published = version is not None and same_outcomes(published, design)
    last = next((each for each in commits if NUM_LEFT in each.metadata), None)
    return DatasetProgress(
        url=url,
        family=schema.family,
        version=version,
        is_published=is_published,
        num_cases={status: sum(row["status"] == status for row in rows) for status in STATUSES},
        solver_s=float(sum(row.get(CORE_S, row["wall_time_s"]) for row in rows)),
        num_bytes=int(sum(row.get("num_bytes_stored") or 0 for row in rows)),
        committed_at=commits[0].written_at,
        # A case that another run has solved makes no commit here, which would have told of it.
        num_left=None if last is None else 0 if is_published else int(last.metadata[NUM_LEFT]),
        case_s=_pace(commits),
        longest_s=max((float(row["wall_time_s"]) for row in rows), default=0.0),
        flow_run=str(last.metadata["flow_run"]) if last and "flow_run" in last.metadata else None,
    )


def _pace(commits: Sequence[icechunk.SnapshotInfo]) -> float | None:
    """Return the seconds a case of the last writer's commits, the newest first."""
    told = [each for each in commits if NUM_LEFT in each.metadata]
    own = told[:1]
    for newer, older in pairwise(told):
        if older.metadata[NUM_LEFT] <= newer.metadata[NUM_LEFT]:
            break  # another writer's, or an earlier run's
        own.append(older)
    if len(own) < 2:
        return None
    num_cases = own[-1].metadata[NUM_LEFT] - own[0].metadata[NUM_LEFT]
    return (own[0].written_at - own[-1].written_at).total_seconds() / num_cases
