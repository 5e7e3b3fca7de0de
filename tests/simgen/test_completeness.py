"""What a solved case stores is held against what was asked: cases truncated by hand, before and
after they are judged.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from simgen import cases
from simgen.case import SolvedCase
from simgen.cases import get_family
from simgen.design_space import DesignPoint
from simgen.errors import CaseError, MeshError
from simgen.solving import solve_case as solving
from simgen.solving.convert import convert
from simgen.solving.gates import check_patches
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
    return lambda directory: os.truncate(directory / file, (directory / file).stat().st_size // 2)


def move_points(directory: Path) -> None:
    file = directory / "constant/polyMesh/points"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


#: Damage to a transient case of six snapshots or a steady one, and a part of the reason for which
#: it is not accepted.
DAMAGES = {
    "a middle time missing": ("cylinder", remove("3"), "asked times not stored is 1"),
    "a file cut short": ("cylinder", shorten("4/U"), "/4/U is cut short"),
    "points moved": ("cylinder", move_points, "mesh files changed while it was solved is 1"),
    "the last iteration missing": ("cavity", remove("0.1"), "last iterations not stored is 1"),
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
@pytest.mark.parametrize("what", DAMAGES)
def test_a_damaged_case_is_not_accepted(what, request, tmp_path, monkeypatch):
    family, damage, reason = DAMAGES[what]
    result = judged_after(damage, request.getfixturevalue(family), tmp_path, monkeypatch)
    assert result.status in ("rejected", "failed")
    assert reason in result.reason


@pytest.mark.openfoam
@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (remove("3"), "the first that is missing is t = 3 s"),
        (shorten("4/U"), "/4/U is cut short"),
        (remove(*map(str, range(1, 13))), "holds no solved time"),
    ],
)
def test_what_a_solved_case_loses_before_its_conversion_is_named(solved, tmp_path, damage, problem):
    shutil.copytree(solved.directory, tmp_path / "case")
    damage(tmp_path / "case")
    with pytest.raises(CaseError, match=problem):
        convert(SolvedCase(solved.point, tmp_path / "case"))


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


def test_a_mesh_without_a_patch_or_its_faces_is_an_error_before_it_is_solved(
    tmp_path: Path,
) -> None:
    mesh = tmp_path / "constant/polyMesh"
    mesh.mkdir(parents=True)

    def check(**faces: int) -> None:
        entries = "".join(
            f"{name} {{ type patch; nFaces {number}; startFace 0; }}\n"
            for name, number in faces.items()
        )
        (mesh / "boundary").write_text(f"FoamFile {{}}\n{len(faces)}\n(\n{entries})\n")
        check_patches(CYLINDER, tmp_path)

    whole = dict.fromkeys(CYLINDER.patches, 3)
    check(**whole)
    with pytest.raises(MeshError, match="no face on the patch cylinder"):
        check(**{**whole, "cylinder": 0})
    del whole["outlet"]
    with pytest.raises(MeshError, match="lacks the patch outlet"):
        check(**whole)
