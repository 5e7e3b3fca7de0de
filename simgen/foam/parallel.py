"""Run a solver on several cores of one machine: decomposePar, mpirun, reconstructPar.

`hierarchical` cuts along the longest axis first; Debian's scotch is a stub that ends the program.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np

from simgen.errors import InputError
from simgen.foam.log import SolverLog
from simgen.foam.mesh_files import read_points
from simgen.foam.run import OnStep, run_application

APPLICATIONS = ("decomposePar", "mpirun", "reconstructPar")

DECOMPOSITION = """FoamFile
{{
    version     2.0;
    format      ascii;
    class       dictionary;
    object      decomposeParDict;
}}

numberOfSubdomains {cores};
method          hierarchical;

hierarchicalCoeffs
{{
    n               ({x} {y} {z});
    delta           0.001;
    order           xyz;
}}
"""


def run_solver(
    application: str,
    directory: Path,
    cores: int = 1,
    *,
    on_step: OnStep | None = None,
    time_limit_s: float | None = None,
) -> tuple[SolverLog, float]:
    """Run like `run_application` on `cores` cores; the seconds are the solver's alone.

    The time limit bounds the solver, and on several cores the cutting and joining of the case, each
    for itself.
    """
    if cores == 1:
        return run_application(application, directory, on_step=on_step, time_limit_s=time_limit_s)
    available = os.cpu_count() or 1
    if cores > available:
        raise InputError(
            f"a case was given {cores} cores, this machine has {available}; lower --cores"
        )
    parts = dict.fromkeys("xyz", 1)
    parts["xyz"[_longest_axis(directory)]] = cores
    (directory / "system/decomposeParDict").write_text(DECOMPOSITION.format(cores=cores, **parts))
    run_application("decomposePar", directory, time_limit_s=time_limit_s)
    # Open MPI needs both variables to run as root. Its own binding would put all cases on the same
    # cores. Ranks that wait for each other spin unless told to yield, which stalls machines that
    # are shared with other work.
    os.environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    launcher = [
        "mpirun",
        "--bind-to",
        "none",
        "--oversubscribe",
        "--mca",
        "mpi_yield_when_idle",
        "1",
        "-np",
        str(cores),
    ]
    log, seconds = run_application(
        application,
        directory,
        arguments=("-parallel",),
        launcher=launcher,
        on_step=on_step,
        time_limit_s=time_limit_s,
    )
    run_application("reconstructPar", directory, time_limit_s=time_limit_s)
    for part in directory.glob("processor*"):
        shutil.rmtree(part)
    return log, seconds


def _longest_axis(directory: Path) -> int:
    points = read_points(directory / "constant/polyMesh/points")
    return int(np.argmax(np.ptp(points, axis=0)))
