"""What a running solver prints, kept in bounded memory; OpenFOAM's files, binary and ascii."""

import gzip
import re
import shutil
import struct

import numpy as np
import pytest

from simgen.errors import CaseError
from simgen.foam.field import read_field
from simgen.foam.log import (
    HISTORY_POINTS,
    SolverLog,
    drift,
    mesh_figures,
    read_series,
    residual_figures,
    settling_window,
    stalled,
)
from simgen.foam.mesh import PatchRange, read_boundary
from simgen.provenance import core_seconds
from simgen.solving.gates import back_flow
from tests.imports.foam_cases import Form

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
    assert read("Iteration: 7").time == 7  # as solidDisplacementFoam prints
    assert read("Region: air Courant Number mean: 0.1 max: 7").max_courant == 7
    phase = read("smoothSolver:  Solving for k.air, Initial residual = 0.5, Final residual = 1e-8")
    assert phase.last_residuals == {"k.air": 0.5}


def test_the_history_of_a_long_run_stays_bounded_and_spans_it():
    log = SolverLog()
    for step in range(1, 5001):
        for line in STEP.format(time=step, courant=0.1).splitlines():
            log.read(line)
    history = log.residuals["p"]
    assert HISTORY_POINTS / 3 < len(history) <= HISTORY_POINTS == 400
    times = [time for time, _ in history]
    assert times[0] == 1 and times[-1] > 4900
    assert np.diff(times).min() >= 14 and np.diff(times).max() <= 18


def test_checkmesh_figures():
    text = (
        "    cells:            2201\n    Mesh non-orthogonality Max: 30.3 average: 5.0\n    Max"
        " skewness = 0.64 OK.\nFailed 2 mesh checks.\n"
    )
    assert mesh_figures(text) == pytest.approx(
        {"num_cells": 2201, "max_non_orthogonality": 30.3, "max_skewness": 0.64, "failed_checks": 2}
    )


def test_a_fatal_error_is_reported_in_openfoams_own_words():
    single = read(
        "--> FOAM FATAL IO ERROR:", 'keyword x is undefined in "y"', "", "file: y", "    From"
    )
    assert single.fatal == 'keyword x is undefined in "y"'
    cut = read("--> FOAM FATAL IO ERROR:", "ill defined entry", "", "file: 0/U at line 34.")
    assert cut.fatal == "ill defined entry, in 0/U at line 34"
    assert read("#1  Foam::sigFpe::sigHandler(int) at ??:?").fatal == "floating point exception"
    parallel = read(
        "[0] --> FOAM FATAL ERROR: (openfoam-2312 patch=0)",
        "[0] cannot find file",
        "[1] --> FOAM FATAL ERROR: another",
        "[0] ",
    )
    assert parallel.fatal == "cannot find file"
    again = read("Time = 1", "--> FOAM FATAL ERROR: no more", "", "Time = 1", "Time = 2", "End")
    assert (again.finished, again.fatal) == (True, ""), "the last of several runs in a log counts"


def test_a_figure_that_is_not_finite_stays_whatever_comes_after():
    log = read(
        "Time = 1",
        "Courant Number mean: nan max: nan",
        "Courant Number mean: 0.1 max: 0.2",
        "smoothSolver:  Solving for p, Initial residual = 1e-6, Final residual = 1e-7, No 1",
        "smoothSolver:  Solving for k, Initial residual = nan, Final residual = nan, No 1",
    )
    assert np.isnan(log.max_courant)
    assert read("Time = 1", "Mean and max Courant Numbers = 0.1 0.2").max_courant == 0.2
    assert np.isnan(residual_figures(log)["max_residual"])


def test_a_series_is_read_over_restarts_in_order(tmp_path):
    for start, rows in (
        ("100", "101\t(1 2 3)\n102\t(4 5 6)\n"),
        ("0", "# Time\tvalue\n1\t(7 8 9)\n101\t(1e9 1e9 1e9)\n"),  # which was solved again
    ):
        folder = tmp_path / "postProcessing/monitor" / start
        folder.mkdir(parents=True)
        (folder / "surfaceFieldValue.dat").write_text(rows)
    folder.with_name("0_old").mkdir()
    shutil.copy(folder / "surfaceFieldValue.dat", folder.with_name("0_old"))
    series = read_series(tmp_path, "monitor", 102.0)
    assert series.tolist() == [[1, 7, 8, 9], [101, 1, 2, 3], [102, 4, 5, 6]]
    # As v1912 does where a run begins beside an earlier one's file.
    (folder / "surfaceFieldValue_0.dat").write_text("1 (10 11 12)\n")
    again = read_series(tmp_path, "monitor", 102.0, "surfaceFieldValue.dat")
    assert again.tolist() == [[1, 10, 11, 12], *series.tolist()[1:]]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (None, "head below .* wrote nothing"),
        ("1 (7 8)\n2 (7 8)\n", "ends at 2, the solver at 3"),
        ("1 (7 8)\n2 (7 8)\n3 (7", "damaged"),
    ],
)
def test_a_series_that_a_full_disk_cut_off_is_no_series(rows, problem, tmp_path):
    (tmp_path / "postProcessing/head/0").mkdir(parents=True)
    if rows is not None:
        (tmp_path / "postProcessing/head/0/head.dat").write_text(rows)
    with pytest.raises(CaseError, match=problem):
        read_series(tmp_path, "head", 3.0)


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


def test_drift_and_stalled_residuals_look_at_the_end_alone():
    values = [*np.linspace(0, 10, 500), *([10.0] * 100), *([10.01] * 100)]
    assert drift(values) == pytest.approx(0.01 / 10.005)
    assert drift(values, last=100) == 0
    assert np.isnan(drift([1.0]))
    history = [(float(n), 1.0 if n < 16 else 1e-3) for n in range(20)]
    assert stalled(history)
    assert not stalled([(n, 10.0**-n) for n, _ in history])
    assert not stalled(history[:9]), "too short to judge"
    assert drift([-1.0, -1.1]) == pytest.approx(0.1 / 1.05)


@pytest.mark.parametrize(
    ("length", "end", "window"),
    [(2000, 2000.0, 200), (100, 100.0, 200), (1400, 1500.0, 200), (670, 1500.0, 134)],
)
def test_the_way_to_an_early_end_is_no_drift(length, end, window):
    assert settling_window(length, end) == window


WALLS = {"wall_time_s": {"mesh": 2.0, "solve": 30.0}, "cores": 4}


def test_the_solvers_own_processor_time_goes_before_wall_time_on_all_cores() -> None:
    measured = {**WALLS, "cpu_time_s": {"solve": 50.0}}
    assert core_seconds(measured, ("solve",)) == 50.0
    assert core_seconds(measured, ("mesh", "solve")) == pytest.approx(8.0 + 50.0)
    assert core_seconds(WALLS, ("solve",)) == 120.0
    assert core_seconds({}, ("solve",)) is None


BINARY = Form(binary=True)
BEGINNING = b"// a comment with internalField in it\ndimensions [0 1 -1 0 0 0 0];\n"


def field_file(path, vectors, *, binary, patch_vectors):
    """A volVectorField of a list, with patches of a list, of one value and of none."""
    form = Form(binary=binary)
    inside, inlet = (
        b"nonuniform List<vector> \n" + form.values(values) + b";"
        for values in (vectors, patch_vectors)
    )
    patches = (
        b"inlet\n{\n type fixedValue;\n value %s\n }\nwalls\n{\n type noSlip;\n }\n" % inlet
        + b"outlet { type inletOutlet; inletValue uniform (0 0 0); value uniform (1 -2 3e-1); }\n"
    )
    body = b"internalField   %s\nboundaryField\n{\n%s}\n" % (inside, patches)
    form.write(path, "volVectorField", BEGINNING + body)


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "ascii"])
def test_a_vector_field_is_read_with_its_patches_packed_too_and_not_in_part(tmp_path, binary):
    generator, path = np.random.default_rng(0), tmp_path / "U"
    vectors, patch = generator.normal(size=(50, 3)), generator.normal(size=(4, 3))
    field_file(path, vectors, binary=binary, patch_vectors=patch)
    field = read_field(path)
    np.testing.assert_array_equal(field.internal, vectors)
    np.testing.assert_array_equal(field.boundary["inlet"], patch)
    np.testing.assert_array_equal(field.boundary["outlet"], [1, -2, 0.3])
    assert "walls" not in field.boundary
    data = path.read_bytes()
    for keep in (0.2, 0.5, 0.8):
        path.write_bytes(data[: int(keep * len(data))])
        with pytest.raises(CaseError, match=r"U (is cut short|has no internalField)|expected"):
            read_field(path)
    path.unlink()
    packed = gzip.compress(data)
    (tmp_path / "U.gz").write_bytes(packed)
    np.testing.assert_array_equal(read_field(path).internal, vectors)
    (tmp_path / "U.gz").write_bytes(packed[:-20])
    with pytest.raises(CaseError, match="U cannot be read: Compressed file ended"):
        read_field(path)


def test_bytes_that_look_like_syntax_inside_a_binary_list_are_data(tmp_path):
    (tricky,) = struct.unpack("<d", b");}in{;/")
    (more,) = struct.unpack("<d", b"boundary")
    vectors = np.full((3, 3), tricky)
    field_file(tmp_path / "U", vectors, binary=True, patch_vectors=np.full((2, 3), more))
    field = read_field(tmp_path / "U")
    np.testing.assert_array_equal(field.internal, vectors)
    np.testing.assert_array_equal(field.boundary["inlet"], np.full((2, 3), more))


#: What a patch may hold beside its value, by OpenFOAM's grammar.
ENTRIES = {
    "dictionary": b"uniformValueCoeffs { type table; values ((0 1) (1 2)); deep { value 3; } }",
    "code": b"code #{ if (true) { operator==(vector(1, 0, 0)); } // }\n#}; name coded;",
    "code within a dictionary": b"codeContext { value #{ x; } #}; }",
    "table": b"uniformValue table ((0 (0 0 0)) (1 (1 0 0)));",
    "string": b'expression "a; } b";',
    "list of words": b"groups List<word> 2(a b);",
    "another value": b"gradient nonuniform List<vector> 1(" + b"}" * 24 + b");",
    "labels": b"ids List<label> 2(" + b"{;(}" * 2 + b");",
}


def patch_file(path, entry, *, patch=b"frt-fairing:001%1", value=b"value uniform (1 2 3);"):
    entries = b"%s\n{\ntype x;\n%s\n%s\n}\nwalls { type noSlip; }\n" % (patch, entry, value)
    body = b"internalField uniform (0 0 0);\nboundaryField\n{\n%s}\n" % entries
    BINARY.write(path, "volVectorField", BEGINNING + body)


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_a_patch_may_hold_any_entry_beside_its_value(tmp_path, entry):
    patch_file(tmp_path / "U", entry)
    field = read_field(tmp_path / "U")
    assert field.patches == {"frt-fairing:001%1": "x", "walls": "noSlip"}
    np.testing.assert_array_equal(field.boundary["frt-fairing:001%1"], [1, 2, 3])


@pytest.mark.parametrize(
    ("entry", "value", "problem"),
    [
        (b'#include "inlet"', b"", r"the patch inlet refers to another place"),
        (b"$entries;", b"", r"the patch inlet refers to another place \(\$entries\)"),
        # Its type and its value may be others than those of the file.
        (b"value uniform (1 2 3);", b"$entries;", r"refers to another place \(\$entries\)"),
        (b"", b"value $internalField;", r"value on the patch inlet is '\$internalField;'"),
        (b"", b"value uniform (1 $v 0);", r"value on the patch inlet is 'uniform \(1 \$v 0\)"),
        (b"", b"value nonuniform List<wordRe> 1(a);", "of type wordRe, which is not read"),
        (b"broken ( ];", b"", "a ']' closes nothing"),
        (b"endless { ", b"", "is cut short"),
    ],
)
def test_a_value_that_the_file_does_not_hold_is_refused_by_its_name(
    tmp_path, entry, value, problem
):
    patch_file(tmp_path / "U", entry, patch=b"inlet", value=value)
    with pytest.raises(CaseError, match=problem):
        read_field(tmp_path / "U")


def test_a_patch_may_have_one_value_for_all_faces_or_no_face(tmp_path):
    patch_file(tmp_path / "U", b"", patch=b"inlet", value=b"value nonuniform 0();")
    assert read_field(tmp_path / "U").boundary["inlet"].shape == (0, 3)
    patch_file(tmp_path / "U", b"", patch=b"inlet")
    np.testing.assert_array_equal(read_field(tmp_path / "U").boundary["inlet"], [1, 2, 3])


@pytest.mark.parametrize("count", ["2\n", ""], ids=["OpenFOAM's", "PyFoam's"])
def test_a_boundary_file_may_hold_any_patch_name_and_nested_entries(tmp_path, count):
    patches = (
        f"{count}(\n"
        "frt-fairing:001%1 { type wall; inGroups 1(wall); nFaces 0; startFace 7; }\n"
        "mixing { type cyclicAMI; nFaces 3; surface { type plane; } startFace 7; }\n)\n"
    )
    BINARY.write(tmp_path / "boundary", "polyBoundaryMesh", patches.encode())
    assert read_boundary(tmp_path / "boundary") == {
        "frt-fairing:001%1": PatchRange("wall", 7, 0, ("wall",)),
        "mixing": PatchRange("cyclicAMI", 7, 3, ("cyclicAMI",)),
    }


def test_an_unknown_binary_form_is_an_error(tmp_path):
    for entry, problem in (
        ('arch "LSB;label=16;scalar=64"', r"where 'label=16' is not known; write it as ascii"),
        ("format compressed", r"has the format 'compressed', expected ascii or binary"),
    ):
        BINARY.write(
            tmp_path / "p", "volScalarField", b"internalField uniform 1;\nboundaryField {}\n"
        )
        text = (tmp_path / "p").read_text()
        (tmp_path / "p").write_text(re.sub(rf"{entry.split()[0]} .*;", f"{entry};", text))
        with pytest.raises(CaseError, match=problem):
            read_field(tmp_path / "p")
