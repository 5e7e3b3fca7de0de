"""What the record of a case says about the time that it took."""

import pytest

from simgen.provenance import core_seconds

WALLS = {"wall_time_s": {"mesh": 2.0, "solve": 30.0}, "cores": 4}


def test_the_solvers_own_processor_time_goes_before_wall_time() -> None:
    on_a_busy_machine = {**WALLS, "cpu_time_s": {"solve": 50.0}}
    assert core_seconds(on_a_busy_machine, ("solve",)) == 50.0
    assert core_seconds(on_a_busy_machine, ("mesh", "solve")) == pytest.approx(8.0 + 50.0)


def test_without_it_wall_time_counts_on_all_cores() -> None:
    assert core_seconds(WALLS, ("solve",)) == 120.0


def test_a_case_without_times_has_none() -> None:
    assert core_seconds({"wall_time_s": {}}, ("mesh", "solve")) is None
    assert core_seconds({}, ("solve",)) is None
