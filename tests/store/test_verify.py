"""`verify` finds every kind of damage to a version; what versions differ in."""

import pytest
import zarr

import simgen
from bench.damage import BAD, make_store, run_trials
from simgen.errors import StoreError
from simgen.store.schema import CaseTable, version_digest
from simgen.store.verify import compare, history, verify
from simgen.store.versions import BRANCH, open_repository
from tests.store.conftest import add, make_result, record
from tests.trials import trials


@pytest.fixture
def grown(writer, url):
    add(writer, 0, 1, 2)
    record(writer, make_result(3, "failed", "time limit of 60 s"))
    writer.publish("first")
    add(writer, 3, 4, 5)  # the failed one is solved as well
    record(writer, make_result(6, "rejected", "Courant number is 7"))
    writer.publish("second")
    return url


def test_an_intact_version_has_no_findings_and_progress_is_told(grown):
    steps = []
    verification = verify(simgen.open_dataset(grown), lambda *step: steps.append(step))
    assert (verification.findings, verification.num_cases, steps[-1]) == ([], 7, (7, 7))
    assert verification.num_chunks >= 6 * 5
    assert verify(simgen.open_dataset(grown, "v1")).findings == []


def test_attributes_and_arrays_that_somebody_changed_are_found(grown):
    case, other = make_result(1).id, make_result(2).id

    def change(root):
        root[f"cases/{case}"].attrs["parameters"] = {"radius": 99.0}
        del root[f"cases/{other}/volumes"]

    _tamper(grown, change)
    findings = verify(simgen.open_dataset(grown, "v3")).findings
    found = {(finding.case, finding.place): finding.problem for finding in findings}
    assert found == {
        (case, "record"): "its metadata is not what was written",
        (other, "volumes"): "its metadata is missing",
    }


@pytest.mark.parametrize("where", ["statistics", "schema", "withdrawn"])
def test_tables_that_somebody_changed_cannot_be_opened(grown, where):
    def change(root):
        if where == "statistics":
            fields = dict(root["statistics"].attrs["fields"])
            fields["velocity"]["mean"] = [7.0, 7.0]
            root["statistics"].attrs["fields"] = fields
        elif where == "schema":
            root.attrs["schema"] = {**root.attrs["schema"], "dimension": 3}
        else:
            root["splits"].attrs["withdrawn"] = {"a": "train"}

    _tamper(grown, change, with_digest=False)
    with pytest.raises(StoreError, match="its tables or its record are not what was published"):
        simgen.open_dataset(grown, "v3")


def _tamper(url, change, with_digest=True):
    """Commit a change behind the writer's back and tag it, with the metadata of the newest
    version.
    """
    repository = open_repository(url)
    session = repository.writable_session(BRANCH)
    root = zarr.open_group(session.store, mode="r+")
    change(root)
    metadata = {**next(iter(repository.ancestry(tag="v2"))).metadata, "publication": "v3"}
    if with_digest:
        tables = {name: CaseTable(root, name).content() for name in ("design", "splits")}
        metadata["digest"] = version_digest(root, tables, {**metadata, "message": "second"})
    repository.create_tag("v3", snapshot_id=session.commit("second", metadata=metadata))


def test_the_difference_of_two_versions(grown):
    before, after = simgen.open_dataset(grown, "v1"), simgen.open_dataset(grown, "v2")
    found = compare(before, after)
    assert set(found.added) == {make_result(number).id for number in (4, 5, 6)}
    assert found.changed_status == {make_result(3).id: ("failed", "accepted")}
    assert (found.removed, found.changed_content) == ([], [])
    assert sum(found.new_splits.values()) == 3
    assert {name for name, *_ in found.statistics} >= {"velocity"} or found.new_splits["train"] == 0
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


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("damage"))


@pytest.mark.nightly
def test_each_read_of_a_damaged_store_gives_the_right_data_or_one_right_line(store):
    tried = run_trials(store, seed=7, numbers=range(trials(50)))
    assert [trial for trial in tried if trial.outcome in BAD] == []
    assert {trial.outcome for trial in tried} == {"right data", "one line"}
