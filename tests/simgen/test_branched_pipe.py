"""The pipe: meshes over the whole space, a solved case that balances, the same on two cores."""

import math

import numpy as np
import pytest

from simgen.case import SolvedCase
from simgen.cases import get_family
from simgen.cases.branched_pipe.geometry import BEND_RADIUS, NOZZLE_WIDTH, STRAIGHT, WIDTH, plan_of
from simgen.foam.dictionaries import read_entry
from simgen.foam.run import find_openfoam
from simgen.meshing import check_mesh
from simgen.quantities import CaseFields, compute
from simgen.solving.convert import convert
from simgen.solving.solve_case import solve_case

pytestmark = pytest.mark.openfoam
FAMILY = get_family("branched-pipe")
MIDDLE = {"baffle_angle": 30.0, "aperture": 28.0, "duct_angle": 95.0, "curvature_angle": 130.0}
MIDDLE |= {"inlet_velocity": 6.0}


@pytest.fixture(scope="module")
def solved(tmp_path_factory):
    scratch = tmp_path_factory.mktemp("pipe")
    point = FAMILY.point(MIDDLE, FAMILY.settings("trial", {"mesh_size": 9.0}))
    result = solve_case(point, scratch)
    return SolvedCase(point, scratch / point.id), result


def test_the_plan_follows_its_parameters():
    plan = plan_of({**MIDDLE, "curvature_angle": 90.0})
    heading = math.radians(95 / 2)
    end_of_straight = STRAIGHT * np.array([math.cos(heading), math.sin(heading)])
    assert np.allclose(plan.branches[0].left[0] + plan.branches[0].right[0], 2 * end_of_straight)
    assert np.linalg.norm(plan.branches[0].bend - end_of_straight) == pytest.approx(BEND_RADIUS)
    ends = plan.branches[0].right[-1] - plan.branches[0].left[-1]
    assert np.linalg.norm(ends) == pytest.approx(NOZZLE_WIDTH)
    # Bent by 90 degrees: the opening looks a right angle away from where the branch set out.
    along = np.array([-ends[1], ends[0]]) / NOZZLE_WIDTH
    assert along @ end_of_straight == pytest.approx(0, abs=1e-12)
    assert np.linalg.norm(plan.crotch - plan.plate_tip) == pytest.approx(0.018)


# `make validate` meshes all of them, and 64 designs of a Sobol sequence.
@pytest.mark.parametrize("aperture", [20.0, 37.0])
@pytest.mark.parametrize("duct_angle", [75.0, 120.0])
@pytest.mark.parametrize("curvature_angle", [90.0, 180.0])
def test_corners_of_the_design_space_mesh_cleanly(aperture, duct_angle, curvature_angle, tmp_path):
    find_openfoam()
    corner = {"aperture": aperture, "duct_angle": duct_angle, "curvature_angle": curvature_angle}
    design = {**MIDDLE, "baffle_angle": 60.0, **corner}
    FAMILY.write_case(FAMILY.point(design, FAMILY.settings("trial")), tmp_path)
    figures = check_mesh(tmp_path)
    assert figures["failed_checks"] == 0
    assert figures["max_non_orthogonality"] < 65
    assert 6000 < figures["num_cells"] <= 1e4
    turbulence = tmp_path / "constant/turbulenceProperties"
    assert read_entry(turbulence, ("RAS", "RASModel")) == "kEpsilon"


def test_a_solved_case_balances_and_has_settled(solved):
    _, result = solved
    assert result.status == "accepted", result.reason
    figures = result.provenance["figures"]
    assert figures["max_residual"] <= 1e-6
    assert figures["mass_imbalance"] < 1e-4
    assert figures["back_flow"] == 0
    assert 0.3 < figures["branch1_share"] < 0.7
    # The jet through the aperture is lost: (50 / 28 - 1)^2 of its upstream dynamic pressure at the
    # least (Borda-Carnot).
    assert figures["loss_coefficient"] > (WIDTH / 0.028 - 1) ** 2
    assert figures["y_plus_min"] > 5


def test_the_inlet_has_a_power_law_and_fields_give_the_quantities_that_the_solver_measured(solved):
    case, result = solved
    point, cloud = case.point, convert(case)
    inlet = cloud.boundary.patch == cloud.patch_kinds.index("inlet")
    velocity, areas = cloud.boundary.fields["velocity"][inlet], cloud.boundary.areas[inlet]
    assert velocity[:, 0] @ areas / areas.sum() == pytest.approx(6.0, rel=1e-5)
    points = cloud.boundary.points[inlet]
    profile = np.prod(1 - np.abs(points[:, 1:]) / (WIDTH / 2), axis=1) ** (1 / 7)
    assert np.allclose(velocity[:, 0] / velocity[:, 0].max(), profile / profile.max(), rtol=1e-4)
    # What a model is told of a design that nobody has solved.
    prescribed = FAMILY.prescribed(point, cloud.boundary)["velocity"]
    assert np.allclose(prescribed[inlet], velocity, rtol=1e-4)
    assert not prescribed[~inlet].any()
    computed = compute(FAMILY.quantities, CaseFields(point.parameters, point.settings, cloud))
    measured = {name: result.provenance["figures"][name] for name in computed}
    assert list(computed) == ["pressure_loss", "branch1_share", "peak_speed"]
    assert computed == pytest.approx(measured, rel=0.01)


def test_two_cores_solve_as_one_does(tmp_path):
    settings = FAMILY.settings("trial", {"mesh_size": 12.0, "max_iterations": 500})
    point = FAMILY.point(MIDDLE, settings)
    alone, together = (
        solve_case(point, tmp_path / str(cores), cores=cores).provenance for cores in (1, 2)
    )
    assert (alone["cores"], together["cores"]) == (1, 2)
    for name in ("pressure_loss", "branch1_share", "num_cells"):
        assert together["figures"][name] == pytest.approx(alone["figures"][name], rel=0.01)
    one, two = (
        convert(SolvedCase(point, tmp_path / str(cores) / point.id)).fields["velocity"]
        for cores in (1, 2)
    )
    # So coarse a mesh leaves a small wobble in the jet, and each run ends somewhere in it.
    assert np.linalg.norm(two - one) < 0.05 * np.linalg.norm(one)
    assert not list((tmp_path / "2" / point.id).glob("processor*"))
