"""What a running solver prints, kept in bounded memory."""

import numpy as np
import pytest

from simgen.errors import CaseError
from simgen.foam.log import (
    HISTORY_POINTS,
    SolverLog,
    drift,
    mesh_figures,
    read_series,
    residual_figures,
    settling_window,
    stalled,
    y_plus_figures,
)
from simgen.provenance import core_seconds
from simgen.solving.gates import back_flow

STEP = """Time = {time}

Courant Number mean: 0.1 max: {courant}
smoothSolver:  Solving for Ux, Initial residual = 0.5, Final residual = 1e-8, No Iterations 3
GAMG:  Solving for p, Initial residual = 0.25, Final residual = 1e-3, No Iterations 2
GAMG:  Solving for p, Initial residual = 0.01, Final residual = 1e-7, No Iterations 4
time step continuity errors : sum local = 2e-9, global = 1e-10, cumulative = 3e-9
"""


def read(*lines):
    log = SolverLog()
    for line in lines:
        log.read(line)
    return log


def test_a_step_is_read_with_the_first_residual_of_each_variable():
    log = SolverLog()
    opened = [log.read(line) for line in STEP.format(time=0.1, courant=0.7).splitlines()]
    assert opened.count(True) == 1
    assert (log.time, log.max_courant, log.last_continuity_error) == (0.1, 0.7, 2e-9)
    assert log.residuals == {"Ux": [(0.1, 0.5)], "p": [(0.1, 0.25)]}
    assert not log.finished
    assert log.cpu_s is None
    log.read("ExecutionTime = 12.34 s  ClockTime = 15 s")
    assert log.cpu_s == 12.34
    log.read("End")
    assert log.finished


def test_the_history_of_a_long_run_stays_bounded_and_spans_it():
    log = SolverLog()
    for step in range(1, 5001):
        for line in STEP.format(time=step, courant=0.1).splitlines():
            log.read(line)
    history = log.residuals["p"]
    assert HISTORY_POINTS / 3 < len(history) <= HISTORY_POINTS + 1
    times = [time for time, _ in history]
    assert times == sorted(times)
    assert times[0] <= 2
    assert times[-1] > 4900


def test_checkmesh_figures():
    text = (
        "    cells:            2201\n    Mesh non-orthogonality Max: 30.3 average: 5.0\n    Max"
        " skewness = 0.64 OK.\nFailed 2 mesh checks.\n"
    )
    assert mesh_figures(text) == pytest.approx(
        {"num_cells": 2201, "max_non_orthogonality": 30.3, "max_skewness": 0.64, "failed_checks": 2}
    )


#: As OpenFOAM v1912 ends.
FATAL = """--> FOAM FATAL IO ERROR:
keyword vertices is undefined in dictionary "/case/system/blockMeshDict"

file: /case/system/blockMeshDict from line 3 to line 8.

    From function const Foam::entry& Foam::dictionary::lookupEntry() const
FOAM exiting
"""


def test_a_fatal_error_is_told_in_openfoams_own_words():
    fatal = read(*FATAL.splitlines()).fatal
    assert fatal == 'keyword vertices is undefined in dictionary "/case/system/blockMeshDict"'
    crashed = read("#1  Foam::sigFpe::sigHandler(int) at ??:?")
    assert crashed.fatal == "floating point exception"
    parallel = read(
        "[0] --> FOAM FATAL ERROR: (openfoam-2312 patch=0)",
        "[0] cannot find file",
        "[1] --> FOAM FATAL ERROR: another",
        "[0] ",
        "[0]     From function virtual Foam::autoPtr",
    )
    assert parallel.fatal == "cannot find file"


def test_only_the_last_of_several_runs_in_one_log_counts():
    log = read("Time = 1", "End", "Time = 2", "--> FOAM FATAL ERROR: no more", "")
    assert (log.finished, log.fatal) == (False, "no more")
    again = read("Time = 1", "--> FOAM FATAL ERROR: no more", "", "Time = 1", "Time = 2", "End")
    assert (again.finished, again.fatal) == (True, "")


def test_a_figure_that_is_not_finite_stays_whatever_comes_after():
    log = read(
        "Time = 1",
        "Courant Number mean: nan max: nan",
        "Courant Number mean: 0.1 max: 0.2",
        "smoothSolver:  Solving for p, Initial residual = 1e-6, Final residual = 1e-7, No 1",
        "smoothSolver:  Solving for k, Initial residual = nan, Final residual = nan, No 1",
    )
    assert np.isnan(log.max_courant)
    assert np.isnan(residual_figures(log)["max_residual"])


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


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (None, "head below .* wrote nothing"),
        ("1 (7 8)\n2 (7 8)\n", "ends at 2, the solver at 3"),
        ("1 (7 8)\n2 (7 8)\n3 (7", "damaged"),
        ("1 (7 8)\n2 (7 8)\n3 (7 n", "damaged"),
    ],
)
def test_a_series_that_a_full_disk_cut_off_is_no_series(rows, problem, tmp_path):
    (tmp_path / "postProcessing/head/0").mkdir(parents=True)
    if rows is not None:
        (tmp_path / "postProcessing/head/0/head.dat").write_text(rows)
    with pytest.raises(CaseError, match=problem):
        read_series(tmp_path, "head", 3.0)


def test_ranges_by_patch(tmp_path):
    folder = tmp_path / "postProcessing/yPlus/0"
    folder.mkdir(parents=True)
    (folder / "yPlus.dat").write_text(
        "# Time patch min max average\n10\twalls\t1.5\t20\t9\n10\tplates\t2\t30\t8\n"
    )
    assert y_plus_figures(tmp_path) == {"y_plus_min": 1.5, "y_plus_max": 30.0, "y_plus_mean": 8.5}


def test_back_flow_is_what_enters_through_the_outlets():
    flux = {
        "inlet": np.array([[-3.0], [-1.0]]),
        "one": np.array([[4.0], [-0.5]]),
        "two": np.array([[0.7], [-0.2]]),
    }
    patches = {"inlet": "inlet", "one": "outlet", "two": "outlet"}
    assert back_flow(flux, patches) == pytest.approx(0.7 / 4)
    assert back_flow({**flux, "inlet": np.array([-0.5])}, patches) == pytest.approx(0.7 / 0.5)
    assert np.isnan(back_flow({**flux, "inlet": np.zeros(1)}, patches))


def test_drift_looks_at_the_end_alone():
    values = [*np.linspace(0, 10, 500), *([10.0] * 100), *([10.01] * 100)]
    assert drift(values) == pytest.approx(0.01 / 10.005)
    assert drift(values, last=100) == 0
    assert np.isnan(drift([1.0]))


@pytest.mark.parametrize(
    ("length", "end", "window"),
    [(2000, 2000.0, 200), (100, 100.0, 200), (1400, 1500.0, 200), (670, 1500.0, 134)],
)
def test_the_way_to_an_early_end_is_no_drift(length, end, window):
    assert settling_window(length, end) == window


def test_a_residual_that_fell_before_its_last_fifth_has_stalled():
    history = [(float(n), 1.0 if n < 16 else 1e-3) for n in range(20)]
    assert stalled(history)
    assert not stalled([(n, 10.0**-n) for n, _ in history])
    assert not stalled(history[:9]), "too short to tell"


WALLS = {"wall_time_s": {"mesh": 2.0, "solve": 30.0}, "cores": 4}


def test_the_solvers_own_processor_time_goes_before_wall_time_on_all_cores() -> None:
    measured = {**WALLS, "cpu_time_s": {"solve": 50.0}}
    assert core_seconds(measured, ("solve",)) == 50.0
    assert core_seconds(measured, ("mesh", "solve")) == pytest.approx(8.0 + 50.0)
    assert core_seconds(WALLS, ("solve",)) == 120.0
    assert core_seconds({}, ("solve",)) is None
