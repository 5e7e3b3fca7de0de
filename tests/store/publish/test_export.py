"""Exports: a plain Zarr store of one version, complete or not at all; files for ParaView."""

import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import meshio
import numpy as np
import pytest
import xarray
import zarr

import simgen
from bench.damage import flip, objects
from flows.cli.prediction_files import read_boundary
from simgen.cell_mesh import CellMesh
from simgen.errors import InputError, StoreError
from simgen.publish.export import export, export_vtu
from simgen.store.verify import verify
from tests.store.conftest import add, make_cloud, make_result, publish, record

# Nothing of this project: what a downstream team's environment has.
READER = """
import json, sys, zarr
root = zarr.open_group(sys.argv[1], mode="r", use_consolidated=True)
assert root.metadata.consolidated_metadata is not None
assert not {name for name in sys.modules if name.split(".")[0] in ("simgen", "icechunk")}
case = sorted(root["splits"].attrs["members"])[0]
group = root[f"cases/{case}"]
provenance = json.loads(bytes(group["provenance"][:]))["provenance"]
status = root["design"].attrs["cases"][case]["status"]
print(json.dumps({
    "cases": sorted(root["cases"].group_keys()), "case": case, "shape": group["velocity"].shape,
    "sum": float(group["velocity"][:].astype("f8").sum()), "unit": group["velocity"].attrs["unit"],
    "radius": group.attrs["parameters"]["radius"], "solver": provenance["solver_version"],
    "field": root.attrs["schema"]["fields"][0]["name"], "status": status,
    "mean": root["statistics"].attrs["fields"]["velocity"]["mean"],
    "patch": group["boundary/faces"][:, 7].tolist(),
    "dimensions": group["velocity"].metadata.dimension_names,
}))
"""


@pytest.fixture
def dataset(writer, url):
    add(writer, 0, 1, 2)
    record(writer, make_result(3, "rejected", "Courant number is 7, limit 1.5"))
    writer.publish()
    return simgen.open_dataset(url)


def read_alone(target, folder):
    """What a process sees that has neither this project nor Icechunk on its path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", READER, target]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_an_export_is_a_tree_of_xarray_with_names_and_units(dataset, tmp_path):
    export(dataset, tmp_path / "plain")
    tree = xarray.open_datatree(tmp_path / "plain", engine="zarr", consolidated=True)
    stored = dataset[dataset.cases()[0]]
    case = tree[f"cases/{stored.id}"]
    last = case["velocity"].sel(time=stored.time[-1], velocity_component="y")
    np.testing.assert_array_equal(last, stored["velocity"][-1, :, 1])
    assert last.attrs["units"] == case["boundary/velocity"].attrs["units"] == "m/s"
    assert (case.time.attrs["units"], case["points"].attrs["units"]) == ("s", "m")
    assert list(case.patch_kind) == list(dataset.schema.measured_kinds)


def check(seen, dataset):
    stored = dataset[seen["case"]]
    assert seen["cases"] == sorted(dataset.cases())
    assert seen["sum"] == pytest.approx(float(stored["velocity"][:].astype("f8").sum()), rel=1e-12)
    assert tuple(seen["shape"]) == stored["velocity"].shape
    assert seen["radius"] == stored.parameters["radius"]
    assert seen["solver"] == "OpenFOAM v1912"
    assert (seen["unit"], seen["field"], seen["status"]) == ("m/s", "velocity", "accepted")
    assert seen["mean"] == dataset.statistics["velocity"]["mean"].tolist()
    assert seen["patch"] == stored.boundary.patch.tolist()
    assert seen["dimensions"] == ["time", "point", "velocity_component"]


def test_an_export_is_read_by_zarr_alone(dataset, tmp_path):
    steps = []
    exported = export(dataset, tmp_path / "plain", lambda *step: steps.append(step))
    assert (exported.num_cases, steps[-1]) == (3, (3, 3))
    check(read_alone(str(tmp_path / "plain"), tmp_path), dataset)
    root = zarr.open_group(str(tmp_path / "plain"), mode="r")
    assert set(root["design"].attrs["cases"]) == set(dataset.design.index)
    for number in range(3):
        group, cloud = root[f"cases/{make_result(number).id}"], make_cloud(number)
        for name, values in {**cloud.fields, "points": cloud.points}.items():
            np.testing.assert_array_equal(group[name][:], values, strict=True)
    assert group["velocity"].metadata.codecs == dataset[0]["velocity"].metadata.codecs
    assert group["velocity"].chunks == dataset[0]["velocity"].chunks


@pytest.mark.end_to_end
def test_an_export_to_s3_is_read_by_zarr_and_s3fs_alone(dataset, s3, tmp_path):
    export(dataset, f"{s3.url}/export/plain")
    check(read_alone(f"{s3.url}/export/plain", tmp_path), dataset)
    with pytest.raises(InputError, match="is not empty: choose another target"):
        export(dataset, f"{s3.url}/export")


def test_an_interrupted_export_has_no_attributes_and_goes_on_where_it_stopped(
    dataset, tmp_path, monkeypatch
):
    target = tmp_path / "plain"
    copy, copied = zarr.from_array, []

    def killed(store, **options):
        copied.append(options["name"])
        if len(copied) >= 12:  # in the midst of the second case
            raise KeyboardInterrupt
        return copy(store, **options)

    monkeypatch.setattr("simgen.store.verify.THREADS", 1)
    with monkeypatch.context() as patch:
        patch.setattr(zarr, "from_array", killed)
        with pytest.raises(KeyboardInterrupt):
            export(dataset, target)
    assert dict(zarr.open_group(str(target), mode="r").attrs) == {}

    def written():
        """When the points of each case were written."""
        files = target.glob("cases/*/points/zarr.json")
        return {file.parts[-3]: file.stat().st_mtime_ns for file in files}

    before = written()
    export(dataset, target)
    after = written()
    first = copied[0].split("/")[1]
    assert len(after) == 3
    assert [case for case in after if after[case] == before.get(case)] == [first]
    check(read_alone(str(target), tmp_path), dataset)
    export(dataset, target)  # and once more: it is complete
    assert written() == after


def test_a_target_that_holds_something_else_is_refused(dataset, writer, url, tmp_path):
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match=r"foreign is not empty: choose another target"):
        export(dataset, tmp_path / "foreign")
    assert [path.name for path in (tmp_path / "foreign").iterdir()] == ["thesis.tex"]
    export(dataset, tmp_path / "plain")
    publish(writer, 5)
    with pytest.raises(InputError, match=r"plain is not empty"):
        export(simgen.open_dataset(url, "v2"), tmp_path / "plain")
    shutil.copytree(tmp_path / "plain/cases", tmp_path / "unfinished/cases")
    with pytest.raises(InputError, match=r"unfinished is not empty"):
        export(simgen.open_dataset(url, "v2"), tmp_path / "unfinished")
    with pytest.raises(InputError, match=r"gs://bucket/x is of no known kind"):
        export(dataset, "gs://bucket/x")
    with pytest.raises(InputError, match="is of no known kind"):
        export(dataset, "s3://")


def test_damage_is_not_exported(dataset, url, tmp_path):
    for chunk in objects(url, "chunks"):
        flip(chunk)
    with pytest.raises(StoreError, match=r"case [0-9a-f]{12}.* is damaged"):
        export(simgen.open_dataset(url), tmp_path / "plain")
    assert dict(zarr.open_group(str(tmp_path / "plain"), mode="r").attrs) == {}


def test_a_transient_case_is_a_collection_of_its_times(dataset, tmp_path):
    case = dataset[make_result(1).id]
    written = export_vtu(dataset, tmp_path, [case.id], every=2)
    assert [path.name for path in written] == [f"{case.id}.pvd", f"{case.id}_boundary.pvd"]
    entries = ElementTree.parse(written[0]).getroot().findall("Collection/DataSet")
    assert [float(entry.get("timestep")) for entry in entries] == [1, 3, 5]
    cloud = make_cloud(1)
    last = meshio.read(tmp_path / entries[-1].get("file"))
    assert np.array_equal(last.points, cloud.points)
    assert np.array_equal(last.point_data["velocity"][:, :2], cloud.fields["velocity"][4])
    assert np.array_equal(last.point_data["distance_wall"], cloud.distance[:, 2])
    faces = meshio.read(tmp_path / case.id / f"{case.id}_boundary_00004.vtu")
    assert np.array_equal(faces.point_data["patch"], cloud.boundary.patch)
    assert np.array_equal(faces.point_data["velocity"][:, :2], cloud.boundary.fields["velocity"][4])


def test_what_cannot_be_exported_is_named(dataset, tmp_path):
    with pytest.raises(InputError, match="was rejected and has no fields: Courant"):
        export_vtu(dataset, tmp_path, [make_result(3).id])
    with pytest.raises(InputError, match="nothing"):
        export_vtu(dataset, tmp_path, ["nothing"])
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        export_vtu(dataset, tmp_path / "file" / "folder")


def meshed_cloud(seed: int):
    """A cloud whose cells are tetrahedra and hexahedra by turns, and whose faces are triangles."""
    cloud, entries = make_cloud(seed), []
    for cell in range(cloud.num_points):
        size = 4 if cell % 2 else 8
        entries += [10 if size == 4 else 12, size, *range(8 * cell, 8 * cell + size)]
    for face in range(len(cloud.boundary.points)):
        entries += [5, 3, *range(face, face + 3)]
    corners = np.random.default_rng(seed).normal(size=(8 * cloud.num_points, 3)).astype("f4")
    return replace(cloud, mesh=CellMesh(corners, np.array(entries, "i4")))


def test_a_case_with_a_mesh_is_exported_as_its_cells_and_faces(writer, url, tmp_path):
    cloud = meshed_cloud(1)
    record(writer, make_result(1), cloud)
    dataset = publish(writer, 0)
    assert verify(dataset).findings == []
    case = dataset[make_result(1).id]
    assert dataset[make_result(0).id].mesh is None
    np.testing.assert_array_equal(case.mesh.entries, cloud.mesh.entries)
    export_vtu(dataset, tmp_path, [case.id])
    last = meshio.read(tmp_path / case.id / f"{case.id}_00005.vtu")
    velocity, found = cloud.fields["velocity"][5], last.cell_data_dict["velocity"]
    np.testing.assert_array_equal(found["hexahedron"][:, :2], velocity[::2])
    np.testing.assert_array_equal(found["tetra"][:, :2], velocity[1::2])
    np.testing.assert_array_equal(last.cells_dict["tetra"][0], range(8, 12))
    np.testing.assert_array_equal(last.points, cloud.mesh.points)
    faces = meshio.read(tmp_path / case.id / f"{case.id}_boundary_00005.vtu")
    np.testing.assert_array_equal(faces.cell_data["patch"][0], cloud.boundary.patch)
    boundary = read_boundary(tmp_path / "b.vtu", faces, cloud.patch_kinds)
    assert len(boundary.patch) == len(cloud.boundary.points)
    case.write(tmp_path / "case.vtu")
    assert set(meshio.read(tmp_path / "case.vtu").cells_dict) == {"hexahedron", "tetra"}
