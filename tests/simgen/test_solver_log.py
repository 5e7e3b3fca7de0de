"""What a running solver prints, kept in bounded memory."""

import numpy as np
import pytest

from simgen.foam.log import HISTORY_POINTS, SolverLog, mesh_figures, residual_figures

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


def test_a_diverging_courant_number_is_kept():
    log = SolverLog()
    log.read("Courant Number mean: 1e+3 max: 1.5e+20")
    assert log.max_courant == 1.5e20


def test_checkmesh_figures():
    text = (
        "    cells:            2201\n    Mesh non-orthogonality Max: 30.3 average: 5.0\n    Max"
        " skewness = 0.64 OK.\nFailed 2 mesh checks.\n"
    )
    assert mesh_figures(text) == pytest.approx(
        {"num_cells": 2201, "max_non_orthogonality": 30.3, "max_skewness": 0.64, "failed_checks": 2}
    )


#: As OpenFOAM v1912 ends.
FATAL = """Creating block mesh from "system/blockMeshDict"

--> FOAM FATAL IO ERROR:
keyword vertices is undefined in dictionary "/case/system/blockMeshDict"

file: /case/system/blockMeshDict from line 3 to line 8.

    From function const Foam::entry& Foam::dictionary::lookupEntry() const
    in file db/dictionary/dictionary.C at line 388.

FOAM exiting
"""


def test_a_fatal_error_is_told_in_openfoams_own_words():
    log = SolverLog()
    for line in FATAL.splitlines():
        log.read(line)
    assert log.fatal == 'keyword vertices is undefined in dictionary "/case/system/blockMeshDict"'


def test_a_floating_point_exception_is_told_as_one():
    log = SolverLog()
    log.read("#1  Foam::sigFpe::sigHandler(int) at ??:?")
    assert log.fatal == "floating point exception"


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


def test_a_parallel_runs_error_is_told_once_and_alone():
    log = read(
        "[0] --> FOAM FATAL ERROR: (openfoam-2312 patch=0)",
        "[0] cannot find file",
        "[1] --> FOAM FATAL ERROR: another",
        "[0] ",
        "[0]     From function virtual Foam::autoPtr",
        "[0] FOAM parallel run exiting",
    )
    assert log.fatal == "cannot find file"
