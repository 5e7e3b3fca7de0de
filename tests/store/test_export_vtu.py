"""Files for ParaView: every snapshot with its time, all fields, the boundary beside the fluid."""

import xml.etree.ElementTree as ElementTree

import meshio
import numpy as np
import pytest

import simgen
from simgen.errors import InputError
from simgen.store.export_vtu import export_vtu
from tests.store.conftest import add, make_cloud, make_result


@pytest.fixture
def dataset(writer, url):
    add(writer, 0, 1)
    fork = writer.fork()
    fork.write(make_result(2, "rejected", "mass imbalance"), None)
    writer.commit([fork])
    writer.publish("two cases")
    return simgen.open_dataset(url)


def test_a_transient_case_is_a_collection_of_its_times(dataset, tmp_path):
    case = dataset[make_result(1).id]
    done = []
    written = export_vtu(dataset, tmp_path, [case.id], every=2, on_progress=lambda *step: done.append(step))
    assert [path.name for path in written] == [f"{case.id}.pvd", f"{case.id}_boundary.pvd"]
    assert done == [(1, 1)]
    entries = ElementTree.parse(written[0]).getroot().findall("Collection/DataSet")
    assert [float(entry.get("timestep")) for entry in entries] == [1, 3, 5]
    cloud = make_cloud(1)
    last = meshio.read(tmp_path / entries[-1].get("file"))
    assert np.array_equal(last.points, cloud.points)
    assert np.array_equal(last.point_data["velocity"][:, :2], cloud.fields["velocity"][4])
    assert np.array_equal(last.point_data["kinematic_pressure"], cloud.fields["kinematic_pressure"][4, :, 0])
    assert np.array_equal(last.point_data["distance_wall"], cloud.distance[:, 2])
    faces = meshio.read(tmp_path / case.id / f"{case.id}_boundary_00004.vtu")
    assert np.array_equal(faces.point_data["patch"], cloud.boundary.patch)
    assert np.array_equal(faces.point_data["velocity"][:, :2], cloud.boundary.fields["velocity"][4])
    assert not list(tmp_path.rglob("*.part"))


def test_all_accepted_cases_by_default(dataset, tmp_path):
    assert len(export_vtu(dataset, tmp_path)) == 4


def test_what_cannot_be_exported_is_named(dataset, tmp_path):
    with pytest.raises(InputError, match="was rejected and has no fields: mass imbalance"):
        export_vtu(dataset, tmp_path, [make_result(2).id])
    with pytest.raises(InputError, match="nothing"):
        export_vtu(dataset, tmp_path, ["nothing"])
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        export_vtu(dataset, tmp_path / "file" / "folder")
