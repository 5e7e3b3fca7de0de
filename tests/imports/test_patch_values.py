"""Values on patches are those that OpenFOAM has there, whatever their conditions write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

import simgen
from bench import foam_fuzz
from simgen.errors import CaseError, InputError
from simgen.foam.field import COMPUTED, patch_entries
from simgen.foam.reader import FoamReader
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
    imported_values,
)

pytestmark = pytest.mark.openfoam

SKEW = np.array([[1.0, 0.3, 0.1], [0.2, 0.9, 0.2], [-0.1, 0.1, 1.1]])
NAMES = {"T": "T", "U": "U", "R": "R", "G": "G"}


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


#: Entries, and the value that each of left, right and bottom has by them. The other sides: 9.
MATCHED: dict[str, tuple[list[Entry | str], tuple[float, float, float]]] = {
    "alternatives": ([fixed('"(left|right)"', 350), fixed("bottom", 1)], (350, 350, 1)),
    "the last pattern": ([fixed('"(left|right)"', 1), fixed('".*t"', 2)], (2, 2, 9)),
    "a name before patterns": ([fixed("left", 1), fixed('"l.*"', 2)], (1, 9, 9)),
    "a group": ([fixed("ends", 5)], (5, 5, 9)),
    "a name before groups": ([fixed("left", 1), fixed("ends", 5)], (1, 5, 9)),
    "the last group": ([fixed("ends", 5), fixed("sides", 6)], (5, 6, 6)),
    "walls are a group": ([fixed("wall", 7)], (9, 9, 7)),
    "a name in quotes before other patterns": ([fixed('"left"', 1), fixed('"l.*"', 2)], (1, 9, 9)),
    "one entry in two places": (
        [fixed("left", 1), fixed("right", 2), Entry("left", "fixedValue", text="value uniform 3;")],
        (3, 2, 9),
    ),
    "types of patches from OpenFOAM's own file": (
        ['#includeEtc "caseDicts/setConstraintTypes"', fixed("ends", 5)],
        (5, 5, 9),
    ),
}


@pytest.mark.parametrize(("entries", "expected"), MATCHED.values(), ids=MATCHED)
def test_entries_of_groups_and_patterns_are_those_that_openfoam_finds(
    tmp_path, entries, expected
) -> None:
    types = dict.fromkeys(SIDES, "patch") | {"bottom": "wall", "front": "empty", "back": "empty"}
    groups = {"left": ("ends", "top"), "right": ("ends", "sides"), "bottom": ("sides", "right")}
    mesh = block({side: side for side in SIDES}, types, shape=(2, 2, 1), groups=groups)
    before = [fixed('".*"', 9)]
    text = FieldText("scalar", one(-1), [*before, *entries])
    found = check(tmp_path, PatchCase(mesh, {"1": {"T": text}}, steady=True))
    for side, number in zip(("left", "right", "bottom"), expected, strict=True):
        np.testing.assert_array_equal(found[side], number)
    np.testing.assert_array_equal(found["top"], 9)


def scalar_case(directory: Path, *entries: Entry | str) -> Path:
    """A cube whose sides are called like SIDES; those without an entry are as in their cell: -1."""
    mesh = block({s: s for s in SIDES}, dict.fromkeys(SIDES, "patch"), shape=(2, 2, 2))
    text = FieldText("scalar", one(-1), entries)
    return PatchCase(mesh, {"1": {"T": text}}, steady=True).write(directory / "cases/run").parent


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (Entry("left", "groovyBC"), "patch left has no value, and groovyBC .* groovyBC=cell"),
        (Entry("left", "fixedValue"), "patch left has no value, and fixedValue"),
        (Entry("left", "inletOutlet", {"inletValue": one(1)}), "and inletOutlet does not say"),
        (Entry("left", "fixedGradient"), "and fixedGradient does not say"),
        (Entry("left", "partialSlip", {"refValue": one(1)}), "and partialSlip does not say"),
        (
            Entry("left", "fixedGradient", {"gradient": one(1, 2, 3)}),
            "has 3 components, expected 1",
        ),
        (Entry("left", "fixedValue", {"value": one(1)}, '#include "inlet"\n'), "another place"),
        ('#include "patches"', "the boundaryField refers"),
        ('"(" { type zeroGradient; }', "the pattern"),
    ],
)
def test_a_value_that_is_not_known_is_one_line(tmp_path, entry, problem) -> None:
    folder = scalar_case(tmp_path, Entry('".*"', "zeroGradient"), entry)
    with pytest.raises((CaseError, InputError), match=problem):
        imported_values(folder, {"T": "T"})


def test_conditions_of_the_families_have_values() -> None:
    """Their fields have been stored before: what they write is what counts."""
    fields = sorted(Path(simgen.__file__).parent.glob("cases/*/dictionaries/0/*"))
    assert fields
    for path in fields:
        reader = FoamReader(path)
        for key in reader.names():
            if key != "boundaryField":
                reader.skip_entry()
                continue
            for entry in patch_entries(reader):
                is_written = "value" in entry.at and entry.condition not in COMPUTED
                known = ("zeroGradient", "empty")
                assert is_written or entry.condition in known, f"{path}: {entry.name}"


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


def test_a_pattern_that_takes_other_engines_years_is_matched_at_once(tmp_path) -> None:
    entries = (fixed('".*"', 9), fixed('"(a|b|le|f|t|(l|e|f)*)*x"', 1))
    _, rows = imported_values(scalar_case(tmp_path, *entries), {"T": "T"})
    assert len(rows) == len(SIDES)


def test_drawn_cases_have_the_values_of_openfoam() -> None:
    outcomes = foam_fuzz.run(range(16), seed=1)
    assert [each for each in outcomes if not each.is_good] == []
    assert sum(each.verdict == "equal" for each in outcomes) > 4
