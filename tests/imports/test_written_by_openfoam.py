"""Cases in forms that OpenFOAM's own applications write, against OpenFOAM's own geometry.

`postProcess` stores the centres C and volumes V of the cells as fields, with the centres of the
faces on the patches. Whatever is then done to the files, the fields that are imported have to be
the geometry that the import computes from the mesh: both are right, or they differ.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import simgen
from simgen.imports.folder import FolderOptions
from simgen.imports.openfoam import FoamOptions
from tests.imports.foam_cases import import_openfoam, openfoam, plan_openfoam

pytestmark = pytest.mark.openfoam

HEAD = "FoamFile {{ version 2.0; format ascii; class dictionary; object {}; }}\n"
BLOCK = """scale 1;
vertices ((0 0 0) (2 0.1 0) (2.3 1 0.1) (0.1 1.2 0) (0 0 1) (2 -0.2 1.1) (2.1 1 1.3) (0 1 0.9));
blocks (hex (0 1 2 3 4 5 6 7) (4 3 2) simpleGrading (2 1 0.5));
edges ();
boundary (
 inlet { type patch; faces ((0 4 7 3)); }
 outlet { type patch; faces ((1 2 6 5)); }
 walls { type wall; faces ((0 1 5 4) (3 7 6 2) (0 3 2 1) (4 5 6 7)); }
);
"""
CONTROL = """application icoFoam;
startFrom latestTime; stopAt endTime; endTime 1; deltaT 0.5;
writeControl timeStep; writeInterval 1; writeFormat ascii; writePrecision 16;
writeCompression off; timeFormat general; timePrecision 6;
"""
SCHEMES = "ddtSchemes { default Euler; }\ngradSchemes {}\ndivSchemes {}\nlaplacianSchemes {}\n"
OPTIONS = FoamOptions(fields={"C": "centre", "V": "volume"}, allow_unfinished=True)


def dictionary(case: Path, name: str, text: str) -> None:
    (case / "system").mkdir(exist_ok=True)
    (case / "system" / name).write_text(HEAD.format(name) + text)


def changed(case: Path, name: str, old: str, new: str) -> None:
    text = (case / "system" / name).read_text()
    assert old in text
    (case / "system" / name).write_text(text.replace(old, new))


def geometry_fields(case: Path, *options: str) -> None:
    for function in ("writeCellCentres", "writeCellVolumes"):
        openfoam(case, "postProcess", "-func", function, *options)


@pytest.fixture(scope="module")
def meshed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A skewed block of 24 cells, without times."""
    case = tmp_path_factory.mktemp("meshed")
    dictionary(case, "blockMeshDict", BLOCK)
    dictionary(case, "controlDict", CONTROL)
    dictionary(case, "fvSchemes", SCHEMES)
    dictionary(case, "fvSolution", "solvers {}\n")
    openfoam(case, "blockMesh")
    return case


def solved(case: Path, *times: str) -> None:
    for time in times or ("0.5", "1"):
        (case / time).mkdir()
    geometry_fields(case)


def binary(case: Path) -> None:
    solved(case)
    changed(case, "controlDict", "writeFormat ascii", "writeFormat binary")
    openfoam(case, "foamFormatConvert")
    assert b"format      binary" in (case / "1/C").read_bytes()


def decomposed(case: Path) -> None:
    solved(case)
    coefficients = "coeffs { n (3 1 1); delta 0.001; order xyz; }\n"
    text = f"numberOfSubdomains 3;\nmethod hierarchical;\n{coefficients}"
    dictionary(case, "decomposeParDict", text)
    openfoam(case, "decomposePar", "-time", "0.5,1")
    for time in ("0.5", "1"):
        shutil.rmtree(case / time)


def with_an_empty_processor(case: Path) -> None:
    """By hand: no cell goes to the second of three."""
    solved(case)
    (case / "constant/cellDecomposition").write_text(
        "FoamFile { version 2.0; format ascii; class labelList; object cellDecomposition; }\n"
        f"24({' '.join('0' if cell % 3 else '2' for cell in range(24))})\n"
    )
    dictionary(
        case,
        "decomposeParDict",
        'numberOfSubdomains 3;\nmethod manual;\nmanualCoeffs { dataFile "cellDecomposition"; }\n',
    )
    openfoam(case, "decomposePar", "-time", "0.5,1")
    assert "nCells:0" in (case / "processor1/constant/polyMesh/owner").read_text().replace(" ", "")
    for time in ("0.5", "1"):
        shutil.rmtree(case / time)


def put_together_in_part(case: Path) -> None:
    decomposed(case)
    openfoam(case, "reconstructPar", "-latestTime")


def one_cell(case: Path) -> None:
    """Its owner may be a list of equal labels, `6{0}`, and its neighbour is an empty one."""
    changed(case, "blockMeshDict", "(4 3 2)", "(1 1 1)")
    openfoam(case, "blockMesh")
    solved(case)


def polyhedra(case: Path) -> None:
    openfoam(case, "polyDualMesh", "70", "-overwrite")
    solved(case)


def with_sets(case: Path) -> None:
    solved(case)
    dictionary(
        case,
        "topoSetDict",
        "actions ({ name half; type cellSet; action new; source boxToCell;"
        " box (0 0 0) (1 2 2); });\n",
    )
    openfoam(case, "topoSet", "-time", "1")
    # Where the mesh is of that time, its sets are as well.
    shutil.copytree(case / "constant/polyMesh/sets", case / "1/polyMesh/sets")


def a_region(case: Path) -> None:
    (case / "constant/fluid").mkdir()
    (case / "constant/polyMesh").rename(case / "constant/fluid/polyMesh")
    shutil.copytree(case / "system", case / "system/fluid")
    for time in ("0.5", "1"):
        (case / time).mkdir()
    geometry_fields(case, "-region", "fluid")


def in_times_of_many_digits(case: Path) -> None:
    changed(case, "controlDict", "timePrecision 6", "timePrecision 12")
    solved(case, "0.300000000001", "0.600000000002")


FORMS: dict[str, Callable[[Path], None]] = {
    each.__name__: each
    for each in (
        *(binary, decomposed, with_an_empty_processor, put_together_in_part),
        *(one_cell, polyhedra, with_sets, a_region, in_times_of_many_digits),
    )
}


@pytest.mark.parametrize("form", FORMS)
def test_fields_of_the_geometry_are_the_geometry(meshed, tmp_path, form) -> None:
    case = tmp_path / "cases/run"
    shutil.copytree(meshed, case)
    FORMS[form](case)
    asked = FolderOptions(tmp_path / "cases", str(tmp_path / "store"), "geometry")
    options = replace(OPTIONS, region="fluid" if form == "a_region" else "")
    plan = plan_openfoam(asked, options)
    skipped: list[str] = [each.reason for each in plan.skipped]
    done = import_openfoam(plan, options, on_skipped=lambda case, why: skipped.append(why))
    assert skipped == []
    found = simgen.open_dataset(done.url)[0]
    assert len(found.time) == 2
    for step in (0, 1):
        np.testing.assert_allclose(found["centre"][step], found.points, atol=1e-6)
        np.testing.assert_allclose(found["volume"][step][:, 0], found.volumes, rtol=1e-6)
        np.testing.assert_allclose(found.boundary["centre"][step], found.boundary.points, atol=1e-6)
    assert (found["volume"][0] > 0).all()
