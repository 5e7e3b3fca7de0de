"""`verify` finds every kind of damage to a version and names it."""

import pytest
import zarr

import simgen
from simgen.errors import StoreError
from simgen.store.schema import CaseTable, version_digest
from simgen.store.verify import verify
from simgen.store.versions import BRANCH, open_repository
from tests.store.conftest import add, make_result, record


@pytest.fixture
def published(writer, url):
    """Two versions: four cases, a rejected one, then two more."""
    add(writer, 0, 1, 2, 3)
    record(writer, make_result(4, "rejected", "Courant number is 7, limit 1.5"))
    writer.publish("first", {"family": "cylinder-flow"})
    add(writer, 5, 6)
    writer.publish("second")
    return url


def test_an_intact_version_has_no_findings_and_progress_is_told(published):
    told = []
    verification = verify(
        simgen.open_dataset(published), lambda done, total: told.append((done, total))
    )
    assert verification.findings == []
    assert verification.num_cases == 7
    assert verification.num_chunks >= 6 * 5
    assert told[-1] == (7, 7)
    assert verify(simgen.open_dataset(published, "v1")).findings == []


def test_attributes_and_arrays_that_somebody_changed_are_found(published):
    case, other = make_result(1).id, make_result(2).id

    def change(root):
        root[f"cases/{case}"].attrs["parameters"] = {"radius": 99.0}
        del root[f"cases/{other}/volumes"]

    _tamper(published, change)
    findings = verify(simgen.open_dataset(published, "v3")).findings
    found = {(finding.case, finding.place): finding.problem for finding in findings}
    assert found == {
        (case, "record"): "its metadata is not what was written",
        (other, "volumes"): "its metadata is missing",
    }


@pytest.mark.parametrize("where", ["statistics", "schema", "withdrawn"])
def test_tables_that_somebody_changed_cannot_be_opened(published, where):
    def change(root):
        if where == "statistics":
            fields = dict(root["statistics"].attrs["fields"])
            fields["velocity"]["mean"] = [7.0, 7.0]
            root["statistics"].attrs["fields"] = fields
        elif where == "schema":
            root.attrs["schema"] = {**root.attrs["schema"], "dimension": 3}
        else:
            root["splits"].attrs["withdrawn"] = {"a": "train"}

    _tamper(published, change, with_digest=False)
    with pytest.raises(StoreError, match="its tables or its record are not what was published"):
        simgen.open_dataset(published, "v3")


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
