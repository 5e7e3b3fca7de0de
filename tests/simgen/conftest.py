"""One short, real OpenFOAM case, solved once for all the tests that look at it."""

import pytest

from simgen.case import CaseResult, SolvedCase
from simgen.cases import get_family
from simgen.point_cloud import PointCloud
from simgen.solving.solve_case import solve_case


@pytest.fixture(scope="session")
def cylinder_point():
    family, design = get_family("cylinder-flow"), {"radius": 1.5, "center_x": 0.0, "center_y": 1.0}
    return family.point(design, family.settings("trial", {"end_time": 12.0}))


@pytest.fixture(scope="session")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("scratch")


@pytest.fixture(scope="session")
def result(cylinder_point, scratch) -> CaseResult:
    return solve_case(cylinder_point, scratch)


@pytest.fixture(scope="session")
def solved(cylinder_point, scratch, result) -> SolvedCase:
    assert result.status == "accepted", result.reason
    return SolvedCase(cylinder_point, scratch / cylinder_point.id)


@pytest.fixture(scope="session")
def cloud(solved) -> PointCloud:
    from simgen.solving.convert import convert

    return convert(solved)
