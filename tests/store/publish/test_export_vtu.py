"""Files for ParaView: every snapshot with its time, all fields, the boundary beside the fluid."""

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import meshio
import numpy as np
import pytest

import simgen
from flows.cli.prediction_files import read_boundary
from simgen.cell_mesh import CellMesh
from simgen.errors import InputError
from simgen.publish.export import export_vtu
from simgen.store.verify import verify
from tests.store.conftest import add, make_cloud, make_result, record


@pytest.fixture
def dataset(writer, url):
    add(writer, 0, 1)
    record(writer, make_result(2, "rejected", "mass imbalance"))
    writer.publish("two cases")
    return simgen.open_dataset(url)


def test_a_transient_case_is_a_collection_of_its_times(dataset, tmp_path):
    case = dataset[make_result(1).id]
    done = []
    written = export_vtu(
        dataset, tmp_path, [case.id], every=2, on_progress=lambda *step: done.append(step)
    )
    assert [path.name for path in written] == [f"{case.id}.pvd", f"{case.id}_boundary.pvd"]
    assert done == [(1, 1)]
    entries = ElementTree.parse(written[0]).getroot().findall("Collection/DataSet")
    assert [float(entry.get("timestep")) for entry in entries] == [1, 3, 5]
    cloud = make_cloud(1)
    last = meshio.read(tmp_path / entries[-1].get("file"))
    assert np.array_equal(last.points, cloud.points)
    assert np.array_equal(last.point_data["velocity"][:, :2], cloud.fields["velocity"][4])
    assert np.array_equal(
        last.point_data["kinematic_pressure"], cloud.fields["kinematic_pressure"][4, :, 0]
    )
    assert np.array_equal(last.point_data["distance_wall"], cloud.distance[:, 2])
    faces = meshio.read(tmp_path / case.id / f"{case.id}_boundary_00004.vtu")
    assert np.array_equal(faces.point_data["patch"], cloud.boundary.patch)
    assert np.array_equal(faces.point_data["velocity"][:, :2], cloud.boundary.fields["velocity"][4])
    assert not list(tmp_path.rglob("*.part"))


def test_what_cannot_be_exported_is_named(dataset, tmp_path):
    with pytest.raises(InputError, match="was rejected and has no fields: mass imbalance"):
        export_vtu(dataset, tmp_path, [make_result(2).id])
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
    cloud, fork = meshed_cloud(1), writer.fork()
    fork.write(make_result(1), cloud)
    writer.commit([fork])
    add(writer, 0)
    writer.publish("with and without a mesh")
    dataset = simgen.open_dataset(url)
    assert verify(dataset).findings == []
    case = dataset[make_result(1).id]
    assert dataset[make_result(0).id].mesh is None
    np.testing.assert_array_equal(case.mesh.entries, cloud.mesh.entries)
    export_vtu(dataset, tmp_path, [case.id])
    last = meshio.read(tmp_path / case.id / f"{case.id}_00005.vtu")
    blocks = zip(last.cells, last.cell_data["velocity"], strict=True)
    by_type = {block.type: data for block, data in blocks}
    velocity = cloud.fields["velocity"][5]
    np.testing.assert_array_equal(by_type["hexahedron"][:, :2], velocity[::2])
    np.testing.assert_array_equal(by_type["tetra"][:, :2], velocity[1::2])
    np.testing.assert_array_equal(last.cells_dict["tetra"][0], range(8, 12))
    np.testing.assert_array_equal(last.points, cloud.mesh.points)
    faces = meshio.read(tmp_path / case.id / f"{case.id}_boundary_00005.vtu")
    np.testing.assert_array_equal(faces.cell_data["patch"][0], cloud.boundary.patch)
    boundary = read_boundary(tmp_path / "b.vtu", faces, cloud.patch_kinds)
    assert len(boundary.patch) == len(cloud.boundary.points)
    case.write(tmp_path / "case.vtu")
    assert set(meshio.read(tmp_path / "case.vtu").cells_dict) == {"hexahedron", "tetra"}


def test_a_case_that_would_be_overwritten_by_anothers_boundary_is_named(writer, url, tmp_path):
    for name in ("duct", "duct_boundary"):
        record(writer, replace(make_result(0), name=name), make_cloud(0))
    imported = simgen.open_dataset(url, writer.publish())
    with pytest.raises(InputError, match="cases duct and duct_boundary would both write"):
        export_vtu(imported, tmp_path)
    with pytest.raises(InputError, match="is no path on this machine"):
        export_vtu(imported, "~nosuchuser/x", ["duct"])
