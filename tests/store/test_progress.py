"""How far a dataset is can be told from its commits alone."""

from simgen.store import versions as progress
from simgen.store.versions import read_progress
from simgen.store.write import DatasetWriter
from tests.store.conftest import make_cloud, make_result


def commit(writer: DatasetWriter, number: int, num_left: int | None, status: str = "accepted"):
    fork = writer.fork()
    fork.write(make_result(number, status), make_cloud(number) if status == "accepted" else None)
    writer.commit([fork], num_left)


def test_cases_left_and_the_time_that_they_take_follow_from_the_commits(url, writer):
    commit(writer, 0, num_left=3)
    begun = read_progress(url)
    assert (begun.num_left, begun.case_s, begun.left_s) == (3, None, None)
    commit(writer, 1, num_left=2, status="rejected")
    commit(writer, 2, num_left=1)
    found = read_progress(url)
    assert found.num_cases == {"accepted": 2, "rejected": 1, "failed": 0}
    assert (found.state, found.num_left, found.version) == ("solving", 1, None)
    assert found.case_s is not None and found.case_s > 0 and found.left_s == found.case_s
    assert found.solver_s == 3 * 2.0, "the solvers' own seconds, without meshing"


def test_a_dataset_is_unpublished_until_a_version_holds_all_of_it(url, writer):
    commit(writer, 0, num_left=0)
    assert read_progress(url).state == "unpublished"
    writer.publish()
    found = read_progress(url)
    assert (found.state, found.version) == ("published", "v1")
    commit(writer, 1, num_left=0)
    assert (read_progress(url).state, read_progress(url).version) == ("unpublished", "v1")


def test_cases_left_by_a_writer_that_has_fallen_silent_are_not_called_solving(
    url, writer, monkeypatch
):
    commit(writer, 0, num_left=1)
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    monkeypatch.setattr(progress, "PATIENT_CASES", 10_000)
    assert read_progress(url).state == "solving", "cases like the last one take longer"
    monkeypatch.setattr(progress, "PATIENT_CASES", 0)
    assert read_progress(url).state == "silent"


def test_a_dataset_without_a_case_is_begun(url, writer):
    assert read_progress(url).state == "begun"


def test_the_pace_is_that_of_the_last_writer(url, writer):
    commit(writer, 0, num_left=1)
    commit(writer, 1, num_left=0)
    commit(writer, 2, num_left=5)
    assert read_progress(url).case_s is None, "the commits before are another run's"
