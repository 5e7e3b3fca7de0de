"""Files of VTK as many programs write them: values are those that VTK itself computes of them."""

import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import meshio
import numpy as np
import pytest
from vtkmodules.util.numpy_support import numpy_to_vtk
from vtkmodules.vtkCommonCore import vtkIdList, vtkPoints
from vtkmodules.vtkCommonDataModel import (
    vtkImageData,
    vtkPolyData,
    vtkRectilinearGrid,
    vtkStructuredGrid,
    vtkUnstructuredGrid,
)
from vtkmodules.vtkFiltersCore import vtkCellCenters
from vtkmodules.vtkIOLegacy import vtkDataSetWriter
from vtkmodules.vtkIOXML import vtkXMLDataSetWriter, vtkXMLPolyDataWriter

import simgen
from simgen.errors import InputError
from simgen.imports.folder import FolderOptions, import_plan, plan_folder, read_case_table
from simgen.imports.openfoam import FoamFolder
from simgen.imports.vtk import MeshReader, VtkFolder
from simgen.publish.export import export_vtu
from simgen.store.verify import verify
from tests.imports.foam_cases import box, import_openfoam, openfoam, plan_openfoam, write_case

PIXEL, VOXEL, POLYHEDRON = 8, 11, 42


def import_folder(tmp_path: Path, fields: str | dict[str, str] = "v p", units=None, **more):
    """Import tmp_path/files; the dataset, what was skipped and the notes."""
    names = {name: name for name in fields.split()} if isinstance(fields, str) else fields
    asked = FolderOptions(tmp_path / "files", str(tmp_path / "store/vtk"), "vtk", **more)
    with MeshReader() as meshes:
        reader = VtkFolder(meshes, names, units=units or {})
        plan = plan_folder(asked, reader)
        skipped = {each.case: each.reason for each in plan.skipped}
        done = import_plan(plan, reader, on_skipped=skipped.__setitem__)
    notes = (*plan.notes, *(each.reason for each in plan.left_out))
    return simgen.open_dataset(done.url), skipped, notes


def with_values(data, factor: float = 1.0, on: str = "cells"):
    """Add a vector and a scalar that depend on the place, which VTK computes."""
    found, of = data, data.point_data
    if on == "cells":
        middles = vtkCellCenters(input_data=data)
        middles.Update()
        found, of = middles.GetOutput(), data.cell_data
    places = np.array([found.GetPoint(at) for at in range(found.GetNumberOfPoints())])
    of["v"], of["p"] = factor * places, factor * places[:, 0] + 1
    return data


def check_values(case, factor: float = 1.0) -> None:
    """Check the values of `with_values` by the stored places."""
    points = np.asarray(case.points)
    vector = np.asarray(case["v"])
    np.testing.assert_allclose(vector, factor * points[:, : vector.shape[1]], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(case["p"][:, 0], factor * points[:, 0] + 1, rtol=1e-5)


def write(
    data, file: Path, compressor: str = "ZLib", mode: str = "Appended", order: str = "Little"
):
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".vtk":
        writer = vtkDataSetWriter()
        writer.SetFileTypeToBinary() if mode == "Binary" else writer.SetFileTypeToASCII()
    else:
        writer = vtkXMLPolyDataWriter() if file.suffix == ".vtp" else vtkXMLDataSetWriter()
        getattr(writer, f"SetCompressorTypeTo{compressor}")()
        getattr(writer, f"SetDataModeTo{mode}")()
        getattr(writer, f"SetByteOrderTo{order}Endian")()
    writer.SetInputData(data)
    writer.SetFileName(str(file))
    assert writer.Write() == 1
    return file


def image() -> vtkImageData:
    return vtkImageData(dimensions=(3, 4, 5), spacing=(1, 0.5, 0.25), origin=(1, 2, 3))


def vtk_points(places: np.ndarray) -> vtkPoints:
    return vtkPoints(data=numpy_to_vtk(np.ascontiguousarray(places, float), deep=True))


def structured() -> vtkStructuredGrid:
    axes = np.meshgrid(np.arange(2.0), np.arange(3.0), np.arange(4.0), indexing="ij")
    x, y, z = (axis.ravel(order="F") for axis in axes)
    points = vtk_points(np.stack([x + 0.2 * y, y, z + 0.1 * x], axis=1))
    return vtkStructuredGrid(dimensions=(2, 3, 4), points=points)


def rectilinear() -> vtkRectilinearGrid:
    axes = {"x": [0.0, 1, 4], "y": [0.0, 2, 3], "z": [0.0, 5]}
    along = {f"{axis}_coordinates": np.array(at) for axis, at in axes.items()}
    return vtkRectilinearGrid(dimensions=(3, 3, 2), **along)


def unstructured(points: np.ndarray, cells: list[tuple[int, list[int]]]) -> vtkUnstructuredGrid:
    data = vtkUnstructuredGrid(points=vtk_points(points))
    for kind, corners in cells:
        data.InsertNextCell(kind, len(corners), corners)
    return data


CUBE = np.array([[x, y, z] for z in (0, 1) for y in (0, 1) for x in (0, 1)], float)
TWO_CUBES = np.concatenate([CUBE, CUBE[[1, 3, 5, 7]] + [1, 0, 0]])


def voxels(shift: float = 0.0) -> vtkUnstructuredGrid:
    return unstructured(
        TWO_CUBES + shift, [(VOXEL, list(range(8))), (VOXEL, [1, 8, 3, 9, 5, 10, 7, 11])]
    )


def polyhedra() -> vtkUnstructuredGrid:
    """A cube and, on it, a pyramid, both by their faces."""
    points = np.concatenate([CUBE, [[0.5, 0.5, 2]]])
    data = unstructured(points, [])
    cube = [[0, 1, 3, 2], [4, 5, 7, 6], [0, 1, 5, 4], [2, 3, 7, 6], [0, 2, 6, 4], [1, 3, 7, 5]]
    roof = [[4, 5, 7, 6], [4, 5, 8], [5, 7, 8], [7, 6, 8], [6, 4, 8]]
    for faces in (cube, roof):
        stream = [number for face in faces for number in (len(face), *face)]
        ids = vtkIdList()
        for number in (len(faces), *stream):
            ids.InsertNextId(number)
        data.InsertNextCell(POLYHEDRON, ids)
    return data


@pytest.mark.parametrize("on", ["cells", "points"])
def test_every_kind_of_grid_has_its_values(on, tmp_path) -> None:
    kinds = {
        "image": (image, ".vti"),
        "structured": (structured, ".vts"),
        "rectilinear": (rectilinear, ".vtr"),
        "voxels": (voxels, ".vtu"),
        "polyhedra": (polyhedra, ".vtu"),
    }
    for at, (name, (data, suffix)) in enumerate(kinds.items()):
        write(with_values(data(), 1 + at, on), tmp_path / f"files/{name}{suffix}")
        write(with_values(data(), 11 + at, on), tmp_path / f"files/{name}-old.vtk", mode="Binary")
    dataset, skipped, _ = import_folder(tmp_path)
    assert (len(dataset), skipped) == (10, {})
    for at, (name, (data, _)) in enumerate(kinds.items()):
        number = data().GetNumberOfCells() if on == "cells" else data().GetNumberOfPoints()
        for case, factor in ((dataset[name], 1 + at), (dataset[f"{name}-old"], 11 + at)):
            assert case.points.shape == (number, 3)
            if name != "polyhedra":  # the mean of corners is not VTK's middle
                check_values(case, factor)
    if on == "cells":
        middles = [[0.5, 0.5, 0.5], [0.5, 0.5, 1.2]]
        np.testing.assert_allclose(dataset["polyhedra"].points, middles)


def test_every_form_of_numbers_has_its_values(tmp_path) -> None:
    packed, modes = ("LZ4", "LZMA", "ZLib", "None"), ("Appended", "Binary", "Ascii")
    forms = list(itertools.product(packed, modes, ("Little", "Big")))
    for at, form in enumerate(forms):
        write(with_values(voxels(), 1 + at), tmp_path / f"files/form{at}.vtu", *form)
    dataset, skipped, _ = import_folder(tmp_path)
    assert (len(dataset), skipped) == (24, {})
    for at in range(24):
        check_values(dataset[f"form{at}"], 1 + at)


def test_all_arrays_of_a_legacy_file_are_there(tmp_path) -> None:
    """VTK's reader takes the first of each kind unless it is asked for all."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files/a.vtk").write_text(
        "# vtk DataFile Version 2.0\nof a lattice\nASCII\nDATASET STRUCTURED_POINTS\n"
        "DIMENSIONS 2 2 2\nORIGIN 0 0 0\nSPACING 1 1 1\nPOINT_DATA 8\n"
        "SCALARS q float 1\nLOOKUP_TABLE default\n8 8 8 8 8 8 8 8\n"
        "SCALARS p float 1\nLOOKUP_TABLE default\n1 2 1 2 1 2 1 2\n"
        "VECTORS w float\n" + "9 9 9 " * 8 + "\n"
        "VECTORS v float\n0 0 0 1 0 0 0 1 0 1 1 0 0 0 1 1 0 1 0 1 1 1 1 1\n"
        "FIELD more 1\nT 1 8 double\n1 2 3 4 5 6 7 8\n"
    )
    dataset, _, _ = import_folder(tmp_path, "v p T")
    check_values(dataset[0])
    np.testing.assert_array_equal(dataset[0]["T"][:, 0], np.arange(1, 9))


def test_cells_that_are_hidden_or_repeated_are_left_out(tmp_path) -> None:
    """vtkGhostType: 1 repeated, 4 on the edge of a part, 32 hidden."""
    data = with_values(image())
    ghosts = np.zeros(data.GetNumberOfCells(), "u1")
    ghosts[[0, 3, 7]] = 32, 1, 4
    data.cell_data["vtkGhostType"] = ghosts
    write(data, tmp_path / "files/a.vti")
    dataset, _, _ = import_folder(tmp_path, quantities=["top=max(v.x)"])
    assert len(dataset[0].points) == data.GetNumberOfCells() - 2
    check_values(dataset[0])
    assert dataset.design["top"].item() == dataset[0]["v"][:, 0].max()
    for text, why in (("p=average(p)", "no volumes"), ("d=monitor(f, 1)", "cases of OpenFOAM")):
        with pytest.raises(InputError, match=why):
            import_folder(tmp_path, quantities=[text])


def test_a_plane_through_a_flow_keeps_what_goes_across(tmp_path) -> None:
    """A cut of three dimensions: the third component was dropped."""
    data = with_values(unstructured(CUBE[:4], [(PIXEL, [0, 1, 2, 3])]), on="points")
    data.point_data["v"][:, 2] = 5
    write(data, tmp_path / "files/a.vtu")
    dataset, _, _ = import_folder(tmp_path)
    assert dataset.schema.dimension == 2
    np.testing.assert_array_equal(dataset[0]["v"][:, 2], [5, 5, 5, 5])


def test_pieces_of_an_image_that_overlap(tmp_path) -> None:
    """A .pvti with a layer of ghost cells, which are not marked."""
    sources = []
    for piece, extent in enumerate(([0, 2, 0, 3, 0, 3], [0, 2, 0, 3, 2, 4])):
        data = image()
        data.SetExtent(extent)
        write(with_values(data), tmp_path / f"files/a/a_{piece}.vti")
        numbers = " ".join(map(str, extent))
        sources.append(f'<Piece Extent="{numbers}" Source="a/a_{piece}.vti"/>')
    pieces = f'<PImageData WholeExtent="0 2 0 3 0 4" GhostLevel="1">{"".join(sources)}</PImageData>'
    (tmp_path / "files/a.pvti").write_text(f'<VTKFile type="PImageData">{pieces}</VTKFile>')
    dataset, skipped, _ = import_folder(tmp_path)
    assert ([case.id for case in dataset], skipped) == (["a"], {})
    assert len(dataset[0].points) == image().GetNumberOfCells()
    check_values(dataset[0])


# Lists


def write_run(folder: Path, steps: int = 3, factor: float = 1.0) -> list[str]:
    """Snapshots o_0.vtu, …; step n has (1 + n) times the values."""
    return [
        write(with_values(voxels(), factor * (1 + step)), folder / f"o_{step}.vtu").name
        for step in range(steps)
    ]


def write_list(file: Path, lines: list[str]) -> None:
    file.write_text(f"<VTKFile><Collection>{''.join(lines)}</Collection></VTKFile>")


@pytest.mark.parametrize(
    ("lines", "times"),
    [
        (['timestep="{n}" file="o_{n}.vtu"'], [0, 1, 2]),
        (['timestep="0,{n}5" file="o_{n}.vtu"'], [0.05, 0.15, 0.25]),
        ([r'timestep="1e-{n}" file=".\o_{m}.vtu"'], [0.01, 0.1, 1]),
        (['timestep="{n}" file="o_{n}.vtu"'] * 2, [0, 1, 2]),
        (None, [0, 0.1, 0.2]),
    ],
    ids=["plain", "comma", "backslash", "twice", "series"],
)
def test_lists_as_programs_write_them(lines, times, tmp_path) -> None:
    """One transient case: no snapshot is a case of its own."""
    folder = tmp_path / "files/run"
    files = [{"name": name, "time": 0.1 * n} for n, name in enumerate(write_run(folder))]
    if lines is None:
        (folder / "out.vtu.series").write_text(json.dumps({"files": files}))
    else:
        listed = [line.format(n=n, m=2 - n) for line in lines for n in range(3)]
        write_list(folder / "out.pvd", [f"<DataSet {each}/>" for each in listed])
    dataset, skipped, _ = import_folder(tmp_path)
    assert ([case.id for case in dataset], skipped) == (["run-out"], {})
    np.testing.assert_allclose(dataset[0].time, times)
    for step in range(len(times)):
        expected = (1 + step) * dataset[0].points[:, 0] + 1
        np.testing.assert_allclose(dataset[0]["p"][step][:, 0], expected)


def surface() -> vtkPolyData:
    """The first face of `voxels`."""
    data = vtkPolyData(points=voxels().GetPoints())
    data.AllocateEstimate(1, 4)
    data.InsertNextCell(9, 4, [0, 1, 3, 2])
    return data


@pytest.mark.parametrize("on", ["cells", "points"])
def test_blocks_are_one_mesh_without_its_boundary(on, tmp_path) -> None:
    folder = tmp_path / "files"
    write(with_values(voxels(), on=on), folder / "a/internal.vtu")
    write(with_values(surface(), 5, on=on), folder / "a/walls.vtp")
    blocks = (
        '<DataSet file="a/internal.vtu"/><Block><DataSet file="a/walls.vtp"/><DataSet/></Block>'
    )
    write_list(folder / "a.vtm", [blocks])
    write_list(folder / "a/boundary.vtm", ['<DataSet file="walls.vtp"/>'])
    write(with_values(surface(), 6, on=on), folder / "lone.vtp")
    write(with_values(surface(), 7, on=on), folder / "lone.vtk")
    dataset, skipped, notes = import_folder(tmp_path)
    assert ([case.id for case in dataset], skipped) == (["a"], {})
    assert [note.endswith(", as 2 files in all") for note in notes] == [True]
    assert len(dataset[0].points) == (2 if on == "cells" else 12)
    check_values(dataset[0])


def test_parts_of_a_time_are_one_mesh(tmp_path) -> None:
    folder = tmp_path / "files/run"
    lines = []
    for step in range(2):
        for part in range(2):
            name = f"b{part}_{step}.vtu"
            write(with_values(voxels(3.0 * part), 1 + step), folder / name)
            lines.append(f'<DataSet timestep="{step}" group="" part="{part}" file="{name}"/>')
    write_list(folder / "out.pvd", lines)
    dataset, skipped, _ = import_folder(tmp_path)
    assert (len(dataset), skipped) == (1, {})
    assert dataset[0].points.shape == (4, 3) and list(dataset[0].time) == [0, 1]
    for step in range(2):
        values, places = dataset[0]["v"][step], dataset[0].points
        np.testing.assert_allclose(values, (1 + step) * places, rtol=1e-6)


UNUSABLE = {
    "missing": ['timestep="{n}" file="o.{n}vtu"'],
    "no times": ['file="o_{n}.vtu"'],
    "two files of a time": ['timestep="1" file="o_{n}.vtu"'],
    "some times": ['timestep="{n}" file="o_{n}.vtu"', 'file="o_{n}.vtu"'],
    "itself": ['timestep="{n}" file="out.pvd"'],
    "another list": ['timestep="{n}" file="loop.vtm"'],
    "no line": [],
}

SERIES = ("", "[1]", '{"files": [{"time": 0}]}')


def test_files_beside_a_list_that_cannot_be_used_are_no_cases(tmp_path) -> None:
    write(with_values(voxels(), 99), tmp_path / "files/other/steady.vtu")
    folders = []
    for at, (name, lines) in enumerate(UNUSABLE.items()):
        folder = tmp_path / "files" / name
        write_run(folder, factor=1 + at)
        write(with_values(voxels(), 50 + at), folder / "data/more.vtu")
        write_list(folder / "loop.vtm", ['<DataSet file="loop.vtm"/>'] * (name == "another list"))
        listed = [line.format(n=n) for line in lines for n in range(3)]
        write_list(folder / "out.pvd", [f"<DataSet {each}/>" for each in listed])
        folders.append(name)
    for at, text in enumerate(SERIES):
        folder = tmp_path / f"files/series{at}"
        write_run(folder, factor=20 + at)
        (folder / "out.vtu.series").write_text(text)
        folders.append(folder.name)
    adaptive = tmp_path / "files/adaptive"
    write_run(adaptive, factor=90)
    write_list(adaptive / "out.vthb", ['<Block level="0"><DataSet file="o_0.vtu"/></Block>'])
    folders.append("adaptive")
    # As foamToVTK -latestTime writes it of each steady case.
    one_time = tmp_path / "files/steady"
    write_run(one_time, 1, factor=95)
    write_list(one_time / "out.pvd", ['<DataSet timestep="500" file="o_0.vtu"/>'])
    dataset, skipped, notes = import_folder(tmp_path)
    assert [case.id for case in dataset] == ["other-steady", "steady-out"]
    assert sorted(skipped) == sorted(f"{folder}/out" for folder in folders)
    assert sum("files beside it are no cases" in note for note in notes) == len(folders)


def test_files_that_may_be_snapshots_are_named(tmp_path) -> None:
    """One mesh, and names that differ in a number; other meshes and names are as they were."""
    for step in (0, 5, 10):
        write(with_values(voxels(), 1 + step), tmp_path / f"files/run/t{step}.vtu")
        write(with_values(voxels(step), 2 + step), tmp_path / f"files/moved/t{step}.vtu")
        write(with_values(image(), 3 + step), tmp_path / f"files/{step}.5/internal.vti")
    _, skipped, notes = import_folder(tmp_path)
    assert skipped == {}
    assert sorted(note.split(" have ")[0] for note in notes if " have " in note) == [
        "0.5/internal, 10.5/internal, … (3 cases)",
        "run/t0, run/t10, … (3 cases)",
    ]


@pytest.mark.openfoam
@pytest.mark.parametrize("merged", [False, True], ids=["cubes", "polyhedra"])
@pytest.mark.parametrize("options", [(), ("-legacy",)])
def test_folders_of_foam_to_vtk(options, merged, tmp_path) -> None:
    """A case read from its own files and from foamToVTK's: the same values at the same places."""
    source = write_case(tmp_path / "foam/run", mesh=box(merged), fields=("U", "p"))
    shutil.rmtree(source / "0")
    openfoam(source, "foamToVTK", *options)
    (tmp_path / "files").mkdir()
    (source / "VTK").rename(tmp_path / "files/run")
    dataset, skipped, notes = import_folder(tmp_path, "U p")
    assert (len(dataset), skipped) == (1, {})
    assert len(notes) == ("-legacy" in options)  # surfaces that no list names
    case = dataset[0]
    reader = FoamFolder(fields={"U": "U", "p": "p"})
    asked = FolderOptions(tmp_path / "foam", str(tmp_path / "store/foam"), "foam")
    own = simgen.open_dataset(import_openfoam(plan_openfoam(asked, reader), reader).url)[0]
    np.testing.assert_allclose(case.time[-2:], own.time, rtol=1e-6)
    cubes = slice(0, -1) if merged else slice(None)  # the mean of corners is not the centroid
    np.testing.assert_allclose(case.points[cubes, :2], own.points[cubes, :2], rtol=1e-6)
    for step in (-2, -1):
        np.testing.assert_allclose(case["U"][step][:, :2], own["U"][step], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(case["p"][step], own["p"][step], rtol=1e-6, atol=1e-6)


# Hostile files


PLANE = np.array([[x, y, 0.5] for x in range(4) for y in range(3)], dtype=float)
QUADS = [("quad", np.array([[0, 3, 4, 1], [1, 4, 5, 2], [3, 6, 7, 4], [4, 7, 8, 5]]))]


def write_plane(file: Path, factor: float = 1.0, **change) -> None:
    arrays = {"v": factor * PLANE * [1, 1, 0], "p": factor * PLANE[:, 0], **change}
    arrays = {name: values for name, values in arrays.items() if values is not None}
    file.parent.mkdir(parents=True, exist_ok=True)
    meshio.Mesh(PLANE, QUADS, point_data=arrays).write(file)


def test_files_are_steady_cases_and_each_hostile_one_is_one_line(tmp_path) -> None:
    folder = tmp_path / "files"
    for number in (1, 2, 3):
        write_plane(folder / f"sub/run{number}.{'vtk' if number == 3 else 'vtu'}", number)
    write_plane(folder / "nan.vtu", 4, p=np.full(12, np.nan))
    write_plane(folder / "lacks.vtu", 5, p=None)
    write_plane(folder / "twin.vtu", 1)
    (folder / "cut.vtu").write_bytes((folder / "sub/run1.vtu").read_bytes()[:900])
    (folder / "empty.vtu").touch()
    write_run(folder / "series")
    steps = [f'<DataSet timestep="{n}" file="series/o_{n}.vtu"/>' for n in range(3)]
    write_list(folder / "series.pvd", steps)
    table = tmp_path / "designs.csv"
    cases = ["sub/run1", "sub/run2", "sub/run3", "nan", "lacks", "twin", "cut", "empty", "series"]
    table.write_text("case,speed (m/s)\n" + "".join(f"{n},{i}\n" for i, n in enumerate(cases)))
    names = {"v": "velocity", "p": "p"}
    with pytest.raises(InputError, match=r"for v, which is not imported; choose of velocity, p$"):
        import_folder(tmp_path, names, {"v": "m/s"})
    units = {"velocity": "m/s"}
    dataset, skipped, _ = import_folder(tmp_path, names, units, table=read_case_table(table))
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
    np.testing.assert_allclose(case["velocity"], 2 * PLANE[:, :2])
    assert case.parameters == {"speed": 1.0}


def test_symmetric_tensors_have_their_components_by_name_both_ways(tmp_path) -> None:
    """VTK lists xx, yy, zz, xy, yz, xz."""
    names = ("xx", "yy", "zz", "xy", "yz", "xz")
    tensor = np.tile(np.arange(6.0), (len(PLANE), 1))
    write_plane(tmp_path / "files/run.vtu", sigma=tensor)
    dataset, _, _ = import_folder(tmp_path, {"sigma": "stress"})
    (field,) = dataset.schema.fields
    stored = dict(zip(field.components, dataset[0]["stress"][0].tolist(), strict=True))
    assert stored == {name: float(at) for at, name in enumerate(names)}
    (exported,) = export_vtu(dataset, tmp_path / "exported")
    np.testing.assert_array_equal(meshio.read(exported).point_data["stress"], tensor)


def test_a_mesh_that_changes_is_reported(tmp_path) -> None:
    folder = tmp_path / "files"
    for number in (1, 5):
        lines = [
            f'<DataSet timestep="{n}" file="run{number}/{name}"/>'
            for n, name in enumerate(write_run(folder / f"run{number}", factor=number))
        ]
        write_list(folder / f"run{number}.pvd", lines)
    write(with_values(voxels(1.0)), folder / "run1/o_1.vtu")
    _, skipped, _ = import_folder(tmp_path)
    assert list(skipped) == ["run1"] and "its mesh changes: run1/o_1.vtu" in skipped["run1"]


def xml_of_points(number: int, points: str) -> bytes:
    return (
        '<VTKFile type="UnstructuredGrid" version="1.0" byte_order="LittleEndian"'
        ' header_type="UInt64" compressor="vtkZLibDataCompressor"><UnstructuredGrid>'
        f'<Piece NumberOfPoints="{number}" NumberOfCells="0"><Points>'
        f'<DataArray type="Float64" Name="Points" NumberOfComponents="3" {points}</Points>'
        '<PointData><DataArray type="Float64" Name="p" format="ascii">1</DataArray></PointData>'
        '<Cells><DataArray type="Int64" Name="connectivity" format="ascii"/>'
        '<DataArray type="Int64" Name="offsets" format="ascii"/>'
        '<DataArray type="UInt8" Name="types" format="ascii"/></Cells>'
        "</Piece></UnstructuredGrid></VTKFile>"
    ).encode()


ATTACKS = {
    "points": lambda file: file.with_suffix(".vtu").write_bytes(
        xml_of_points(99_999_999_999, 'format="ascii">0 0 0</DataArray>')
    ),
    "corner": lambda file: file.with_suffix(".vtk").write_text(
        "# vtk DataFile Version 2.0\nx\nASCII\nDATASET UNSTRUCTURED_GRID\nPOINTS 1 double\n"
        "0 0 0\nCELLS 1 2\n1 2000000000\nCELL_TYPES 1\n1\nCELL_DATA 1\nSCALARS p double\n"
        "LOOKUP_TABLE default\n1\n"
    ),
}
IMPORT = """
import resource, sys
from pathlib import Path
from simgen.errors import InputError
from simgen.imports.folder import FolderOptions, plan_folder
from simgen.imports.vtk import VtkFolder
from simgen.imports.vtk import MeshReader
meshes = MeshReader()
try:
    asked = FolderOptions(Path(sys.argv[1]), sys.argv[2], "vtk")
    plan_folder(asked, VtkFolder(meshes, {"p": "p"}))
except InputError as error:
    print(error)
meshes.__exit__()
# The process's own ru_maxrss begins with that of the process that started it.
own = Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]
children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(max(int(own), children) // 1024)
"""


def test_one_file_does_not_take_the_memory(tmp_path) -> None:
    """Each is skipped, and takes less than 700 MB."""
    folder = tmp_path / "files"
    for name, make in ATTACKS.items():
        (folder / name).mkdir(parents=True)
        make(folder / name / "a")
        assert next((folder / name).iterdir()).stat().st_size < 2e6
    command = [sys.executable, "-c", IMPORT, str(folder), str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    *why, megabytes = done.stdout.splitlines()
    assert len(why) == 1 and why[0].startswith(f"none of the {len(ATTACKS)} cases")
    assert int(megabytes) < 700


def test_a_whole_mesh_has_its_cells_and_arrays_in_the_files_order(tmp_path) -> None:
    """VTK's mesh is meshio's, for every kind of cell that predictions are written on."""
    corners = np.random.default_rng(0).normal(size=(40, 3))
    sizes = {"tetra": 4, "wedge": 6, "hexahedron": 8, "pyramid": 5, "tetra10": 10, "quad8": 8}
    with MeshReader() as reader:
        for suffix, number in ((".vtu", 6), (".xdmf", 4)):
            names = list(sizes)[:number]
            cells = [(name, np.arange(2 * sizes[name]).reshape(2, -1)) for name in names]
            cells.insert(3, ("tetra", np.array([[7, 3, 9, 11]])))
            values = [
                np.arange(3.0 * len(of)).reshape(-1, 3) + at for at, (_, of) in enumerate(cells)
            ]
            written = meshio.Mesh(corners, cells, {"p": corners[:, 0]}, {"v": values})
            written.write(tmp_path / f"mesh{suffix}")
            found = reader.read_mesh(tmp_path / f"mesh{suffix}")
            assert [block.type for block in found.cells] == [name for name, _ in cells]
            for block, (_, expected) in zip(found.cells, cells, strict=True):
                np.testing.assert_array_equal(block.data, expected)
            for of, expected in zip(found.cell_data["v"], values, strict=True):
                np.testing.assert_array_equal(of, expected)
            np.testing.assert_array_equal(found.point_data["p"], corners[:, 0])
        found = reader.read_mesh(write(with_values(image()), tmp_path / "image.vti"))
        assert {block.type for block in found.cells} == {"hexahedron"}
        centres = np.concatenate([found.points[block.data].mean(axis=1) for block in found.cells])
        np.testing.assert_allclose(np.concatenate(found.cell_data["v"]), centres)


@pytest.mark.parametrize("name", ["points", "cut", "polyhedra", "msh", "label"])
def test_a_hostile_mesh_to_predict_on_is_one_line(name, tmp_path) -> None:
    if name == "points":
        ATTACKS[name](tmp_path / "a")
    elif name == "cut":
        file = write(with_values(voxels()), tmp_path / "a.vtu")
        file.write_bytes(file.read_bytes()[:700])
    elif name == "polyhedra":
        write(polyhedra(), tmp_path / "a.vtu")
    elif name == "label":
        mesh = meshio.Mesh(np.zeros((3, 3)), [("triangle", np.array([[0, 1, 9]]))])
        meshio.write(tmp_path / "a.obj", mesh)
    else:
        (tmp_path / "a.msh").write_text("$MeshFormat\n4.1 0 8\n$EndMeshFormat\n$Nodes\n9 9e9\n")
    (file,) = tmp_path.iterdir()
    with MeshReader() as reader, pytest.raises(InputError, match=f"{file}") as caught:
        reader.read_mesh(file)
    assert "\n" not in str(caught.value)
