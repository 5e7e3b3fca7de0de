"""A folder of VTK's files: what comes in, and what is printed."""

from __future__ import annotations

from pathlib import Path

import meshio
import numpy as np
import pytest

import simgen
from simgen.errors import InputError
from simgen.imports.folder import FolderOptions, import_plan, plan_folder, read_case_table
from simgen.imports.vtk import VtkFolder, VtkOptions
from simgen.imports.vtk_reader import MeshReader
from simgen.publish.export import export_vtu
from simgen.store.verify import verify

POINTS = np.array([[x, y, 0.5] for x in range(4) for y in range(3)], dtype=float)
QUADS = [("quad", np.array([[0, 3, 4, 1], [1, 4, 5, 2], [3, 6, 7, 4], [4, 7, 8, 5]]))]
OPTIONS = VtkOptions({"v": "velocity", "p": "p"}, units={"velocity": "m/s"})


def write(file: Path, factor: float = 1.0, *, on: str = "points", **change) -> None:
    places = POINTS if on == "points" else POINTS[QUADS[0][1]].mean(axis=1)
    arrays = {"v": factor * places * [1, 1, 0], "p": factor * places[:, 0], **change}
    points = arrays.pop("points", POINTS)
    arrays = {name: values for name, values in arrays.items() if values is not None}
    data = (
        {"point_data": arrays}
        if on == "points"
        else {"cell_data": {name: [values] for name, values in arrays.items()}}
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    meshio.Mesh(points, QUADS, **data).write(file)


def write_series(file: Path, factor: float, steps: int = 3) -> None:
    lines = []
    for step in range(steps):
        write(file.with_name(f"{file.stem}_{step}.vtu"), factor + step, on="cells")
        lines.append(f'<DataSet timestep="{0.1 * step}" file="{file.stem}_{step}.vtu"/>')
    file.write_text(f"<VTKFile><Collection>{''.join(lines)}</Collection></VTKFile>")


def imported(tmp_path: Path, options: VtkOptions = OPTIONS, **more):
    asked = FolderOptions(tmp_path / "files", str(tmp_path / "store/vtk"), "vtk", **more)
    with MeshReader() as meshes:
        reader = VtkFolder(options, meshes)
        plan = plan_folder(asked, reader)
        skipped = {each.case: each.reason for each in plan.skipped}
        done = import_plan(plan, reader, on_skipped=skipped.__setitem__)
    return simgen.open_dataset(done.url), skipped


def cases_in(folder: Path) -> list[str]:
    return sorted(VtkFolder(OPTIONS, MeshReader()).find(folder))


def test_files_are_steady_cases_and_each_hostile_one_is_one_line(tmp_path) -> None:
    folder = tmp_path / "files"
    for number in (1, 2, 3):
        write(folder / f"sub/run{number}.{'vtk' if number == 3 else 'vtu'}", number)
    write(folder / "nan.vtu", 4, p=np.full(12, np.nan))
    write(folder / "lacks.vtu", 5, p=None)
    write(folder / "twin.vtu", 1)
    (folder / "cut.vtu").write_bytes((folder / "sub/run1.vtu").read_bytes()[:900])
    (folder / "empty.vtu").touch()
    write_series(folder / "series.pvd", 6)
    table = tmp_path / "designs.csv"
    names = ["sub/run1", "sub/run2", "sub/run3", "nan", "lacks", "twin", "cut", "empty", "series"]
    table.write_text("case,speed (m/s)\n" + "".join(f"{n},{i}\n" for i, n in enumerate(names)))
    dataset, skipped = imported(tmp_path, table=read_case_table(table))
    expected = {
        "nan": "p in nan.vtu holds 12 values that are not finite",
        "lacks": "it has no array p; it has v",
        "cut": "cut.vtu cannot be read as a mesh",
        "empty": "empty.vtu cannot be read as a mesh",
        "series": "it is transient, the dataset is steady",
    }
    assert {name: skipped.get(name, "")[: len(says)] for name, says in expected.items()} == expected
    assert skipped["twin"] == "all its values are those of sub-run1: one is a copy"
    assert len(skipped) == 6 and not any("\n" in why for why in skipped.values())
    assert verify(dataset).findings == []
    assert dataset.schema.dimension == 2
    case = dataset["sub-run2"]
    np.testing.assert_allclose(case["velocity"], 2 * POINTS[:, :2])
    assert case.parameters == {"speed": 1.0}


def test_symmetric_tensors_have_their_components_by_name_both_ways(tmp_path) -> None:
    """VTK lists xx, yy, zz, xy, yz, xz."""
    names = ("xx", "yy", "zz", "xy", "yz", "xz")
    tensor = np.tile(np.arange(6.0), (len(POINTS), 1))
    write(tmp_path / "files/run.vtu", sigma=tensor)
    dataset, _ = imported(tmp_path, VtkOptions({"sigma": "stress"}))
    (field,) = dataset.schema.fields
    stored = dict(zip(field.components, dataset[0]["stress"][0].tolist(), strict=True))
    assert stored == {name: float(at) for at, name in enumerate(names)}
    (exported,) = export_vtu(dataset, tmp_path / "exported")
    np.testing.assert_array_equal(meshio.read(exported).point_data["stress"], tensor)


def test_a_mesh_that_changes_is_reported(tmp_path) -> None:
    for number in (1, 5):
        write_series(tmp_path / f"files/run{number}.pvd", number)
    write(tmp_path / "files/run1_1.vtu", 3, on="cells", points=POINTS + 1)
    _, skipped = imported(tmp_path)
    assert list(skipped) == ["run1"] and "its mesh changes: run1_1.vtu" in skipped["run1"]


def test_a_unit_of_a_field_that_is_not_imported_is_one_line(tmp_path) -> None:
    """The array's name in place of the field's, or a slip of the pen."""
    write(tmp_path / "files/run.vtu")
    options = VtkOptions({"v": "velocity", "p": "p"}, units={"p": "Pa", "v": "m/s"})
    with pytest.raises(InputError, match=r"for v, which is not imported; choose of velocity, p$"):
        imported(tmp_path, options)
    assert not (tmp_path / "store").exists()
