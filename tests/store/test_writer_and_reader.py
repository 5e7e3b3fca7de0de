"""Writing cases, publishing versions, reading them back: what the dataset promises."""

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import meshio
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import simgen
from simgen.errors import InputError, SimgenError, StoreError
from simgen.store import schema
from simgen.store import versions as progress
from simgen.store.schema import CaseArray, CaseTable, create_tables, digest_case
from simgen.store.versions import BRANCH, open_repository, read_progress
from simgen.store.write import DatasetWriter
from tests.store.conftest import SCHEMA, add, make_cloud, make_result, publish, record


def test_a_case_comes_back_bit_for_bit(writer, url):
    (case,) = add(writer, 0)
    writer.publish()
    stored, cloud = simgen.open_dataset(url)[case], make_cloud(0)
    for name in ("points", "volumes", "distance", "direction", "time"):
        np.testing.assert_array_equal(getattr(stored, name), getattr(cloud, name), strict=True)
    found, faces = stored.boundary, cloud.boundary
    for name in ("points", "normals", "areas", "patch"):
        np.testing.assert_array_equal(getattr(found, name), getattr(faces, name), strict=True)
    for name, values in cloud.fields.items():
        np.testing.assert_array_equal(stored[name][:], values, strict=True)
        np.testing.assert_array_equal(found[name][:], faces.fields[name], strict=True)
    assert stored.parameters == dict(make_result(0).point.parameters)
    assert stored.provenance["solver_version"] == "OpenFOAM v1912"
    assert stored.gates[1]["value"] == "nan"
    assert stored.num_points == cloud.num_points


def test_rejected_and_failed_cases_are_on_record_with_their_reasons(writer, url):
    add(writer, 0)
    for number, status in ((1, "rejected"), (2, "failed")):
        record(writer, make_result(number, status, "Courant number is 7, limit 1.5"))
    writer.publish()
    dataset = simgen.open_dataset(url)
    rejected = make_result(1).id
    assert dataset.design["status"].to_dict()[rejected] == "rejected"
    assert dataset[rejected].log_tail == "last line"
    assert rejected not in dataset.cases()
    with pytest.raises(InputError, match="rejected and has no arrays: Courant number is 7"):
        dataset[rejected]["velocity"]


def test_a_window_in_time_reads_only_its_chunks(writer, url, monkeypatch):
    monkeypatch.setattr(schema, "CHUNK_BYTES", 40 * 2 * 4)  # one snapshot a chunk
    array = publish(writer, 0)[0]["velocity"]
    assert array.chunks == (1, 40, 2)
    read = []
    store_get = type(array.store_path.store).get

    async def counting(self, key, *args, **kwargs):
        read.append(key)
        return await store_get(self, key, *args, **kwargs)

    monkeypatch.setattr(type(array.store_path.store), "get", counting)
    np.testing.assert_array_equal(array[2:4], make_cloud(0).fields["velocity"][2:4])
    assert sorted(key.rsplit("/c/")[-1] for key in read if "/c/" in key) == ["2/0/0", "3/0/0"]


def test_a_dataset_travels_between_processes_and_threads(writer, url):
    publish(writer, 0, 1, 2)
    dataset = pickle.loads(pickle.dumps(simgen.open_dataset(url)))
    publish(writer, 3)
    assert pickle.loads(pickle.dumps(dataset)).version == "v1"
    found, barrier = [], threading.Barrier(8)

    def read(number):
        barrier.wait()
        found.append(float(dataset[number % 3]["velocity"][:].sum()))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(read, range(8)))
    assert len(set(found)) == 3


def test_a_case_as_xarray_and_as_vtu(writer, url, tmp_path):
    case = publish(writer, 0)[0]
    opened = case.to_xarray()
    assert opened["velocity"].dims == ("time", "point", "velocity_component")
    assert opened["velocity"].attrs["unit"] == "m/s"
    assert opened["distance"].sel(patch_kind="cylinder").shape == (40,)
    case.write(tmp_path / "case.vtu", step=2)
    written = meshio.read(tmp_path / "case.vtu")
    np.testing.assert_array_equal(
        written.point_data["velocity"][:, :2], make_cloud(0).fields["velocity"][2]
    )
    with pytest.raises(InputError, match=r"case\.xyzzy cannot be written"):
        case.write(tmp_path / "case.xyzzy")


def test_what_does_not_exist_is_named(writer, url, tmp_path):
    dataset = publish(writer, 0)
    with pytest.raises(IndexError):
        dataset[5]
    rejected = DatasetWriter.open(str(tmp_path / "rejected"), SCHEMA)
    record(rejected, make_result(1, "rejected", "Courant number is 7"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    future = DatasetWriter.open(str(tmp_path / "future"), SCHEMA)
    session = open_repository(future.url).writable_session(BRANCH)
    zarr.open_group(session.store, mode="r+").attrs["schema_version"] = 99
    session.commit("from the future")
    other, nobody = replace(SCHEMA, family="branched-pipe"), str(tmp_path / "nobody")
    for call, problem in (
        (lambda: simgen.open_dataset(url, "v9"), "has no version v9; there are v1"),
        (lambda: simgen.open_dataset(tmp_path / "nowhere"), "there is no dataset at"),
        (lambda: simgen.open_dataset(tmp_path / "empty"), "there is no dataset at"),
        (lambda: simgen.open_dataset("gs://bucket"), "gs://bucket is of no known kind"),
        (lambda: dataset["abc"], "has no case abc; `courant dataset show /.*` lists"),
        (lambda: dataset[f"{dataset.cases()[0]}0"], f"did you mean {dataset.cases()[0]}. `cou"),
        (lambda: dataset.required("test"), "v1 has no test case; generate .* --split test if need"),
        (lambda: dataset.required("test", "wait"), "if need be, or wait$"),
        (lambda: dataset.cases("dev"), "split 'dev' is unknown; choose one of train, validation"),
        (lambda: dataset[0]["temperature"], r"has no array temperature; there are .*velocity"),
        (lambda: DatasetWriter.open(f"{tmp_path}/file/store", SCHEMA), "cannot be used: File exi"),
        (lambda: DatasetWriter.open(url, other), "holds cylinder-flow revision .* not branched-"),
        (lambda: DatasetWriter.open(future.url, SCHEMA), "has schema version 99, .* reads 4: use"),
        (lambda: DatasetWriter.open(nobody, SCHEMA).publish(), "generate some first"),
        (rejected.publish, "none of 1 cases was accepted.*was rejected: Courant number is 7"),
    ):
        with pytest.raises(SimgenError, match=problem):
            call()


def test_a_cloud_that_does_not_follow_the_schema_is_refused(writer):
    cloud = make_cloud(0)
    velocity, pressure = cloud.fields["velocity"], cloud.fields["kinematic_pressure"]

    def fields(**changed):
        return replace(cloud, fields={**cloud.fields, **changed})

    for wrong, problem in (
        (replace(cloud, fields={"velocity": velocity}), "lacks kinematic_pressure"),
        (fields(temperature=pressure), "cannot have temperature"),
        (replace(cloud, patch_kinds=("inlet", "outlet", "wall", "sphere")), "patch kinds"),
        (fields(velocity=velocity.astype("f2")), "velocity in type float16, the dataset float32"),
        (replace(cloud, volumes=cloud.volumes.astype(float)), "volumes in type float64"),
        (replace(cloud, points=cloud.points.astype(">f4")), "points in type >f4"),
        (replace(cloud, time=cloud.time.astype("f4")), "time in type float32, the dataset float64"),
    ):
        with pytest.raises(InputError, match=problem):
            writer.fork().write(make_result(0), wrong)


def test_a_fork_of_which_another_writer_had_a_case_accepted_is_not_lost_in_silence(writer, url):
    shared = writer.fork()
    for number in (0, 1, 2):
        shared.write(make_result(number), make_cloud(number))
    add(DatasetWriter.open(url, SCHEMA), 1)
    with pytest.raises(StoreError, match="was accepted meanwhile, and 2 new ones"):
        writer.commit([shared])


def test_progress_follows_from_the_commits(url, writer, monkeypatch):
    def commit_case(number, num_left, status="accepted"):
        cloud = make_cloud(number) if status == "accepted" else None
        record(writer, make_result(number, status), cloud, num_left)
        return read_progress(url)

    assert read_progress(url).state == "begun"
    begun = commit_case(0, num_left=2)
    assert (begun.state, begun.num_left, begun.left_s) == ("solving", 2, None)
    found = commit_case(1, num_left=1, status="rejected")
    assert found.num_cases == {"accepted": 1, "rejected": 1, "failed": 0}
    assert (found.state, found.version) == ("solving", None) and found.left_s > 0
    assert found.solver_s == 2 * 2.0, "the solvers' own seconds, without meshing"
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    assert read_progress(url).state == "solving", "cases like the last one take longer"
    monkeypatch.setattr(progress, "PATIENT_CASES", 0)
    assert read_progress(url).state == "silent"
    assert commit_case(2, num_left=0).state == "unpublished"
    writer.publish()
    assert (read_progress(url).state, read_progress(url).version) == ("published", "v1")
    another = commit_case(3, num_left=5)
    assert (another.version, another.left_s) == ("v1", None), "the commit before is another run's"


lines = st.lists(
    st.dictionaries(
        st.text(max_size=5), st.text(max_size=40) | st.integers() | st.none(), max_size=4
    )
)


def make_root():
    root = zarr.create_group(zarr.storage.MemoryStore())
    create_tables(root)
    return root


def append(root, *records):
    return CaseTable(root, "design").append(records)


@given(st.lists(lines, max_size=5))
@settings(deadline=None, max_examples=25)
def test_what_is_appended_comes_back_in_order_and_by_place(appended):
    root = make_root()
    places = [place for batch in appended for place in append(root, *batch)]
    expected = [record for batch in appended for record in batch]
    table = CaseTable(root, "design")
    assert list(table.rows()) == expected
    assert [table.row(place) for place in places] == expected


def test_the_digest_of_a_case_depends_on_its_content_alone():
    values = np.arange(12.0, dtype="f4").reshape(4, 3)

    def digest(**arrays):
        of = {n: CaseArray(n, values, (), {"unit": unit}) for n, (values, unit) in arrays.items()}
        return digest_case({}, {name: array.digest for name, array in of.items()})

    one = digest(a=(values, "m"), b=(values, ""))
    assert one == digest(b=(values, ""), a=(np.asfortranarray(values), "m"))
    changed = values.copy()
    changed[3, 2] = np.nextafter(changed[3, 2], 99, dtype="f4")
    for other in (
        {"a": (changed, "m"), "b": (values, "")},
        {"a": (values.reshape(3, 4), "m"), "b": (values, "")},
        {"a": (values, "km"), "b": (values, "")},
        {"a": (values.astype("f8"), "m"), "b": (values, "")},
        {"a": (values, "m")},
    ):
        assert digest(**other) != one
