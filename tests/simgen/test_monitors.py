"""What function objects wrote, and when a monitor has settled or a residual has stalled."""

import numpy as np
import pytest

from simgen.errors import CaseError
from simgen.foam.log import (
    drift,
    read_patch_ranges,
    read_series,
    settling_window,
    stalled,
    y_plus_figures,
)
from simgen.solving.gates import back_flow


def test_a_series_is_read_over_restarts_in_order(tmp_path):
    for start, rows in (
        ("100", "101\t(1 2 3)\n102\t(4 5 6)\n"),
        ("0", "# Time\tvalue\n1\t(7 8 9)\n"),
    ):
        folder = tmp_path / "postProcessing/monitor" / start
        folder.mkdir(parents=True)
        (folder / "surfaceFieldValue.dat").write_text(rows)
    series = read_series(tmp_path, "monitor", 102.0)
    assert series.tolist() == [[1, 7, 8, 9], [101, 1, 2, 3], [102, 4, 5, 6]]


def test_a_monitor_that_wrote_nothing_is_named(tmp_path):
    with pytest.raises(CaseError, match="monitor head wrote nothing"):
        read_series(tmp_path, "head", 1.0)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("1 (7 8)\n2 (7 8)\n", "ends at 2, the solver at 3"),
        ("1 (7 8)\n2 (7 8)\n3 (7", "has a damaged row"),
        ("1 (7 8)\n2 (7 8)\n3 (7 n", "has a damaged row"),
    ],
)
def test_a_series_that_a_full_disk_cut_off_is_no_series(rows, says, tmp_path):
    (tmp_path / "postProcessing/head/0").mkdir(parents=True)
    (tmp_path / "postProcessing/head/0/head.dat").write_text(rows)
    with pytest.raises(CaseError, match=says):
        read_series(tmp_path, "head", 3.0)


def test_ranges_by_patch(tmp_path):
    folder = tmp_path / "postProcessing/yPlus/0"
    folder.mkdir(parents=True)
    (folder / "yPlus.dat").write_text(
        "# Time patch min max average\n10\twalls\t1.5\t20\t9\n10\tplates\t2\t30\t8\n"
    )
    assert read_patch_ranges(tmp_path) == {"walls": (1.5, 20.0, 9.0), "plates": (2.0, 30.0, 8.0)}
    assert y_plus_figures(tmp_path) == {"y_plus_min": 1.5, "y_plus_max": 30.0, "y_plus_mean": 8.5}


def test_y_plus_that_was_not_written_fails_the_case_by_name(tmp_path):
    with pytest.raises(CaseError, match="monitor yPlus wrote nothing"):
        y_plus_figures(tmp_path)


def test_back_flow_is_what_enters_through_the_outlets():
    flux = {
        "inlet": np.array([[-3.0], [-1.0]]),
        "one": np.array([[4.0], [-0.5]]),
        "two": np.array([[0.7], [-0.2]]),
    }
    patches = {"inlet": "inlet", "one": "outlet", "two": "outlet"}
    assert back_flow(flux, patches) == pytest.approx(0.7 / 4)
    flux["inlet"][:] = 0
    assert np.isnan(back_flow(flux, patches))


def test_drift_looks_at_the_end_alone():
    values = [*np.linspace(0, 10, 500), *([10.0] * 100), *([10.01] * 100)]
    assert drift(values) == pytest.approx(0.01 / 10.005)
    assert drift(values, last=100) == 0
    assert np.isnan(drift([1.0]))


def test_the_way_to_an_early_end_is_no_drift():
    assert settling_window(2000, 2000.0) == 200
    assert settling_window(100, 100.0) == 200
    assert settling_window(1400, 1500.0) == 200
    assert settling_window(670, 1500.0) == 134


def test_a_plateau_is_a_stalled_residual_and_a_falling_one_is_not():
    falling = [(i, 10.0 ** (-i / 100)) for i in range(400)]
    plateau = [(i, max(10.0 ** (-i / 20), 1e-3)) for i in range(400)]
    assert not stalled(falling)
    assert stalled(plateau)
    assert not stalled([])
