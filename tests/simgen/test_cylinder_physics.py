"""The physics that the paper states for the reference cylinder, on the production mesh and time step."""

import numpy as np
import pytest

from simgen.case import SolvedCase
from simgen.cases import get_family
from simgen.cases.cylinder import MEAN_VELOCITY, VISCOSITY
from simgen.convert import convert
from simgen.shedding import shedding
from simgen.solve_case import solve_case

pytestmark = pytest.mark.openfoam


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The reference cylinder: radius 1.5 m at the origin, trial preset."""
    family, scratch = get_family("cylinder-flow"), tmp_path_factory.mktemp("reference")
    point = family.point({"radius": 1.5, "center_x": 0, "center_y": 0}, family.settings("trial", {"end_time": 320}))
    result = solve_case(point, scratch)
    assert result.status == "accepted", result.reason
    return convert(SolvedCase(point, scratch / point.id))


def test_the_reynolds_number_is_90():
    assert pytest.approx(90) == MEAN_VELOCITY * 2 * 1.5 / VISCOSITY


def test_vortices_are_shed_at_the_papers_frequency(reference):
    found = shedding(reference, radius=1.5, center=(0.0, 0.0), start=120.0)
    # Sec. vortex-shedding-section: f = 0.0222 Hz.
    assert found.frequency == pytest.approx(0.0222, rel=0.06)
    assert found.fluctuation > 0.2


def test_the_wake_has_a_limit_cycle_by_the_time_windows_begin(reference):
    wake = (reference.points[:, 0] > 2) & (reference.points[:, 0] < 15)
    energy = (reference.fields["velocity"][:, wake, 1] ** 2).mean(axis=1)
    early, late = energy[100:210].mean(), energy[210:320].mean()
    assert early == pytest.approx(late, rel=0.1)


def test_the_inflow_carries_the_mean_velocity(reference):
    inlet = reference.boundary.patch == reference.patch_kinds.index("inlet")
    areas = reference.boundary.areas[inlet]
    flow = (reference.boundary.fields["velocity"][-1, inlet, 0] * areas).sum() / areas.sum()
    np.testing.assert_allclose(flow, MEAN_VELOCITY, rtol=3e-3)
