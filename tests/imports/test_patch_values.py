"""Values on patches are those that OpenFOAM has there, whatever their conditions write.

Cases in forms that OpenFOAM's own applications write have its geometry: `postProcess` stores the
centres C and volumes V of the cells as fields, with the centres of the faces on the patches. The
fields that are imported have to be the geometry that the import computes from the mesh.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import simgen
from bench import foam_fuzz
from simgen.errors import CaseError, InputError
from simgen.imports.folder import FolderOptions
from simgen.imports.openfoam import FoamFolder
from tests.imports.foam_cases import (
    SIDES,
    Entry,
    FieldText,
    FoamMesh,
    Form,
    PatchCase,
    Values,
    block,
    foam_to_vtk,
    import_openfoam,
    imported_values,
    openfoam,
    plan_openfoam,
    replace_in,
)

pytestmark = pytest.mark.openfoam

SKEW = np.array([[1.0, 0.3, 0.1], [0.2, 0.9, 0.2], [-0.1, 0.1, 1.1]])


def skewed(types: Mapping[str, str], **more) -> FoamMesh:
    """A block whose patches are called like its sides, none of which lies along an axis."""
    of_sides = {side: types.get(side, "patch") for side in SIDES}
    return block({side: side for side in SIDES}, of_sides, jitter=0.2, shear=SKEW, **more)


def some(width: int, *, seed: int = 0, slope: bool = True) -> Values:
    random = np.random.default_rng([seed, width])
    return Values(random.normal(size=width), random.normal(size=(width, 3)) if slope else None)


def one(*numbers: float) -> Values:
    return Values(np.array(numbers))


def check(directory: Path, case: PatchCase, form: Form | None = None) -> dict[str, np.ndarray]:
    """Import the case; its values are those of OpenFOAM. Return the last field's by patch."""
    folder = case.write(directory / "cases/run", form)
    (time,) = case.fields
    return compare(folder, time, list(case.fields[time]))


def compare(folder: Path, time: str, names: Sequence[str], **options) -> dict[str, np.ndarray]:
    """Compare the last time of a case with what OpenFOAM has there."""
    source, rows = imported_values(folder.parent, {name: name for name in names}, **options)
    theirs = foam_to_vtk(folder, time)
    assert set(rows) == set(theirs)
    for name in names:
        assert source.boundary is not None
        values = source.boundary.fields[name]
        values = (values if source.time is None else values[-1]).reshape(
            len(source.boundary.patch), -1
        )
        for patch, of_patch in rows.items():
            expected = theirs[patch][name]
            np.testing.assert_allclose(
                values[of_patch], expected, rtol=2e-5, atol=2e-5, err_msg=f"{name} on {patch}"
            )
        found = {patch: values[of_patch] for patch, of_patch in rows.items()}
    return found


def test_conditions_that_write_no_value(tmp_path) -> None:
    """Those of scalars, vectors and tensors, on faces that lie along no axis."""

    def entries(width: int, **conditions: Entry | str) -> Sequence[Entry | str]:
        others = {side: Entry(side, "zeroGradient") for side in SIDES}
        others |= {"front": Entry("front", "symmetry"), "back": Entry("back", "symmetryPlane")}
        return list((others | conditions).values())

    def gradients(width: int) -> dict[str, Entry]:
        return {
            "left": Entry("left", "fixedGradient", {"gradient": some(width)}),
            "right": Entry("right", "fixedGradient", {"gradient": some(width, slope=False)}),
            "bottom": Entry("bottom", "slip"),
            "top": Entry(
                "top", "partialSlip", {"valueFraction": one(0.3), "refValue": some(width, seed=2)}
            ),
        }

    vectors = {
        "left": Entry("left", "fixedNormalSlip", {"fixedValue": some(3)}),
        "right": Entry("right", "surfaceNormalFixedValue", {"refValue": some(1)}),
        "bottom": Entry("bottom", "noSlip"),
        "top": Entry("top", "partialSlip", {"valueFraction": some(1)}),
    }
    fields = {
        "T": FieldText("scalar", some(1, seed=5), entries(1, **gradients(1))),
        "U": FieldText("vector", some(3, seed=5), entries(3, **gradients(3))),
        "V": FieldText("vector", some(3, seed=6), entries(3, **vectors)),
        "R": FieldText("symmTensor", some(6, seed=5), entries(6, **gradients(6))),
        "G": FieldText("tensor", some(9, seed=5), entries(9, **gradients(9))),
    }
    mesh = skewed({"front": "symmetry", "back": "symmetryPlane", "bottom": "wall"})
    check(tmp_path, PatchCase(mesh, {"2": fields}, steady=True), Form(binary=True))


def fixed(key: str, number: float) -> Entry:
    return Entry(key, "fixedValue", {"value": one(number)})


#: Entries beside one of 9 for all, of the groups and names below.
MATCHED: tuple[list[Entry | str], ...] = (
    [fixed('"(left|right)"', 350), fixed("bottom", 1)],
    [fixed('"(left|right)"', 1), fixed('".*t"', 2)],
    [fixed("left", 1), fixed('"l.*"', 2)],
    [fixed("ends", 5)],
    [fixed("left", 1), fixed("ends", 5)],
    [fixed("ends", 5), fixed("sides", 6)],
    [fixed("wall", 7)],
    [fixed('"left"', 1), fixed('"l.*"', 2)],
    [fixed("left", 1), fixed("right", 2), Entry("left", "fixedValue", text="value uniform 3;")],
    ['#includeEtc "caseDicts/setConstraintTypes"', fixed("ends", 5)],
)


def test_entries_of_groups_and_patterns_are_those_that_openfoam_finds(tmp_path) -> None:
    types = dict.fromkeys(SIDES, "patch") | {"bottom": "wall", "front": "empty", "back": "empty"}
    groups = {"left": ("ends", "top"), "right": ("ends", "sides"), "bottom": ("sides", "right")}
    mesh = block({side: side for side in SIDES}, types, shape=(2, 2, 1), groups=groups)
    fields = {
        f"T{number}": FieldText("scalar", one(-1), [fixed('".*"', 9), *entries])
        for number, entries in enumerate(MATCHED)
    }
    found = check(tmp_path, PatchCase(mesh, {"1": fields}, steady=True))
    values = [found[side][0, 0] for side in ("left", "right", "bottom", "top")]
    assert values == [5, 5, 9, 9], "of the last field"


def scalar_case(directory: Path, *entries: Entry | str) -> Path:
    """A cube whose sides are called like SIDES; those without an entry are as in their cell: -1."""
    mesh = block({s: s for s in SIDES}, dict.fromkeys(SIDES, "patch"), shape=(2, 2, 2))
    text = FieldText("scalar", one(-1), entries)
    return PatchCase(mesh, {"1": {"T": text}}, steady=True).write(directory / "cases/run").parent


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (Entry("left", "groovyBC"), "patch left has no value, and groovyBC .* groovyBC=cell"),
        (Entry("left", "partialSlip", {"refValue": one(1)}), "and partialSlip does not say"),
        (
            Entry("left", "fixedGradient", {"gradient": one(1, 2, 3)}),
            "has 3 components, expected 1",
        ),
        ('#include "patches"', "the boundaryField refers"),
        ('"(" { type zeroGradient; }', "the pattern"),
    ],
)
def test_a_value_that_is_not_known_is_one_line(tmp_path, entry, problem) -> None:
    folder = scalar_case(tmp_path, Entry('".*"', "zeroGradient"), entry)
    with pytest.raises((CaseError, InputError), match=problem):
        imported_values(folder, {"T": "T"})


def test_the_cells_value_is_a_way_out_where_no_value_is_written(tmp_path) -> None:
    entries = (fixed('".*"', 9), Entry("left", "groovyBC"), fixed("right", 5))
    folder = scalar_case(tmp_path, *entries, Entry("top", "groovyBC", {"value": one(4)}))
    chosen = frozenset(["groovyBC"])
    source, rows = imported_values(folder, {"T": "T"}, patch_values=chosen)
    assert source.boundary is not None
    found = {patch: set(source.boundary.fields["T"][of].ravel()) for patch, of in rows.items()}
    assert found == {
        "left": {-1.0}, "right": {5.0}, "top": {4.0}, "bottom": {9.0}, "front": {9.0}, "back": {9.0}
    }  # fmt: skip


def test_drawn_cases_have_the_values_of_openfoam() -> None:
    outcomes = foam_fuzz.run(range(16), seed=1)
    assert [each for each in outcomes if not each.is_good] == []
    assert sum(each.verdict == "equal" for each in outcomes) > 4


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
READER = FoamFolder(fields={"C": "centre", "V": "volume"}, allow_unfinished=True)


def dictionary(case: Path, name: str, text: str) -> None:
    (case / "system").mkdir(exist_ok=True)
    (case / "system" / name).write_text(HEAD.format(name) + text)


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


def solved(case: Path) -> None:
    for time in ("0.5", "1"):
        (case / time).mkdir()
    geometry_fields(case)


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
    replace_in(case / "system/blockMeshDict", "(4 3 2)", "(1 1 1)")
    openfoam(case, "blockMesh")
    solved(case)


def polyhedra(case: Path) -> None:
    openfoam(case, "polyDualMesh", "70", "-overwrite")
    solved(case)


def a_region(case: Path) -> None:
    (case / "constant/fluid").mkdir()
    (case / "constant/polyMesh").rename(case / "constant/fluid/polyMesh")
    shutil.copytree(case / "system", case / "system/fluid")
    for time in ("0.5", "1"):
        (case / time).mkdir()
    geometry_fields(case, "-region", "fluid")


FORMS: dict[str, Callable[[Path], None]] = {
    each.__name__: each
    for each in (
        *(decomposed, with_an_empty_processor, put_together_in_part),
        *(one_cell, polyhedra, a_region),
    )
}


@pytest.mark.parametrize("form", FORMS)
def test_fields_of_the_geometry_are_the_geometry(meshed, tmp_path, form) -> None:
    case = tmp_path / "cases/run"
    shutil.copytree(meshed, case)
    FORMS[form](case)
    asked = FolderOptions(tmp_path / "cases", str(tmp_path / "store"), "geometry")
    reader = replace(READER, region="fluid" if form == "a_region" else "")
    plan = plan_openfoam(asked, reader)
    skipped: list[str] = [each.reason for each in plan.skipped]
    done = import_openfoam(plan, reader, on_skipped=lambda case, why: skipped.append(why))
    assert skipped == []
    found = simgen.open_dataset(done.url)[0]
    assert len(found.time) == 2
    for step in (0, 1):
        np.testing.assert_allclose(found["centre"][step], found.points, atol=1e-6)
        np.testing.assert_allclose(found["volume"][step][:, 0], found.volumes, rtol=1e-6)
        np.testing.assert_allclose(found.boundary["centre"][step], found.boundary.points, atol=1e-6)
    assert (found["volume"][0] > 0).all()
