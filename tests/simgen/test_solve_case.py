"""Real OpenFOAM: a case solved, judged, converted, resumed; and the ways it can go wrong."""

import contextlib
import os
import re
import signal
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simgen.case import CaseResult
from simgen.cases import get_family
from simgen.errors import InputError, MachineError
from simgen.foam.run import find_openfoam
from simgen.machine import descendants
from simgen.solving.solve_case import MOST_KILLS, solve_case, write_result
from tests.end_to_end.conftest import solvers, wait_for

pytestmark = pytest.mark.openfoam
FAMILY = get_family("cylinder-flow")


def point_of(settings):
    middle = {"radius": 1.0, "center_x": 0.0, "center_y": 0.0}
    return FAMILY.point(middle, FAMILY.settings("trial", settings))


def test_a_case_is_accepted_with_its_record_and_the_same_call_again_solves_nothing(
    result, cylinder_point, scratch
):
    assert result.status == "accepted", result.reason
    assert len(result.gates) > 6 and all(gate.passed for gate in result.gates)
    assert 2075 <= result.provenance["mesh"]["num_cells"] <= 4781
    assert result.provenance["solver_version"].startswith("OpenFOAM v")
    assert set(result.provenance["residuals"]) == {"Ux", "Uy", "p"}
    took = result.provenance["wall_time_s"]["solve"]
    assert 0 < result.provenance["cpu_time_s"]["solve"] <= took
    again = solve_case(cylinder_point, scratch)
    assert again == replace(result, provenance=again.provenance)
    assert again.provenance["wall_time_s"]["solve"] == took


def test_a_case_that_was_cut_off_is_started_afresh(tmp_path, cylinder_point):
    point = FAMILY.point(cylinder_point.parameters, FAMILY.settings("trial", {"end_time": 1.0}))
    half_written = tmp_path / point.id / "7"
    half_written.mkdir(parents=True)
    assert solve_case(point, tmp_path).status == "accepted"
    assert not half_written.exists()


def test_the_point_cloud_fills_the_channel_around_the_cylinder(cloud):
    assert cloud.num_snapshots == 12
    np.testing.assert_allclose(cloud.time, np.arange(1, 13))
    assert cloud.fields["velocity"].shape == (12, cloud.num_points, 2)
    assert cloud.fields["kinematic_pressure"].shape == (12, cloud.num_points, 1)
    np.testing.assert_allclose(cloud.volumes.sum(), 60 * 20 - np.pi * 1.5**2, rtol=2e-4)
    assert not cloud.points[:, 2].any()


def test_distances_agree_with_the_geometry_they_were_meshed_from(cloud):
    kinds = cloud.patch_kinds
    x, y, _ = cloud.points.T
    exact = {
        "inlet": x + 20,
        "outlet": 40 - x,
        "wall": 10 - np.abs(y),
        "cylinder": np.hypot(x, y - 1.0) - 1.5,
    }
    for kind, expected in exact.items():
        # 40 chords stand for the circle: their sagitta is 0.5 cm.
        np.testing.assert_allclose(cloud.distance[:, kinds.index(kind)], expected, atol=6e-3)
    toward = cloud.direction[:, kinds.index("cylinder")]
    radial = -np.stack([x, y - 1.0], axis=1) / np.hypot(x, y - 1.0)[:, None]
    assert (np.einsum("ij,ij->i", toward[:, :2], radial) > 0.99).mean() > 0.98


def test_the_boundary_cloud_carries_the_boundary_conditions(cloud):
    boundary, kinds = cloud.boundary, cloud.patch_kinds
    inlet = boundary.patch == kinds.index("inlet")
    profile = 0.4 * (1 - (boundary.points[inlet, 1] / 10) ** 2)
    np.testing.assert_allclose(boundary.fields["velocity"][-1, inlet, 0], profile, rtol=1e-5)
    walls = boundary.patch == kinds.index("wall")
    assert not boundary.fields["velocity"][:, walls].any()
    cylinder = boundary.patch == kinds.index("cylinder")
    speed = np.linalg.norm(boundary.fields["velocity"][:, cylinder], axis=-1)
    np.testing.assert_allclose(speed[4], 0.4, rtol=4e-3)  # turning for 10 s, then at rest; chords
    assert not speed[-1].any()
    np.testing.assert_allclose(boundary.normals[walls][:, 1], np.sign(boundary.points[walls, 1]))
    np.testing.assert_allclose(boundary.areas[inlet].sum(), 20, rtol=1e-6)
    outlet = boundary.patch == kinds.index("outlet")
    assert not boundary.fields["kinematic_pressure"][:, outlet].any()


def test_progress_tells_where_the_case_stands(tmp_path):
    point = point_of({"end_time": 90.0})
    seen = []
    solve_case(point, tmp_path, on_progress=seen.append)
    meshing, *solving = seen
    assert (meshing.stage, solving[-1].fraction) == ("meshing", 1.0)
    assert all(0 < progress.fraction <= 1 and progress.eta_s >= 0 for progress in solving)


def test_a_mesh_past_its_time_limit_fails_and_leaves_no_process(tmp_path):
    point = point_of({"mesh_size": 0.1})
    result = solve_case(point, tmp_path, time_limit_s=1.5)
    assert (result.status, result.reason) == ("failed", "meshing passed its time limit of 1.5 s")
    for number, _ in descendants(os.getpid()):
        process = Path("/proc", str(number))
        with contextlib.suppress(OSError):
            assert (process / "cwd").readlink() != tmp_path / point.id
            assert b"solving.preparation" not in (process / "cmdline").read_bytes()


def test_a_case_that_failed_before_it_was_stored_is_solved_again(tmp_path, monkeypatch):
    point = point_of({})
    directory = tmp_path / point.id
    directory.mkdir()
    for status, again in (("failed", True), ("rejected", False)):
        write_result(CaseResult(point, status, "its limit of 60 s", (), "", {}), directory)
        new = CaseResult(point, "accepted", "", (), "", {})
        monkeypatch.setattr("simgen.solving.solve_case._solve", lambda *_, new=new: new)
        assert solve_case(point, tmp_path).status == ("accepted" if again else "rejected")


def test_a_solve_with_too_large_a_time_step_is_rejected_with_its_courant_number(tmp_path):
    result = solve_case(point_of({"end_time": 10.0, "time_step": 1.0}), tmp_path)
    assert result.status == "rejected"
    assert re.search(r"maximum Courant number is \d.*, limit <= 1.5", result.reason)


def test_a_killed_solver_leaves_no_verdict_and_is_solved_by_the_same_call(tmp_path):
    point = point_of({"end_time": 20.0})

    def kill_the_solver():
        wait_for(lambda: solvers(tmp_path), 600)
        os.kill(solvers(tmp_path)[0], signal.SIGKILL)

    killer = threading.Thread(target=kill_the_solver)
    killer.start()
    with pytest.raises(MachineError, match=f"case {point.id}: icoFoam, .* was killed by SIGKILL"):
        solve_case(point, tmp_path)
    killer.join()
    assert not (tmp_path / point.id).exists()
    assert solve_case(point, tmp_path).status == "accepted"


def test_a_solver_that_is_killed_every_time_fails_with_the_way_out(tmp_path, monkeypatch):
    point = point_of({"end_time": 20.0, "mesh_size": 2.0})
    programs, scratch = tmp_path / "bin", tmp_path / "scratch"
    programs.mkdir()
    (programs / "icoFoam").write_text("#!/bin/sh\nkill -9 $$\n")
    (programs / "icoFoam").chmod(0o700)
    with monkeypatch.context() as patched:
        patched.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        for _ in range(MOST_KILLS - 1):
            with pytest.raises(MachineError, match="was killed by SIGKILL"):
                solve_case(point, scratch)
        result = solve_case(point, scratch)
    assert result.status == "failed" and "was killed by SIGKILL" in result.reason
    assert "--retry-failed" in result.reason and "--cores" in result.reason
    assert solve_case(point, scratch).status == "accepted", "solved again where that is asked for"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_leaves_no_verdict_and_is_solved_by_the_same_call(tmp_path):
    point = point_of({"end_time": 20.0, "mesh_size": 2.0})
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path]).returncode:
        pytest.skip("no disk can be mounted here")
    try:
        tmp_path.chmod(0o700)
        with pytest.raises(MachineError, match=r"the scratch disk is full .* COURANT_SCRATCH"):
            solve_case(point, tmp_path)
        assert not (tmp_path / point.id).exists()
        subprocess.run(["mount", "-o", "remount,size=100m", tmp_path], check=True)
        assert solve_case(point, tmp_path).status == "accepted"
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_without_openfoam_or_on_a_path_that_it_cannot_use_nothing_is_written(
    monkeypatch, tmp_path, cylinder_point
):
    with pytest.raises(InputError, match="has a space in its path"):
        solve_case(cylinder_point, tmp_path / "my cases")
    assert not (tmp_path / "my cases").exists()
    with pytest.raises(InputError, match=r"icoFaom is not on PATH: is its name .*controlDict"):
        find_openfoam(["icoFaom"])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"icoFoam is not on PATH: .*apt-get install openfoam"):
        solve_case(cylinder_point, tmp_path)
