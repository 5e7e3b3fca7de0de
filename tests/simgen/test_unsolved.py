"""Designs that nobody has solved: what is meshed and prescribed is what a solve would have had."""

from pathlib import Path

import numpy as np
import pytest

from simgen.case import SolvedCase
from simgen.cases import get_family
from simgen.errors import InputError, MeshError
from simgen.foam.run import find_openfoam
from simgen.solving import preparation, solve_case, unsolved
from simgen.solving.convert import convert
from simgen.solving.unsolved import mesh_design

FAMILY = get_family("cylinder-flow")


@pytest.mark.openfoam
def test_a_meshed_design_is_the_cloud_of_the_solved_one_and_is_meshed_once(
    solved: SolvedCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unsolved, "MOST_KEPT", 1)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/old.npz").touch()
    cloud, known = mesh_design(solved.point, tmp_path / "kept")
    assert not known and cloud.fields == {} and cloud.time is None
    expected = convert(solved)
    faces, expected_faces = cloud.boundary, expected.boundary
    for name in ("points", "volumes", "distance", "direction"):
        np.testing.assert_array_equal(getattr(cloud, name), getattr(expected, name))
    for name in ("points", "normals", "areas", "patch"):
        np.testing.assert_array_equal(getattr(faces, name), getattr(expected_faces, name))

    monkeypatch.setattr(unsolved, "write_case", lambda *_: pytest.fail("meshed a second time"))
    again, known = mesh_design(solved.point, tmp_path / "kept")
    assert known and again.mesh is not None and cloud.mesh is not None
    np.testing.assert_array_equal(again.distance, cloud.distance)
    np.testing.assert_array_equal(again.mesh.entries, cloud.mesh.entries)
    (kept,) = (tmp_path / "kept").iterdir()
    assert kept.name != "old.npz"


@pytest.mark.openfoam
@pytest.mark.parametrize(
    ("name", "mesh_size"), [("branched-pipe", 12.0), ("centrifugal-pump", 16.0)]
)
def test_designs_that_differ_in_the_flow_alone_share_a_mesh(
    name: str, mesh_size: float, tmp_path: Path
) -> None:
    family = get_family(name)
    settings = family.settings("trial", {"mesh_size": mesh_size})
    slow, fast = (
        {
            each.name: getattr(each, end) if each.name in family.flow_parameters else each.low
            for each in family.design_space.parameters
        }
        for end in ("low", "high")
    )
    cloud, known = mesh_design(family.point(slow, settings), tmp_path)
    same, known_then = mesh_design(family.point(fast, settings), tmp_path)
    assert (known, known_then) == (False, True)
    np.testing.assert_array_equal(same.distance, cloud.distance)
    assert same.boundary is not None and cloud.boundary is not None
    inlet = cloud.boundary.patch == family.patch_kinds.index("inlet")
    both = (cloud.boundary.fields["velocity"], same.boundary.fields["velocity"])
    slowest, fastest = (np.abs(velocity[inlet]).max() for velocity in both)
    assert fastest > 1.5 * slowest > 0


@pytest.mark.openfoam
def test_a_server_has_the_next_process_wait_for_its_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation, "_ahead", ahead := [])
    preparation.keep_process_ready()
    (first,) = ahead
    middle = {"radius": 2.0, "center_x": 0.0, "center_y": 0.0}
    point = FAMILY.point(middle, FAMILY.settings("trial", {"mesh_size": 2.0}))
    find_openfoam(("gmshToFoam",))
    (tmp_path / "case").mkdir()
    preparation.write_case(point, tmp_path / "case", 120.0)
    assert (tmp_path / "case/constant/polyMesh/points").exists() and first.poll() is not None
    (waiting,) = ahead
    waiting.communicate(timeout=60)
    assert waiting.returncode == 0, "it ends with who would have asked it"


@pytest.mark.openfoam
def test_a_design_without_a_mesh_is_an_error_and_a_full_disk_no_fault_of_the_design(
    solved: SolvedCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MeshError("gmsh could not mesh it")

    monkeypatch.setattr(unsolved, "write_case", fail)
    kept = tmp_path / f"{unsolved.geometry_id(solved.point)}-{unsolved.REVISION}.npz"
    for content in (b"", b"PK\x03\x04 half a file"):
        kept.write_bytes(content)
        with pytest.raises(unsolved.UnmeshableError, match="gmsh could not mesh it"):
            mesh_design(solved.point, tmp_path)
    monkeypatch.setattr(solve_case, "FULL", 1e18)
    with pytest.raises(InputError, match=r"is full .* TMPDIR") as full:
        mesh_design(solved.point, tmp_path)
    assert not isinstance(full.value, unsolved.UnmeshableError)
