"""What the record of a case says about the time that it took."""

import pytest

from simgen.provenance import core_seconds

WALLS = {"wall_time_s": {"mesh": 2.0, "solve": 30.0}, "cores": 4}


def test_the_solvers_own_processor_time_goes_before_wall_time_on_all_cores() -> None:
    measured = {**WALLS, "cpu_time_s": {"solve": 50.0}}
    assert core_seconds(measured, ("solve",)) == 50.0
    assert core_seconds(measured, ("mesh", "solve")) == pytest.approx(8.0 + 50.0)
    assert core_seconds(WALLS, ("solve",)) == 120.0
    assert core_seconds({}, ("solve",)) is None
