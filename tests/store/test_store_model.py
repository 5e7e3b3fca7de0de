"""The store against a model in memory: whatever is done in whatever order, versions hold what the
model says.
"""

import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from unittest import mock

import icechunk
import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import simgen
from simgen.errors import InputError
from simgen.store import versions as collecting
from simgen.store.verify import verify
from simgen.store.versions import collect
from simgen.store.write import DatasetWriter
from tests.store.conftest import SCHEMA, make_cloud, make_result
from tests.trials import trials

NUMBERS = st.integers(0, 9)
STATUSES = st.sampled_from(["accepted", "accepted", "accepted", "rejected", "failed"])


@dataclass
class Pending:
    """A worker's fork that is not committed yet, with the case that it wrote from a seed."""

    fork: object
    case: str
    status: str
    seed: int


@dataclass
class Version:
    """What a version has to hold for ever: its snapshot, statuses, splits."""

    snapshot_id: str
    statuses: dict[str, str]
    splits: dict[str, str]


class Store(RuleBasedStateMachine):
    """Writers, workers, readers, crashes and gc on one dataset."""

    @initialize()
    def create(self):
        self.folder = Path(tempfile.mkdtemp(prefix="store-model-"))
        self.url = str(self.folder / "cylinder-flow")
        self.writer = DatasetWriter.open(self.url, SCHEMA)
        self.pending: list[Pending] = []
        self.statuses: dict[str, str] = {}
        self.seeds: dict[str, int] = {}
        self.versions: dict[str, Version] = {}
        self.seed = 0

    def teardown(self):
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    @rule(number=NUMBERS, status=STATUSES)
    def a_worker_writes_a_case(self, number, status):
        self.pending.append(self._written(self.writer, number, status))

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def some_forks_are_committed(self, data):
        chosen = data.draw(
            st.lists(st.sampled_from(range(len(self.pending))), min_size=1, max_size=3, unique=True)
        )
        batch = [self.pending[position] for position in chosen]
        self.pending = [one for position, one in enumerate(self.pending) if position not in chosen]
        self.writer.commit([one.fork for one in batch])
        self._committed(batch)

    @rule(numbers=st.lists(NUMBERS, min_size=2, max_size=2, unique=True))
    def two_writers_commit_at_once(self, numbers):
        writers = (self.writer, DatasetWriter.open(self.url, SCHEMA))
        written = [
            self._written(writer, number, "accepted")
            for writer, number in zip(writers, numbers, strict=True)
        ]
        with ThreadPoolExecutor(2) as threads:
            commits = [
                threads.submit(writer.commit, [one.fork])
                for writer, one in zip(writers, written, strict=True)
            ]
            for commit in commits:
                commit.result()
        self._committed(written)

    @rule()
    def the_run_is_killed(self):
        self.pending.clear()
        self.writer = DatasetWriter.open(self.url, SCHEMA)

    @rule(
        stage=st.sampled_from(["flush", "reset_branch", "create_tag"]),
        message=st.text("abc", max_size=3),
    )
    def the_run_is_killed_while_it_publishes(self, stage, message):
        owner = icechunk.Session if stage == "flush" else icechunk.Repository
        with mock.patch.object(owner, stage, side_effect=KeyboardInterrupt):
            try:
                name = self.writer.publish(message)
            except KeyboardInterrupt:
                if stage == "create_tag":  # a version exists once the branch names its commit
                    self._published(f"v{len(self.versions) + 1}")
            except InputError:
                pass
            else:  # nothing was left to do for what is killed here
                self._published(name)
        self.the_run_is_killed()

    @rule()
    def a_version_is_published(self):
        if "accepted" not in self.statuses.values():
            try:
                self.writer.publish()
            except InputError:
                return
            raise AssertionError("published without an accepted case")
        self._published(self.writer.publish())

    def _published(self, name):
        newest = list(self.versions)[-1] if self.versions else None
        accepted = {case for case, status in self.statuses.items() if status == "accepted"}
        if newest is not None and self.versions[newest].statuses == self.statuses:
            assert name == newest
            return
        assert name == f"v{len(self.versions) + 1}"
        dataset = simgen.open_dataset(self.url)
        splits = {case: str(dataset[case].split) for case in dataset.cases()}
        assert set(splits) == accepted
        if newest is not None:
            assert self.versions[newest].splits.items() <= splits.items(), (
                "a case has moved between splits"
            )
        self.versions[name] = Version(dataset.snapshot_id, dict(self.statuses), splits)

    @rule()
    def garbage_is_collected(self):
        self.pending.clear()  # with no age limit what is not committed is garbage
        with mock.patch.object(collecting, "LEAST_AGE", timedelta(0)):
            collect(self.url, older_than=timedelta(0))

    @invariant()
    def everything_committed_is_on_record(self):
        if hasattr(self, "writer"):
            design = DatasetWriter.open(self.url, SCHEMA).design()
            assert {case: row["status"] for case, row in design.items()} == self.statuses

    @precondition(lambda self: getattr(self, "versions", None))
    @rule(data=st.data())
    def a_reader_finds_what_was_published(self, data):
        name = data.draw(st.sampled_from(list(self.versions)))
        expected, dataset = self.versions[name], simgen.open_dataset(self.url, name)
        assert dataset.snapshot_id == expected.snapshot_id
        assert dataset.design["status"].to_dict() == expected.statuses
        assert {case: dataset[case].split for case in dataset.cases()} == expected.splits
        for case in dataset.cases():
            cloud = make_cloud(self.seeds[case])
            np.testing.assert_array_equal(dataset[case]["velocity"][:], cloud.fields["velocity"])
            np.testing.assert_array_equal(dataset[case].points, cloud.points)

    @precondition(lambda self: getattr(self, "versions", None))
    @rule(data=st.data())
    def verification_finds_nothing(self, data):
        dataset = simgen.open_dataset(self.url, data.draw(st.sampled_from(list(self.versions))))
        assert verify(dataset).findings == []

    def _written(self, writer, number, status):
        self.seed += 1
        result = make_result(number, status, "" if status == "accepted" else "a reason")
        fork = writer.fork()
        fork.write(result, make_cloud(self.seed) if status == "accepted" else None)
        return Pending(fork, result.id, status, self.seed)

    def _committed(self, batch):
        """An accepted case stays as it is; within a batch the first copy counts."""
        seen = set()
        for one in batch:
            if self.statuses.get(one.case) == "accepted" or one.case in seen:
                continue
            seen.add(one.case)
            self.statuses[one.case] = one.status
            self.seeds[one.case] = one.seed


TestStore = Store.TestCase
TestStore.settings = settings(
    max_examples=trials(20),
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
