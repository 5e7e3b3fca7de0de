"""Let one worker write its cases' chunks straight to the store; the committer does the rest.

Between a fork's first chunk and its commit nothing in the store refers to what it has written.
`collect` keeps everything younger than these limits together; an older fork is not committed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import icechunk
import zarr
from zarr.core.sync import sync

from simgen.case import CaseResult
from simgen.cases import FAMILIES
from simgen.design_space import DesignPoint
from simgen.errors import InputError, StoreError
from simgen.point_cloud import PointCloud
from simgen.solving.completeness import AskedTimes
from simgen.store.access.repository import BRANCH, explain, open_repository, translated
from simgen.store.format.case_arrays import write_cloud
from simgen.store.format.case_record import CaseRecord, case_attrs, case_record
from simgen.store.format.case_seal import SealingStore
from simgen.store.format.layout import Schema
from simgen.store.format.split import SPLITS
from simgen.store.format.tables import read_design

logger = logging.getLogger(__name__)

#: A fork of this age that has written nothing yet starts from the newest commit: solving may have
#: taken days, in which the commit that it was made from may have been collected.
FORK_AGE = timedelta(hours=1)
#: The longest time from a fork's first chunk to its commit. It is seconds in a normal run, hours in
#: one that was suspended.
FORK_LIFETIME = timedelta(hours=6)
#: How often to look for a case that another writer is about to commit.
POLL_S = 0.5


class CaseFork:
    """One worker's way to write cases; picklable both ways.

    Give it back to `DatasetWriter.commit`.
    """

    def __init__(
        self,
        url: str,
        schema: Schema,
        session: icechunk.ForkSession,
        retried: Mapping[str, Any] | None = None,
    ) -> None:
        self.url, self.schema = url, schema
        self.session = session
        self._retried = retried or {}
        """Cases on record that may be solved again, with the place of their provenance at that time
        """
        self.records: dict[str, CaseRecord] = {}
        self._made_at = time.time()
        self._began_at: float | None = None

    def check_age(self) -> None:
        """Raise StoreError where what was written may have been collected as garbage since."""
        if (
            self._began_at is not None
            and time.time() - self._began_at > FORK_LIFETIME.total_seconds()
        ):
            hours = FORK_LIFETIME.total_seconds() / 3600
            raise StoreError(
                f"{self.url}: {', '.join(self.records)} was written more than {hours:g} hours ago"
                " and never committed, so that it may have been deleted as garbage since; run"
                " again, which solves it again"
            )

    def _begin(self) -> None:
        """Note the time of the first chunk, and open a fresh session if this one is old."""
        if self._began_at is not None:
            return
        if time.time() - self._made_at > FORK_AGE.total_seconds():
            self._start_from(open_repository(self.url).writable_session(BRANCH))
        self._began_at = time.time()

    def _start_from(self, session: icechunk.Session) -> None:
        self.session, self._made_at = session.fork(), time.time()

    def write(self, result: CaseResult, cloud: PointCloud | None) -> None:
        """Write one case: an accepted one with its point cloud, any other with its record alone.

        InputError where the cloud does not follow the dataset's schema, or lacks what its settings
        ask for.
        """
        if (cloud is not None) != (result.status == "accepted"):
            raise InputError(
                f"case {result.id} is {result.status}: a point cloud belongs to accepted cases and"
                " only to them"
            )
        if cloud is not None:
            self.schema.check(cloud)
            _check_split(self.schema, result)
            _check_complete(self.schema.family, result.point, cloud)
        try:
            self._begin()
            sealing = SealingStore(self.session.store)
            cases = zarr.open_group(sealing, path="cases", mode="r+")
            if result.id in cases:  # a failed or rejected case that was tried again
                del cases[result.id]
            attrs = case_attrs(result)
            group = cases.create_group(result.id, attributes=attrs)
            arrays = write_cloud(group, cloud, self.schema) if cloud is not None else []
            num_bytes_stored = sync(self.session.store.getsize_prefix(f"cases/{result.id}/"))
        except (icechunk.IcechunkError, OSError) as error:
            raise StoreError(explain(self.url, str(error))) from error
        logger.info("wrote %d bytes of %d arrays", num_bytes_stored, len(arrays))
        objects = sealing.objects_of(result.id)
        self.records[result.id] = case_record(
            result,
            cloud,
            arrays,
            num_bytes_stored,
            objects,
            self.schema.startup_s,
            [each.name for each in self.schema.quantities],
        )

    def recorded_since(self, case: str, within_s: float = 0.0) -> dict[str, Any] | None:
        """Return the design record of a case that another writer has committed since; else None.

        `within_s`: how long to wait for it, if it is known to be on its way. A fork that has
        written nothing yet starts from the commit that was looked at: the list of all groups and
        arrays, which takes the longer to read the more cases there are, is read once for both.
        """
        deadline = time.monotonic() + within_s
        while True:
            with translated(self.url):
                session = open_repository(self.url).writable_session(BRANCH)
                root = zarr.open_group(session.store, mode="r")
                # Reading the whole table takes the longer, the more cases there are.
                record = read_design(root).get(case) if f"cases/{case}" in root else None
            if record is not None and self._retried.get(case) != record.get("provenance_at"):
                return record
            if time.monotonic() >= deadline:
                if self._began_at is None:
                    self._start_from(session)
                return None
            time.sleep(POLL_S)


def _check_split(schema: Schema, result: CaseResult) -> None:
    """Raise InputError for an unknown split, and a missing one where splits are published."""
    wanted = SPLITS if schema.splits == "published" else (None, *SPLITS)
    if result.split not in wanted:
        expected = " or ".join(str(each) for each in wanted)
        raise InputError(
            f"case {result.id} has split {result.split}, expected {expected}: splits of"
            f" {schema.family} are {schema.splits}"
        )


def _check_complete(family_name: str, point: DesignPoint, cloud: PointCloud) -> None:
    """Raise InputError for values that are not finite, and for wrong times.

    The times must be those that a known family's settings ask for.
    """
    cloud.check()  # once more: arrays can be written to after the cloud was made
    family = FAMILIES.get(family_name)
    if family is None or cloud.time is None:
        return
    needed = (family.horizon, family.snapshot_interval, family.time_step)
    missing = [name for name in needed if name not in point.settings]
    if missing:
        raise InputError(
            f"case {point.id} lacks the setting {', '.join(missing)}:"
            " make its point with get_family().point"
        )
    problem = AskedTimes.of(family, point.settings).problem(cloud.time)
    if problem:
        raise InputError(f"case {point.id} {problem}")
