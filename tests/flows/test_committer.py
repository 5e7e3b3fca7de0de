"""Cases become durable at once where that is cheap, and share commits where it is not."""

import pickle
import time

import pytest

from flows.committer import Committer, SolvedFork
from simgen.store.access.writer import DatasetWriter
from tests.store.conftest import SCHEMA, make_cloud, make_result


class CountingWriter(DatasetWriter):
    """A real writer with a store as slow as a large dataset's."""

    pause_s = 0.0
    commits = 0

    def commit(self, forks, num_left=None):
        time.sleep(self.pause_s)
        super().commit(forks, num_left)
        self.commits += 1
        self.left = num_left


def solved(shared, number):
    """As a worker sends it back: written through a copy of the fork."""
    fork, result = pickle.loads(pickle.dumps(shared)), make_result(number)
    fork.write(result, make_cloud(number))
    return SolvedFork(fork, result.id, "accepted", "", 1.0)


def committed(tmp_path, pause_s, wait_s):
    writer = CountingWriter.open(str(tmp_path / "store"), SCHEMA)
    writer.pause_s = pause_s
    shared, seen = writer.fork(), []
    cases = [solved(shared, number) for number in range(5)]
    committer = Committer(writer, lambda case: seen.append(case.case), len(cases))
    for case in cases:
        committer.take(case)
        time.sleep(wait_s)
    on_record = list(seen)
    committer.flush()
    assert set(writer.known()) == {case.case for case in cases}
    assert seen == [case.case for case in cases]
    assert writer.left == 0, "the last commit says that nothing is left"
    return writer.commits, len(on_record)


def test_cheap_commits_are_made_at_once(tmp_path):
    assert committed(tmp_path, pause_s=0.0, wait_s=0.5) == (5, 5)


def test_cases_that_end_during_a_slow_commit_share_the_next(tmp_path):
    commits, on_record = committed(tmp_path, pause_s=1.0, wait_s=0.0)
    assert commits == 2
    assert on_record == 1


def test_a_case_does_not_wait_for_the_end_of_the_next(tmp_path):
    writer = CountingWriter.open(str(tmp_path / "store"), SCHEMA)
    writer.pause_s = 0.5
    shared = writer.fork()
    committer = Committer(writer, lambda case: None, 3)
    for number in (0, 1):
        committer.take(solved(shared, number))
    left = committer.flush_where_due()
    assert left is not None and writer.commits == 1
    time.sleep(left)
    assert committer.flush_where_due() is None and writer.commits == 2
    assert committer.flush_where_due() is None and writer.commits == 2


def test_an_interrupted_commit_is_counted_once(tmp_path):
    class Interrupted(CountingWriter):
        def commit(self, forks, num_left=None):
            if not self.commits:
                self.commits = 1
                raise KeyboardInterrupt
            super().commit(forks, num_left)

    writer = Interrupted.open(str(tmp_path / "store"), SCHEMA)
    committer = Committer(writer, lambda case: None, 1)
    with pytest.raises(KeyboardInterrupt):
        committer.take(solved(writer.fork(), 0))
    committer.flush()
    assert writer.left == 0
