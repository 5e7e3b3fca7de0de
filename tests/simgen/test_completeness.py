"""What a solved case stores is held against what was asked: cases truncated by hand, before and
after they are judged.
"""

import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simgen import cases
from simgen.case import SolvedCase
from simgen.cases import get_family
from simgen.design_space import DesignPoint
from simgen.errors import CaseError, MeshError
from simgen.solving import solve_case as solving
from simgen.solving.convert import convert
from simgen.solving.gates import AskedTimes, check_patches, stored_times
from simgen.solving.solve_case import solve_case
from tests.simgen.lid_cavity import LidCavity

CYLINDER = get_family("cylinder-flow")
Damage = Callable[[Path], None]


@pytest.fixture
def cylinder() -> DesignPoint:
    return CYLINDER.point(
        {"radius": 1.5, "center_x": 0.0, "center_y": 1.0},
        CYLINDER.settings("trial", {"end_time": 6.0, "mesh_size": 2.0}),
    )


@pytest.fixture
def cavity(monkeypatch: pytest.MonkeyPatch) -> DesignPoint:
    family = LidCavity()
    monkeypatch.setitem(cases.FAMILIES, family.name, family)
    return family.point(
        {"height": 1.0, "lid_velocity": 1.0}, family.settings("trial", {"end_time": 0.1})
    )


def remove(*times: str) -> Damage:
    return lambda directory: [shutil.rmtree(directory / time) for time in times] and None


def shorten(file: str) -> Damage:
    """Without the file's last half, as a full disk or a killed writer leaves it."""
    return lambda directory: (
        (directory / file).write_bytes(
            (directory / file).read_bytes()[: _size(directory / file) // 2]
        )
        and None
    )


def drop_cell(file: str) -> Damage:
    """One vector fewer, with a count that agrees: a file of another mesh, and not damaged by
    itself.
    """

    def damage(directory: Path) -> None:
        content = (directory / file).read_bytes()
        begin = content.index(b"List<vector>") + len(b"List<vector>")
        opening = content.index(b"(", begin)
        count = int(content[begin:opening])
        fewer = (
            content[:begin]
            + b" %d\n(" % (count - 1)
            + content[opening + 1 : opening + 1 + 24 * (count - 1)]
        )
        (directory / file).write_bytes(fewer + content[opening + 1 + 24 * count :])

    return damage


def cut_boundary(file: str) -> Damage:
    """The file ends where its boundary values would begin."""

    def damage(directory: Path) -> None:
        content = (directory / file).read_bytes()
        (directory / file).write_bytes(content[: content.rindex(b"boundaryField")])

    return damage


def move_points(directory: Path) -> None:
    file = directory / "constant/polyMesh/points"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def add_moved_mesh(time: str) -> Damage:
    return lambda directory: (
        shutil.copytree(directory / "constant/polyMesh", directory / time / "polyMesh") and None
    )


def _size(file: Path) -> int:
    return file.stat().st_size


#: Damage to a transient case of six snapshots, and to a steady one; what the judgement and the
#: conversion say of each.
OF_CYLINDER = {
    "last times missing": (
        remove("4", "5", "6"),
        "number of stored times is 3, limit = 6",
        "holds 3 stored times, its settings ask for 6",
    ),
    "first times missing": (
        remove("1", "2"),
        "first stored time is 3 s, limit 1 +- 0.05",
        "the first that is missing is t = 1 s",
    ),
    "a time in the middle missing": (
        remove("3"),
        "asked times not stored is 1, limit <= 0",
        "the first that is missing is t = 3 s",
    ),
    "another time": (
        lambda directory: (directory / "3").rename(directory / "3.5") and None,
        "asked times not stored is 1",
        "missing is t = 3 s",
    ),
    "a file cut short": (shorten("4/U"), "/4/U is cut short", "/4/U is cut short"),
    "the last file cut short": (shorten("6/p"), "/6/p is cut short", "/6/p is cut short"),
    "a file missing": (
        lambda directory: (directory / "2/p").unlink(),
        "/2/p cannot be read: No such file",
        "/2/p cannot be read: No such file",
    ),
    "a file of another mesh": (drop_cell("5/U"), "/5/U has values for", "/5/U has values for"),
    "a file without boundary": (
        cut_boundary("5/p"),
        "/5/p has no entry for the patch inlet",
        "/5/p has no entry for the patch inlet",
    ),
    "points moved": (
        move_points,
        "mesh files changed while it was solved is 1, limit <= 0",
        "constant/polyMesh/points changed since",
    ),
    "a mesh that moves": (
        add_moved_mesh("4"),
        "mesh files changed while it was solved is 1",
        "4/polyMesh changed since",
    ),
}
OF_CAVITY = {
    "the last time missing": (
        remove("0.1"),
        "last iterations not stored is 1",
        "holds no solved time",
    ),
    "an earlier time instead": (
        lambda directory: (directory / "0.1").rename(directory / "0.05") and None,
        "last iterations not stored is 1",
        "judged by its time 0.1",
    ),
    "a file cut short": (shorten("0.1/U"), "/0.1/U is cut short", "/0.1/U is cut short"),
    "a file of another mesh": (
        drop_cell("0.1/U"),
        "/0.1/U has values for",
        "/0.1/U has values for",
    ),
    "points moved": (
        move_points,
        "mesh files changed while it was solved is 1",
        "constant/polyMesh/points changed since",
    ),
}


def judged_after(
    damage: Damage, point: DesignPoint, scratch: Path, monkeypatch: pytest.MonkeyPatch
):
    """How a case ends whose directory is damaged between the solver's end and the judgement."""
    run_solver = solving.run_solver

    def run_and_damage(application, directory, *arguments, **options):
        ended = run_solver(application, directory, *arguments, **options)
        damage(directory)
        return ended

    monkeypatch.setattr(solving, "run_solver", run_and_damage)
    return solve_case(point, scratch)


@pytest.mark.openfoam
@pytest.mark.parametrize("what", OF_CYLINDER)
def test_a_truncated_cylinder_case_is_not_accepted(what, cylinder, tmp_path, monkeypatch):
    damage, reason, _ = OF_CYLINDER[what]
    result = judged_after(damage, cylinder, tmp_path, monkeypatch)
    assert result.status in ("rejected", "failed")
    assert reason in result.reason


@pytest.mark.openfoam
@pytest.mark.parametrize("what", OF_CAVITY)
def test_a_truncated_cavity_is_not_accepted(what, cavity, tmp_path, monkeypatch):
    damage, reason, _ = OF_CAVITY[what]
    result = judged_after(damage, cavity, tmp_path, monkeypatch)
    assert result.status in ("rejected", "failed")
    assert reason in result.reason


def fill(file: str, marker: bytes, value: float) -> Damage:
    """Put a value in place of the first number of the binary list after `marker`."""

    def damage(directory: Path) -> None:
        content = (directory / file).read_bytes()
        at = content.index(b"(", content.index(b"List<", content.index(marker))) + 1
        (directory / file).write_bytes(content[:at] + struct.pack("<d", value) + content[at + 8 :])

    return damage


@pytest.mark.openfoam
@pytest.mark.parametrize("marker", [b"internalField", b"outlet"])
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_a_snapshot_in_the_middle_that_is_not_finite_is_rejected(
    marker, value, cylinder, tmp_path, monkeypatch
):
    """In single precision, in which it would be stored; the last snapshot is a good one."""
    result = judged_after(fill("3/U", marker, value), cylinder, tmp_path, monkeypatch)
    assert (result.status, result.reason) == ("rejected", "values not finite is 1, limit <= 0")


@pytest.mark.openfoam
def test_what_an_accepted_cylinder_case_loses_before_its_conversion_is_named(cylinder, tmp_path):
    check_conversions(cylinder, OF_CYLINDER, tmp_path)


@pytest.mark.openfoam
def test_what_an_accepted_cavity_loses_before_its_conversion_is_named(cavity, tmp_path):
    check_conversions(cavity, OF_CAVITY, tmp_path)


def check_conversions(
    point: DesignPoint, damages: dict[str, tuple[Damage, str, str]], folder: Path
) -> None:
    result = solve_case(point, folder)
    assert result.status == "accepted", result.reason
    for number, (damage, _, problem) in enumerate(damages.values()):
        case = folder / str(number)
        shutil.copytree(folder / point.id, case)
        damage(case)
        with pytest.raises(CaseError, match=problem):
            convert(SolvedCase(point, case))
    assert convert(SolvedCase(point, folder / point.id)).num_points > 0


@pytest.mark.openfoam
@pytest.mark.parametrize(
    ("time_step", "snapshot_interval", "status"),
    [(0.3, 1.0, "accepted"), (0.2, 0.5, "accepted"), (1.0, 0.5, "rejected")],
)
def test_a_snapshot_is_stored_at_the_step_nearest_to_the_time_asked_for(
    time_step, snapshot_interval, status, tmp_path
):
    settings = {
        "end_time": 10.0,  # no multiple of 0.3
        "time_step": time_step,
        "snapshot_interval": snapshot_interval,
        "mesh_size": 2.0,
    }
    design = {"radius": 4.0, "center_x": 0.0, "center_y": 0.0}
    point = CYLINDER.point(design, CYLINDER.settings("trial"))
    # Not by way of the family, which refuses the last of them before anything is solved.
    point = replace(point, settings={**point.settings, **settings})
    result = solve_case(point, tmp_path)
    assert result.status == status, result.reason
    if status == "rejected":
        assert "number of stored times is 10, limit = 20" in result.reason


def test_asked_times_are_met_within_half_a_step():
    asked = AskedTimes.of(
        CYLINDER, CYLINDER.settings("trial", {"end_time": 60.0, "snapshot_interval": 0.1})
    )
    assert len(asked.times) == 600
    assert asked.times[-1] == pytest.approx(60)
    assert not asked.problem(asked.times + 0.04)
    assert asked.problem(asked.times + 0.06)
    assert len(asked.missing([])) == 600
    np.testing.assert_allclose(asked.missing(asked.times[300:]), asked.times[:300])
    assert (
        asked.problem([*asked.times, 60.1])
        == "holds 601 stored times, its settings ask for 600 times up to 60 s"
    )


PATCH = "{name} {{ type patch; nFaces {faces}; startFace 0; }}\n"


def boundary_of(directory: Path, faces: dict[str, int]) -> None:
    mesh = directory / "constant/polyMesh"
    mesh.mkdir(parents=True)
    patches = "".join(PATCH.format(name=name, faces=number) for name, number in faces.items())
    (mesh / "boundary").write_text(f"FoamFile {{}}\n{len(faces)}\n(\n{patches})\n")


def test_a_mesh_without_a_patch_or_its_faces_is_refused_before_it_is_solved(tmp_path: Path) -> None:
    whole = dict.fromkeys(CYLINDER.patches, 3)
    boundary_of(tmp_path / "whole", whole)
    check_patches(CYLINDER, tmp_path / "whole")
    boundary_of(tmp_path / "bare", {**whole, "cylinder": 0})
    with pytest.raises(MeshError, match="no face on the patch cylinder"):
        check_patches(CYLINDER, tmp_path / "bare")
    boundary_of(tmp_path / "lacking", {"inlet": 3, "walls": 3, "cylinder": 3})
    with pytest.raises(MeshError, match="the mesh lacks the patch outlet"):
        check_patches(CYLINDER, tmp_path / "lacking")


def test_a_case_that_is_still_in_parts_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "processor0/1").mkdir(parents=True)
    with pytest.raises(CaseError, match=r"is decomposed \(processor0\).*reconstructPar"):
        stored_times(CYLINDER, tmp_path)
