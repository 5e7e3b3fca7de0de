"""Cases become durable as they end, and share commits where these would take much of the time."""

import pickle

import pytest

from flows import solving as module
from flows import terminal
from flows.solving import COMMIT_SHARE as SHARE
from flows.solving import Committer, SolvedFork
from simgen.case import Progress
from simgen.store.write import DatasetWriter
from tests.store.conftest import SCHEMA, make_cloud, make_result


class Clock:
    """A clock that moves when a test says so."""

    now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    for each in (module, terminal):
        monkeypatch.setattr(each, "time", clock)
    return clock


class Seen(list[str]):
    """In place of the bars: the cases that are on record."""

    show_slow = list.copy  # which shows nothing

    def ended(self, case: str, *how: object) -> None:
        self.append(case)


class CountingWriter(DatasetWriter):
    """A real writer whose commits take as long as a test says."""

    takes_s = 0.0
    commits = 0

    def commit(self, forks, num_left=None):
        super().commit(forks, num_left)
        self.clock.now += self.takes_s
        self.commits += 1
        self.left = num_left


@pytest.fixture
def writer(tmp_path, clock):
    writer = CountingWriter.open(str(tmp_path / "store"), SCHEMA)
    writer.clock = clock
    return writer


def solved(shared, number):
    """As a worker sends it back: written through a copy of the fork."""
    fork, result = pickle.loads(pickle.dumps(shared)), make_result(number)
    fork.write(result, make_cloud(number))
    return SolvedFork(fork, result.id, "accepted", "", 1.0)


@pytest.mark.parametrize(
    ("takes_s", "every_s", "commits"), [(0.05, 1.0, (5, 5)), (1.0, 0.0, (2, 1))]
)
def test_cases_that_end_shortly_after_a_commit_share_the_next(writer, takes_s, every_s, commits):
    writer.takes_s = takes_s
    shared, seen = writer.fork(), Seen()
    cases = [solved(shared, number) for number in range(5)]
    committer = Committer(writer, len(cases), seen)
    for case in cases:
        committer.take(case)
        writer.clock.now += every_s
    on_record = list(seen)
    committer.flush()
    assert set(writer.design()) == {case.case for case in cases}
    assert seen == [case.case for case in cases]
    assert writer.left == 0, "the last commit says that nothing is left"
    assert (writer.commits, len(on_record)) == commits


def test_commits_take_a_small_part_of_the_time_and_no_case_waits_for_the_next(writer):
    """Each rewrites a list that grows with the dataset: one for every case would be quadratic."""
    writer.takes_s = 1.0
    shared = writer.fork()
    committer = Committer(writer, 4, Seen())
    for number in (0, 1):
        committer.take(solved(shared, number))
    assert SHARE <= 0.1
    for seconds, commits in ((1.0 / SHARE - 1.5, 1), (0.5, 2), (0.0, 2)):
        writer.clock.now += seconds
        committer.flush_where_due()
        assert writer.commits == commits
    committer.take(solved(shared, 2))
    committer.flush()  # an end, or an interruption, waits for nothing
    assert writer.commits == 3


def test_a_slow_case_has_a_line_now_and_then_without_a_terminal(tmp_path, clock, capsys):
    terminal.write_progress(Progress("1", "solving", 0.4, "iteration 4 of 9", 60.0), tmp_path)
    bars = terminal.CaseBars(1, tmp_path.parent)
    bars.started(tmp_path.name)
    line = f"case {tmp_path.name}  iteration 4 of 9, 1 min left\n"
    for seconds, printed in ((29, ""), (2, line), (31, ""), (30, line)):
        clock.now += seconds
        bars.show_slow()
        assert capsys.readouterr().err == printed


def test_an_interrupted_commit_is_counted_once(tmp_path, clock):
    class Interrupted(CountingWriter):
        def commit(self, forks, num_left=None):
            if not self.commits:
                self.commits = 1
                raise KeyboardInterrupt
            super().commit(forks, num_left)

    writer = Interrupted.open(str(tmp_path / "store"), SCHEMA)
    writer.clock = clock
    committer = Committer(writer, 1, Seen())
    with pytest.raises(KeyboardInterrupt):
        committer.take(solved(writer.fork(), 0))
    committer.flush()
    assert writer.left == 0
