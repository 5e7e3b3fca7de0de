"""The pump: its plan view, meshes at the ends of the design space, and one coarse real solve."""

import itertools

import numpy as np
import pytest

from simgen.case import SolvedCase
from simgen.cases import get_family
from simgen.cases.centrifugal_pump.family import angular_velocity, head_history, plan_of
from simgen.cases.centrifugal_pump.geometry import BLADE_INLET, BLADE_THICKNESS, DEPTH, NUM_BLADES
from simgen.foam.dictionaries import read_entry
from simgen.foam.mesh import read_geometry
from simgen.foam.run import find_openfoam
from simgen.meshing import check_mesh
from simgen.quantities import CaseFields, compute
from simgen.solving.convert import convert
from simgen.solving.gates import judge
from simgen.solving.solve_case import solve_case

FAMILY = get_family("centrifugal-pump")
NAMES = ("inlet_radius", "impeller_radius", "blade_pitch_angle", "inlet_velocity")
MIDDLE = dict(zip(NAMES, (90, 180, 22.5, 2.5), strict=True))
# The inlet velocity leaves the mesh alone: eight corners of the space have eight different meshes.
CORNERS = list(itertools.product((80, 100), (160, 200), (5, 40)))


def design(inlet_radius, impeller_radius, blade_pitch_angle):
    return dict(zip(NAMES, (inlet_radius, impeller_radius, blade_pitch_angle, 2.5), strict=True))


@pytest.mark.parametrize("corner", CORNERS, ids=str)
def test_blades_reach_from_the_eye_to_the_impellers_radius_at_the_pitch_angle(corner):
    parameters = design(*corner)
    plan = plan_of(parameters)
    assert len(plan.blades) == NUM_BLADES
    for blade in plan.blades:
        radius = np.linalg.norm(blade, axis=1)
        assert radius.max() == pytest.approx(parameters["impeller_radius"] * 1e-3, rel=1e-3)
        inner = BLADE_INLET * parameters["inlet_radius"] * 1e-3
        assert radius.min() == pytest.approx(inner, rel=3e-3)
    camber = (plan.blades[0][:-1] + plan.blades[0][::-1][:-1])[: len(plan.blades[0]) // 2] / 2
    tip, before = camber[-1], camber[-2]
    along = (tip - before) / np.linalg.norm(tip - before)
    radial = (tip + before) / np.linalg.norm(tip + before)
    angle = np.degrees(np.arcsin(along @ radial))
    assert angle == pytest.approx(parameters["blade_pitch_angle"], abs=1.0)
    # Swept backward: towards the tip a blade falls behind an anticlockwise rotation.
    assert along @ np.array([-radial[1], radial[0]]) < 0
    gaps = np.linalg.norm(plan.blades[0][:, None] - plan.blades[1][None], axis=2)
    assert gaps.min() > BLADE_THICKNESS, "a passage between neighbouring blades"


def test_the_casing_widens_from_the_tongue_to_the_throat():
    plan = plan_of(MIDDLE)
    radius = np.linalg.norm(plan.spiral, axis=1)
    assert (np.diff(radius) > 0).all()
    assert radius[0] > plan.rotor_radius
    assert plan.inner_wall[1, 1] == pytest.approx(plan.outer_wall[1, 1])


@pytest.mark.openfoam
@pytest.mark.parametrize("corner", [CORNERS[0], CORNERS[-1], (100, 160, 5)], ids=str)
def test_meshes_of_the_spaces_corners_pass_checkmesh(corner, tmp_path):
    find_openfoam(("checkMesh", "gmshToFoam"))
    point = FAMILY.point(design(*corner), FAMILY.settings("trial"))
    FAMILY.write_case(point, tmp_path)
    mesh = check_mesh(tmp_path)
    assert mesh["failed_checks"] == 0
    assert mesh["max_non_orthogonality"] < 65
    assert 10_000 < mesh["num_cells"] <= 30_000
    geometry = read_geometry(tmp_path)
    assert set(geometry.patches) == set(FAMILY.patches)
    inlet = np.linalg.norm(geometry.face_areas[geometry.patches["inlet"].faces], axis=1).sum()
    assert inlet == pytest.approx(np.pi * (corner[0] * 1e-3) ** 2, rel=0.02)
    assert "rotor" in (tmp_path / "constant/polyMesh/cellZones").read_text(errors="replace")
    turbulence = tmp_path / "constant/turbulenceProperties"
    assert read_entry(turbulence, ("RAS", "RASModel")) == "kOmegaSST"


@pytest.fixture(scope="module")
def coarse(tmp_path_factory):
    """A coarse solve, cut short: the point, its directory's parent and its result."""
    scratch = tmp_path_factory.mktemp("pump")
    point = FAMILY.point(MIDDLE, FAMILY.settings("trial", {"mesh_size": 13, "max_iterations": 400}))
    return point, scratch, solve_case(point, scratch)


@pytest.mark.openfoam
def test_a_coarse_pump_pumps(coarse):
    _, _, result = coarse
    assert result.status in ("accepted", "rejected"), result.reason
    figures = result.provenance["figures"]
    # Euler's head, with the flow leaving along the blades and no loss, is the most of any pump.
    rotation = 2000 * np.pi / 30
    tip_speed, flow_rate = rotation * 0.18, np.pi * 0.09**2 * 2.5
    radial = flow_rate / (2 * np.pi * 0.18 * DEPTH)
    euler = tip_speed * (tip_speed - radial / np.tan(np.radians(22.5))) / 9.81
    assert 0.4 * euler < figures["head"] < euler
    assert figures["flow_rate"] == pytest.approx(flow_rate, rel=0.02)
    assert 0.3 < figures["efficiency"] < 1
    assert figures["mass_imbalance"] < 1e-3 and figures["y_plus_min"] > 11


@pytest.mark.openfoam
def test_the_cloud_has_the_walls_rotation_and_the_quantities_that_the_solver_measured(coarse):
    point, scratch, result = coarse
    cloud = convert(SolvedCase(point, scratch / point.id))
    computed = compute(FAMILY.quantities, CaseFields(point.parameters, point.settings, cloud))
    measured = {name: result.provenance["figures"][name] for name in computed}
    assert list(computed) == ["head", "shaft_power", "efficiency"]
    assert computed == pytest.approx(measured, rel=0.01)
    assert cloud.patch_kinds == ("inlet", "outlet", "wall", "impeller")
    velocity = cloud.boundary.fields["velocity"]
    impeller = cloud.boundary.patch == cloud.patch_kinds.index("impeller")
    x, y, _ = cloud.boundary.points[impeller].T
    rotation = angular_velocity(point)
    expected = rotation * np.stack([-y, x, np.zeros_like(x)], axis=1)
    np.testing.assert_allclose(velocity[impeller], expected, atol=2e-3 * rotation * 0.18)
    # What a model is told of a design that nobody has solved.
    prescribed = FAMILY.prescribed(point, cloud.boundary)["velocity"]
    on = impeller | (cloud.boundary.patch == cloud.patch_kinds.index("inlet"))
    np.testing.assert_allclose(prescribed[on], velocity[on], atol=2e-3 * rotation * 0.18)
    assert not prescribed[~on].any()
    assert (velocity[cloud.boundary.patch == cloud.patch_kinds.index("wall")] == 0).all()


@pytest.mark.openfoam
def test_a_head_that_still_moves_is_rejected(coarse):
    point, scratch, result = coarse
    case = SolvedCase(point, scratch / point.id)
    assert len(head_history(case.directory, 400)) == 400
    figures = {**result.provenance["figures"], "head_drift": 0.02, "head": -3.0}
    failed = {gate.name: gate.value for gate in judge(FAMILY, case, figures) if not gate.passed}
    assert failed["drift of the head"] == 0.02
    assert failed["head"] == -3.0
