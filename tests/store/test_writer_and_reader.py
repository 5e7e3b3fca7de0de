"""Writing cases, publishing versions, reading them back: what the dataset promises."""

import pickle
import threading
from dataclasses import replace

import meshio
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import simgen
from simgen.errors import InputError, StoreError
from simgen.store import schema
from simgen.store import versions as progress
from simgen.store.schema import CaseTable, create_tables, digest_array, digest_case
from simgen.store.versions import BRANCH, open_repository, read_progress
from simgen.store.write import DatasetWriter
from tests.store.conftest import SCHEMA, add, make_cloud, make_result, publish, record


def test_a_case_comes_back_bit_for_bit(writer, url):
    (case,) = add(writer, 0)
    writer.publish()
    stored, cloud = simgen.open_dataset(url)[case], make_cloud(0)
    for name in ("points", "volumes", "distance", "direction", "time"):
        np.testing.assert_array_equal(getattr(stored, name), getattr(cloud, name), strict=True)
    for name in ("points", "normals", "areas", "patch"):
        np.testing.assert_array_equal(
            getattr(stored.boundary, name), getattr(cloud.boundary, name), strict=True
        )
    for name, values in cloud.fields.items():
        np.testing.assert_array_equal(stored[name][:], values, strict=True)
        np.testing.assert_array_equal(
            stored.boundary[name][:], cloud.boundary.fields[name], strict=True
        )
    assert stored.parameters == dict(make_result(0).point.parameters)
    assert stored.provenance["solver_version"] == "OpenFOAM v1912"
    assert stored.gates[1]["value"] == "nan"
    assert stored.num_points == cloud.num_points


def test_versions_are_listed_with_their_runs_and_move_no_case_between_splits(writer, url):
    add(writer, 0, 1, 2)
    first = simgen.open_dataset(url, writer.publish("first", {"cases": 3}))
    add(writer, 3, 4, 5)
    newest = simgen.open_dataset(url, writer.publish("second"))
    assert set(newest.cases("test")) >= set(first.cases("test"))
    assert not set(newest.cases("train")) & set(first.cases("test"))
    found = [(each.name, each.message, each.num_cases) for each in newest.versions()]
    assert found == [("v1", "first", 3), ("v2", "second", 6)]
    assert newest.versions()[0].metadata["run"] == {"cases": 3}


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
    with pytest.raises(
        InputError, match=f"case {rejected} was rejected and has no arrays: Courant number is 7"
    ):
        dataset[rejected]["velocity"]


def test_without_an_accepted_case_there_is_no_version(writer):
    with pytest.raises(InputError, match="there is no case to publish"):
        writer.publish()
    record(writer, make_result(1, "rejected", "max Courant number is 7"))
    with pytest.raises(
        InputError, match=r"none of 1 cases was accepted.*was rejected: max Courant number is 7"
    ):
        writer.publish()


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

    threads = [threading.Thread(target=read, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
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


def test_names_that_do_not_exist_are_named(writer, url):
    dataset = publish(writer, 0)
    with pytest.raises(InputError, match="has no version v9; there are v1"):
        simgen.open_dataset(url, "v9")
    with pytest.raises(InputError, match="has no case abc"):
        dataset["abc"]
    with pytest.raises(IndexError, match="has 1 cases, there is no case 5"):
        dataset[5]
    with pytest.raises(
        InputError, match="split 'dev' is unknown; choose one of train, validation, test"
    ):
        dataset.cases("dev")
    with pytest.raises(InputError, match=r"has no array temperature; there are .*velocity"):
        dataset[0]["temperature"]


def test_places_that_are_no_dataset_say_so(tmp_path):
    with pytest.raises(InputError, match="there is no dataset at"):
        simgen.open_dataset(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="there is no dataset at"):
        simgen.open_dataset(tmp_path / "empty")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be used: File exists"):
        DatasetWriter.open(str(tmp_path / "file" / "store"), SCHEMA)
    with pytest.raises(
        InputError, match=r"gs://bucket is of no known kind; use a local path or s3://"
    ):
        simgen.open_dataset("gs://bucket")


def test_another_family_or_schema_is_an_error(writer, url):
    other = replace(SCHEMA, family="branched-pipe")
    with pytest.raises(InputError, match=r"holds cylinder-flow revision \d, not branched-pipe"):
        DatasetWriter.open(url, other)
    session = open_repository(url).writable_session(BRANCH)
    zarr.open_group(session.store, mode="r+").attrs["schema_version"] = 99
    session.commit("from the future")
    with pytest.raises(
        StoreError, match="has schema version 99, this release reads 4: use the release"
    ):
        DatasetWriter.open(url, SCHEMA)


def test_a_cloud_that_does_not_follow_the_schema_or_its_settings_is_refused(writer):
    cloud = make_cloud(0)
    velocity, pressure = cloud.fields["velocity"], cloud.fields["kinematic_pressure"]

    def fields(**changed):
        return replace(cloud, fields={**cloud.fields, **changed})

    for wrong, problem in (
        (None, "a point cloud belongs to accepted cases"),
        (replace(cloud, fields={"velocity": velocity}), "has no kinematic_pressure, unlike"),
        (fields(temperature=pressure), "has temperature"),
        (replace(cloud, patch_kinds=("inlet", "outlet", "wall", "sphere")), "patch kinds"),
        (make_cloud(0, num_snapshots=4), "holds 4 stored times.* missing is t = 5 s"),
        (make_cloud(0, num_snapshots=7), "holds 7 stored times, its settings ask for 6"),
        (replace(cloud, time=cloud.time + 30), "the first that is missing is t = 1 s"),
        (fields(velocity=velocity.astype("f2")), "velocity in float16, the dataset has float32"),
        (replace(cloud, volumes=cloud.volumes.astype(float)), "volumes in float64, the dataset"),
        (replace(cloud, points=cloud.points.astype(">f4")), "points in >f4"),
        (replace(cloud, time=cloud.time.astype("f4")), "time in float32, the dataset has float64"),
    ):
        with pytest.raises(InputError, match=problem):
            writer.fork().write(make_result(0), wrong)
    velocity[2, 0, 0] = np.nan
    with pytest.raises(InputError, match="velocity holds 1 values that are not finite"):
        replace(cloud)
    with pytest.raises(InputError, match="velocity holds 1 values that are not finite"):
        writer.fork().write(make_result(0), cloud)  # it was in order when the cloud was made
    point = replace(make_result(0).point, settings={"end_time": 6.0})
    with pytest.raises(InputError, match="lacks the setting snapshot_interval, time_step"):
        writer.fork().write(replace(make_result(0), point=point), make_cloud(0))


def test_a_fork_of_which_another_writer_had_a_case_accepted_is_not_lost_in_silence(writer, url):
    shared = writer.fork()
    for number in (0, 1, 2):
        shared.write(make_result(number), make_cloud(number))
    add(DatasetWriter.open(url, SCHEMA), 1)
    with pytest.raises(StoreError, match="was accepted meanwhile, and 2 new ones"):
        writer.commit([shared])


def commit_case(writer: DatasetWriter, number: int, num_left: int | None, status: str = "accepted"):
    fork = writer.fork()
    fork.write(make_result(number, status), make_cloud(number) if status == "accepted" else None)
    writer.commit([fork], num_left)


def test_cases_left_and_the_time_that_they_take_follow_from_the_commits(url, writer):
    assert read_progress(url).state == "begun"
    commit_case(writer, 0, num_left=3)
    begun = read_progress(url)
    assert (begun.num_left, begun.case_s, begun.left_s) == (3, None, None)
    commit_case(writer, 1, num_left=2, status="rejected")
    commit_case(writer, 2, num_left=1)
    found = read_progress(url)
    assert found.num_cases == {"accepted": 2, "rejected": 1, "failed": 0}
    assert (found.state, found.num_left, found.version) == ("solving", 1, None)
    assert found.case_s is not None and found.case_s > 0 and found.left_s == found.case_s
    assert found.solver_s == 3 * 2.0, "the solvers' own seconds, without meshing"


def test_a_dataset_is_unpublished_until_a_version_holds_all_of_it(url, writer):
    commit_case(writer, 0, num_left=0)
    assert read_progress(url).state == "unpublished"
    writer.publish()
    found = read_progress(url)
    assert (found.state, found.version) == ("published", "v1")
    commit_case(writer, 1, num_left=0)
    assert (read_progress(url).state, read_progress(url).version) == ("unpublished", "v1")


def test_cases_left_by_a_writer_that_has_fallen_silent_are_not_called_solving(
    url, writer, monkeypatch
):
    commit_case(writer, 0, num_left=1)
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    monkeypatch.setattr(progress, "PATIENT_CASES", 10_000)
    assert read_progress(url).state == "solving", "cases like the last one take longer"
    monkeypatch.setattr(progress, "PATIENT_CASES", 0)
    assert read_progress(url).state == "silent"


def test_the_pace_is_that_of_the_last_writer(url, writer):
    commit_case(writer, 0, num_left=1)
    commit_case(writer, 1, num_left=0)
    commit_case(writer, 2, num_left=5)
    assert read_progress(url).case_s is None, "the commits before are another run's"


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
        return digest_case({}, {name: digest_array(name, *of) for name, of in arrays.items()})

    one = digest(a=(values, "m"), b=(values,))
    assert one == digest(b=(values,), a=(np.asfortranarray(values), "m"))
    changed = values.copy()
    changed[3, 2] = np.nextafter(changed[3, 2], 99, dtype="f4")
    for other in (
        {"a": (changed, "m"), "b": (values,)},
        {"a": (values.reshape(3, 4), "m"), "b": (values,)},
        {"a": (values, "km"), "b": (values,)},
        {"a": (values.astype("f8"), "m"), "b": (values,)},
        {"a": (values, "m")},
    ):
        assert digest(**other) != one
