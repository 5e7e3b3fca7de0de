"""`verify` finds every kind of damage to a version and names it."""

import json

import numpy as np
import pytest
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

import simgen
from bench.damage.objects import DAMAGES, objects, restored, rewrite_snapshot, snapshot_of
from simgen.errors import StoreError
from simgen.store.repository import BRANCH, open_repository
from simgen.store.schema import Table, object_checksum, read_design, version_digest
from simgen.store.verify import verify
from simgen.store.write import DatasetWriter
from tests.store.conftest import SCHEMA, add, make_cloud, make_result


@pytest.fixture
def published(writer, url):
    """Two versions: four cases, a rejected one, then two more."""
    add(writer, 0, 1, 2, 3)
    fork = writer.fork()
    fork.write(make_result(4, "rejected", "Courant number is 7, limit 1.5"), None)
    writer.commit([fork])
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


@DAMAGES
def test_damage_to_any_chunk_is_found_and_named(writer, url, damage):
    forks = [writer.fork() for _ in range(4)]
    for number, fork in enumerate(forks):
        fork.write(make_result(number), make_cloud(number))
    writer.commit(forks)  # in one commit: no chunk of the tables is replaced by a later one
    writer.publish()
    for chunk in objects(url, "chunks"):
        with restored(chunk):
            damage(chunk)
            try:
                findings = verify(simgen.open_dataset(url)).findings
            except StoreError as error:  # a chunk of the tables: the version cannot be opened
                assert "is damaged" in str(error)
                continue
        assert findings, chunk
        assert all(finding.problem for finding in findings)


@DAMAGES
def test_damage_to_any_manifest_is_found_where_the_version_needs_it(published, damage):
    repository = open_repository(published)
    inspected = repository.inspect_snapshot(repository.lookup_tag("v1"))
    if isinstance(inspected, str):  # by Icechunk 1
        inspected = json.loads(inspected)
    needed = {manifest["id"] for manifest in inspected["manifests"]}
    for manifest in objects(published, "manifests")[::5]:
        with restored(manifest):
            damage(manifest)
            assert bool(_findings(published, "v1")) == (manifest.name in needed), manifest


def _findings(url, version):
    try:
        return verify(simgen.open_dataset(url, version)).findings
    except StoreError as error:
        return [str(error)]


def test_a_flipped_byte_of_a_snapshot_is_found_unless_all_that_a_reader_sees_is_the_same(published):
    """Icechunk keeps no checksum of its snapshots; the digests stand in for one."""
    snapshot = snapshot_of(published, "v2")
    before = _all_that_is_seen(published)
    found = 0
    for position in np.linspace(0.0, 0.9999, 40):
        with restored(snapshot):
            content = bytearray(snapshot.read_bytes())
            content[int(position * len(content))] ^= 0x04
            snapshot.write_bytes(content)
            if _findings(published, "v2"):
                found += 1
            else:
                assert _all_that_is_seen(published) == before, position
    assert found >= 20


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"std"', b'"sud"'),  # a table lacks a figure
        (
            b'"node_type"',
            b'"nodeOtype"',
        ),  # a group says what it is by a word that Zarr does not know
        (b'"count"', b'"cou\xfft"'),  # text that is none
        (b'"zarr_format": 3,', b'"zarr_format": 3;'),  # a document that is none
        (b"digest", b"digesu"),  # a record whose digest goes by another name
    ],
)
def test_metadata_that_decodes_to_something_else_is_one_line(published, old, new):
    """Bytes of a snapshot that its compression lets through; each of these once ended in a
    traceback, or was not seen.
    """
    snapshot = snapshot_of(published, "v2")
    with restored(snapshot):
        rewrite_snapshot(snapshot, lambda content: content.replace(old, new))
        findings = _findings(published, "v2")
    assert findings
    assert "Traceback" not in str(findings)


def _all_that_is_seen(url):
    dataset = simgen.open_dataset(url, "v2")
    seen = [dataset.schema, dataset.design.to_json(), dataset.info.metadata, dataset.info.message]
    for case in dataset:
        seen += [
            case.provenance,
            case.gates,
            case.log_tail,
            case.split,
            *(case[name][:].tobytes() for name in ("velocity", "kinematic_pressure")),
        ]
        seen += [
            case.points.tobytes(),
            case.distance.tobytes(),
            case.boundary.patch.tobytes(),
            case.boundary["velocity"][:].tobytes(),
        ]
    return seen


def test_an_array_that_somebody_wrote_over_is_found_by_the_seal(published):
    case = make_result(0).id
    _tamper(published, lambda root: root[f"cases/{case}/velocity"].__setitem__((0, 0, 0), 12345.0))
    findings = verify(simgen.open_dataset(published, "v3")).findings
    found = {(finding.case, finding.place): finding.problem for finding in findings}
    assert found == {(case, "velocity"): "chunk 0/0/0 is not what was written"}


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


def test_values_that_are_not_those_on_record_are_found(published):
    """Where the record of a chunk goes along with it, the digest of the array does not."""
    case = make_result(0).id

    def change(root):
        design, details = Table(root, "design"), Table(root, "details")
        row = read_design(root)[case]
        root[f"cases/{case}/velocity"][0, 0, 0] = 12345.0
        chunk = sync(root.store.get(f"cases/{case}/velocity/c/0/0/0", default_buffer_prototype()))
        line = details.row(row["at"])
        line["objects"]["velocity/c/0/0/0"] = object_checksum("c/0/0/0", chunk)
        design.append([{"case": case, **row, "at": details.append([line])[0]}])

    _tamper(published, change)
    (finding,) = verify(simgen.open_dataset(published, "v3")).findings
    assert finding.place == "velocity"
    assert finding.problem == "its values are not those written"


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
        tables = {name: Table(root, name).content() for name in ("design", "splits")}
        metadata["digest"] = version_digest(root, tables, {**metadata, "message": "second"})
    repository.create_tag("v3", snapshot_id=session.commit("second", metadata=metadata))


def test_a_publication_that_was_cut_off_and_overtaken_still_follows_the_rule_of_the_splits(
    writer, url, monkeypatch
):
    add(writer, 0, 1, 2)
    with monkeypatch.context() as patch:
        patch.setattr("icechunk.Repository.create_tag", _killed)
        with pytest.raises(KeyboardInterrupt):
            writer.publish()
    again = DatasetWriter.open(url, SCHEMA)
    add(again, 3, 4, 5)
    assert again.publish() == "v2"
    for version, size in (("v1", 3), ("v2", 6)):
        dataset = simgen.open_dataset(url, version)
        assert (len(dataset), verify(dataset).findings) == (size, [])


def _killed(*_args, **_kwargs):
    raise KeyboardInterrupt
