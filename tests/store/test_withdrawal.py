"""Cases that should not have been published: a version without them, and nothing else changed."""

import pickle

import numpy as np
import pytest

import simgen
from simgen.errors import InputError
from simgen.store.read import Dataset
from simgen.store.verify import history, verify
from tests.store.conftest import add, make_cloud, make_result, record

REASON = "half of its snapshots were lost"


@pytest.fixture
def published(writer, url) -> Dataset:
    add(writer, *range(8))
    writer.publish("eight cases")
    return simgen.open_dataset(url)


def test_a_withdrawn_case_is_gone_from_the_new_version_and_from_no_other(published, writer, url):
    case = published.cases("train")[1]
    assert writer.withdraw([case], REASON) == "v2"
    after, before = simgen.open_dataset(url), simgen.open_dataset(url, "v1")
    assert after.cases() == [other for other in published.cases() if other != case]
    found = after[case]
    assert (found.status, found.reason, found.split) == ("withdrawn", REASON, None)
    assert after[case].gates == published[case].gates
    assert set(after[case].provenance["withdrawn"]) == {"at", "by"}
    with pytest.raises(InputError, match=f"case {case} was withdrawn and has no arrays: {REASON}"):
        after[case]["velocity"]
    assert f"cases/{case}/velocity" not in after._root
    assert before[case]["velocity"].shape == published[case]["velocity"].shape
    assert verify(after).findings == []
    assert verify(before).findings == []


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_design_that_is_solved_again_has_its_split_back(published, writer, url, split):
    case = published.cases(split)[-1]
    number = [make_result(number).id for number in range(8)].index(case)
    writer.withdraw([case], REASON)
    add(writer, *range(8, 12))
    writer.publish("others meanwhile")
    record(writer, make_result(number, "failed", "no"))
    add(writer, 12)
    writer.publish("it failed once")
    add(writer, number)
    assert writer.publish("and was solved") == "v5"
    after = simgen.open_dataset(url)
    assert after[case].split == split
    np.testing.assert_array_equal(after[case]["velocity"][:], make_cloud(number).fields["velocity"])
    for version in ("v1", "v2", "v3", "v4", "v5"):
        assert verify(simgen.open_dataset(url, version)).findings == [], version
    newest = history(after)[-1]
    assert newest.num_new == 1


def test_what_cannot_be_withdrawn_is_one_line_and_changes_nothing(published, writer, url):
    record(writer, make_result(9, "failed", "no"))
    case, failed = published.cases()[0], make_result(9).id
    for cases, reason, problem in (
        (["nonsense"], REASON, "nonsense is unknown.*`courant dataset show .+` lists the cases"),
        ([failed], REASON, f"{failed} is failed, and only accepted cases can be withdrawn: no"),
        ([case, "nonsense"], REASON, "nonsense is unknown"),
        ([case], "  ", "a withdrawal needs a case, and a reason"),
        ([], REASON, "a withdrawal needs a case, and a reason"),
        (published.cases("train"), REASON, "no training case would be left"),
        (published.cases(), REASON, "none of 9 cases was accepted"),
    ):
        with pytest.raises(InputError, match=problem):
            writer.withdraw(cases, reason)
    assert simgen.open_dataset(url).version == "v1"
    assert [row["status"] for row in writer.design().values()].count("accepted") == 8


def test_a_fork_knows_what_was_put_on_record_since_it_was_made(writer):
    add(writer, 1)
    record(writer, make_result(2, "failed", "no"))
    fork = pickle.loads(pickle.dumps(writer.fork()))
    assert fork.recorded_since(make_result(3).id) is None
    assert fork.recorded_since(make_result(2).id) is None, "it is there to be solved again"
    add(writer, 3)
    record(writer, make_result(2, "failed", "no"))
    assert fork.recorded_since(make_result(3).id)["status"] == "accepted"
    assert fork.recorded_since(make_result(2).id)["status"] == "failed", (
        "another writer has tried it since"
    )
