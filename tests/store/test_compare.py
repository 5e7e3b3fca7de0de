"""What versions differ in."""

import pytest

import simgen
from simgen.store.verify import compare, history
from tests.store.conftest import add, make_result, record


@pytest.fixture
def grown(writer, url):
    add(writer, 0, 1, 2)
    record(writer, make_result(3, "failed", "time limit of 60 s"))
    writer.publish("first")
    add(writer, 3, 4, 5)  # the failed one is solved as well
    record(writer, make_result(6, "rejected", "Courant number is 7"))
    writer.publish("second")
    return url


def test_the_difference_of_two_versions(grown):
    before, after = simgen.open_dataset(grown, "v1"), simgen.open_dataset(grown, "v2")
    found = compare(before, after)
    assert set(found.added) == {make_result(number).id for number in (4, 5, 6)}
    assert found.changed_status == {make_result(3).id: ("failed", "accepted")}
    assert (found.removed, found.changed_content) == ([], [])
    assert sum(found.new_splits.values()) == 3
    assert {moved.field for moved in found.statistics} >= {"velocity"} or found.new_splits[
        "train"
    ] == 0
    assert found.num_bytes_added > 3 * 5000
    assert not found.is_empty
    backwards = compare(after, before)
    assert set(backwards.removed) == set(found.added)


def test_the_history_says_what_each_version_brought(grown):
    lines = history(simgen.open_dataset(grown))
    assert [(line.info.name, line.num_cases, line.num_new) for line in lines] == [
        ("v1", 3, 3),
        ("v2", 6, 3),
    ]
    assert lines[1].num_bytes == 2 * lines[0].num_bytes
    assert lines[0].num_bytes_new == pytest.approx(lines[1].num_bytes_new, rel=0.05)
