"""Draw solved OpenFOAM cases, import each, and compare its values with OpenFOAM's.

python -m bench.foam_fuzz --cases 500 --seed 1

A case has a skewed mesh, patches of any name, type and groups, fields of any kind with conditions
of every sort in entries by name, group and pattern, any form of file, serial or in parts, and times
in any notation. foamToVTK reads a text copy of it. A value that is another than OpenFOAM's is a
silent difference; an error where OpenFOAM has a value is a loss. Both make the program end with 1.
A case is made of its seed and number alone: `--only 123` repeats one and keeps its files.
"""

import argparse
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from rich.console import Console
from rich.progress import track

from simgen.errors import SimgenError
from simgen.imports.importing import SourceCase
from tests.imports.foam_cases import (
    SIDES,
    WIDTH,
    Entry,
    FieldText,
    FoamMesh,
    Form,
    PatchCase,
    Values,
    block,
    cell_places,
    face_places,
    foam_to_vtk,
    imported_values,
)

Verdict = Literal["equal", "without a value", "unjudged", "loss", "silent difference", "crash"]
GOOD: tuple[Verdict, ...] = ("equal", "without a value", "unjudged")

NAMES = (
    *("inlet", "outlet", "walls", "wall-1", "fan.1"),
    *("frt:001%1", "lid", "Inlet2", "air_out", "a"),
)
GROUPS = ("ends", "sides", "heated", "walls")
KEPT = {2: [0, 1], 4: [0, 1, 3, 5], 5: [0, 1, 3, 4, 8]}
"""Of a plane case the columns of vectors, symmetric tensors and tensors, by how many there are"""
KINDS = {"T": "scalar", "U": "vector", "R": "symmTensor", "G": "tensor"}
TIMES = tuple(
    tuple(times.split())
    for times in (
        "0.1 0.2 0.30",
        "1 2 10",
        "1e-05 2e-05 0.0001",
        "0.5 1 1.5",
        "100",
        "1e2 2.5e+02 1000.",
    )
)
#: Conditions, with what their entries hold beside `value`: v is of the field's kind, s a scalar.
CONDITIONS: Mapping[str, Mapping[str, str]] = {
    "fixedValue": {"value": "v"},
    "zeroGradient": {},
    "extrapolatedCalculated": {},
    "fixedGradient": {"gradient": "v"},
    "calculated": {"value": "v"},
    "inletOutlet": {"inletValue": "v", "value": "v"},
    "freestream": {"freestreamValue": "v", "value": "v"},
    "slip": {},
    "partialSlip": {"valueFraction": "s", "refValue": "v"},
    "madeByOthers": {"gradient": "v", "refValue": "v", "value": "v"},
}
OF_KIND: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "scalar": {"fixedFluxPressure": {"gradient": "v", "value": "v"}},
    "vector": {
        "noSlip": {},
        "fixedNormalSlip": {"fixedValue": "v"},
        "surfaceNormalFixedValue": {"refValue": "s"},
        "movingWallVelocity": {"value": "v"},
    },
}
#: Makes a condition's value one of the time.
RAMP = "ramp constant 1;"
#: What entries hold that does not change their value.
BESIDES = (
    "phi phi;",
    "table ((0 1) (1 2));",
    'libs ("libOther.so");',
    "code #{ value = 3; } // #}; name mine;",
    "coeffs { value uniform 7; deep { type noSlip; } }",
    "// value uniform 8;",
    "/* type noSlip; */ kind 1;",
    'expression "value uniform 9; }";',
)


@dataclass(frozen=True)
class Drawn:
    """A case, how its files are written, and which of its times are asked for."""

    case: PatchCase
    form: Form
    parts: int
    after: float
    every: int

    @property
    def times(self) -> list[str]:
        """The times that an import has, in order: all but that of the start."""
        times = sorted((time for time in self.case.fields if float(time) > 0), key=float)
        if self.case.steady:
            return times[-1:]
        return [time for time in times if float(time) >= self.after][:: self.every]

    def plain(self) -> PatchCase:
        """Return the case without what its entries hold besides."""
        fields = {
            time: {
                name: replace(
                    text,
                    entries=[
                        each
                        if isinstance(each, str)
                        else replace(each, text=RAMP * (RAMP in each.text))
                        for each in text.entries
                    ],
                )
                for name, text in of.items()
            }
            for time, of in self.case.fields.items()
        }
        return replace(self.case, fields=fields)


@dataclass(frozen=True)
class Outcome:
    """What came of a case."""

    number: int
    verdict: Verdict
    detail: str = ""

    @property
    def is_good(self) -> bool:
        return self.verdict in GOOD


def draw(seed: int, number: int) -> Drawn:
    """Draw a case."""
    random = np.random.default_rng([seed, number])
    form = Form(
        binary=bool(random.random() < 0.6),
        packed=bool(random.random() < 0.2),
        order=str(random.choice(["<", "<", ">"])),
        label=int(random.choice([32, 64])),
        scalar=int(random.choice([32, 64, 64])),
    )
    mesh = _mesh(random)
    mesh = replace(mesh, points=form.rounded(mesh.points))
    times: Sequence[str] = TIMES[int(random.integers(len(TIMES)))]
    times = times[: int(random.integers(1, len(times) + 1))]
    if random.random() < 0.5:
        times = ("0", *times)
    names = [name for name in KINDS if name in ("T", "U") or random.random() < 0.3]
    fields = {time: {name: _field(random, KINDS[name], mesh) for name in names} for time in times}
    return Drawn(
        PatchCase(mesh, fields, steady=bool(random.random() < 0.4)),
        form,
        parts=int(random.choice([1, 1, 2])) if mesh.num_cells > 1 else 1,
        after=float(random.choice([0.0, float(times[-1]) / 2])),
        every=int(random.choice([1, 1, 2])),
    )


def _mesh(random: np.random.Generator) -> FoamMesh:
    is_plane = random.random() < 0.4
    shape = [int(each) for each in random.integers(1, 4, 3)]
    shear = np.eye(3) + random.uniform(-0.3, 0.3, (3, 3))
    if is_plane:
        shape[2] = 1
        shear[2, :2] = shear[:2, 2] = 0
    names = [str(each) for each in random.permutation(NAMES)]
    patch_of = {side: names[random.integers(5)] for side in SIDES}
    if is_plane:
        patch_of |= {"front": "frontAndBack", "back": "frontAndBack"}
    sides = Counter(patch_of.values())
    types = {}
    for patch in dict.fromkeys(patch_of.values()):
        kinds = ["patch", "patch", "wall", "symmetry"] + ["symmetryPlane"] * (sides[patch] == 1)
        types[patch] = "empty" if patch == "frontAndBack" else str(random.choice(kinds))
    types = {patch: types[patch] for patch in random.permutation(list(types)).tolist()}
    groups = {
        patch: tuple(each for each in GROUPS if random.random() < 0.3)
        for patch, type_ in types.items()
        if type_ in ("patch", "wall") and random.random() < 0.7
    }
    seed = int(random.integers(2**31))
    return block(patch_of, types, shape=shape, jitter=0.25, shear=shear, groups=groups, seed=seed)


def _field(random: np.random.Generator, kind: str, mesh: FoamMesh) -> FieldText:
    """Draw a field, whose entries are those of some patches, of groups and of patterns."""
    width = WIDTH[kind]
    scale = 10.0 ** random.integers(-3, 6)
    free = [patch for patch, type_ in mesh.patches.items() if type_ in ("patch", "wall")]
    entries: list[Entry | str] = []
    for patch, type_ in mesh.patches.items():
        if type_ in ("empty", "symmetry", "symmetryPlane"):
            if type_ != "empty" or random.random() < 0.5:
                entries.append(Entry(patch, type_))
        elif random.random() < 0.6:
            entries.append(_entry(random, patch, kind, scale, is_patch=True))
    entries += [
        _entry(random, key, kind, scale, is_patch=False)
        for key in (*_patterns(random, free), *GROUPS)
        if random.random() < 0.4 and key not in mesh.patches
    ]
    if random.random() < 0.9:
        entries.append(_entry(random, '".*"', kind, scale, is_patch=False))
    entries = [entries[at] for at in random.permutation(len(entries))]
    if random.random() < 0.1:
        entries.insert(int(random.integers(len(entries) + 1)), _CONSTRAINT_TYPES)
    if random.random() < 0.03:
        entries = []
    return FieldText(kind, _values(random, width, scale, is_list=random.random() < 0.9), entries)


_CONSTRAINT_TYPES = '#includeEtc "caseDicts/setConstraintTypes"'


def _patterns(random: np.random.Generator, patches: Sequence[str]) -> list[str]:
    """Return patterns that some of the patches match, and some that none does."""
    if not patches:
        return []
    one, other = (str(each).replace(".", "\\.") for each in random.choice(list(patches), 2))
    of_patches = [f"({one}|{other})", f"{one[:2]}.*", f".*{other[-1]}", one]
    fixed = ["[a-m].*", "(in|out)let[0-9]?", "wall.+", "nothing.*"]
    return [f'"{pattern}"' for pattern in (*of_patches, *fixed)]


def _entry(
    random: np.random.Generator, key: str, kind: str, scale: float, *, is_patch: bool
) -> Entry:
    known = {**CONDITIONS, **OF_KIND.get(kind, {})}
    condition = str(random.choice(list(known)))
    held = dict(known[condition])
    if random.random() < 0.05:  # the value, or what it follows from, is not there
        gone = "value" if "value" in held else next(iter(held), "")
        held.pop(gone, None)
    if random.random() < 0.15:  # and a value that does not count, or does
        held |= {"value": "v"}
    values = {
        name: _values(
            random,
            WIDTH[kind] if what == "v" else 1,
            scale if what == "v" else 1.0,
            is_list=is_patch and random.random() < 0.6,
        )
        for name, what in held.items()
    }
    besides = [each for each in BESIDES if random.random() < 0.1]
    if condition == "surfaceNormalFixedValue" and random.random() < 0.1:
        besides.append(RAMP)
    return Entry(key, condition, values, "\n        ".join([*besides, ""]))


def _values(random: np.random.Generator, width: int, scale: float, *, is_list: bool) -> Values:
    constant = scale * random.normal(size=width)
    if not is_list:
        return Values(constant)
    if random.random() < 0.1:
        return Values(constant, compact=True)
    return Values(constant, scale * random.normal(size=(width, 3)))


def try_case(seed: int, number: int, folder: Path) -> Outcome:
    """Write a case as it was drawn and as plain text, import it, and compare with OpenFOAM."""
    drawn = draw(seed, number)
    # The same numbers as text, in one part, without what changes nothing.
    plain = drawn.plain().write(folder / "plain/run", Form(scalar=drawn.form.scalar))
    written = drawn.case.write(folder / "cases/run", drawn.form, drawn.parts)
    (written / "0.orig").mkdir()
    (written / "postProcessing/1").mkdir(parents=True)
    try:
        theirs = foam_to_vtk(plain, drawn.times[-1])
    except AssertionError:  # a condition without what it needs
        theirs = {}
    names = {name: name for name in drawn.case.fields[drawn.times[0]]}
    try:
        more = {"after": drawn.after, "every": drawn.every}
        source, rows = imported_values(written.parent, names, **more)
    except SimgenError as error:
        # Only values that follow from the cells are computed; another time may lack an entry.
        is_known = theirs and not re.search("has no (value|entry)", str(error))
        verdict: Verdict = "loss" if is_known else "without a value"
        return Outcome(number, verdict, str(error))
    except Exception as error:
        return Outcome(number, "crash", repr(error))
    if not theirs:
        return Outcome(number, "unjudged")
    differences = _differences(drawn, source, rows, theirs)
    found = next(differences, "")
    return Outcome(number, "silent difference" if found else "equal", found)


def _differences(
    drawn: Drawn,
    source: SourceCase,
    rows: Mapping[str, np.ndarray],
    theirs: Mapping[str, Mapping[str, np.ndarray]],
) -> Iterator[str]:
    """Yield what differs from the numbers that were drawn, and from OpenFOAM's at the last time."""
    mesh, faces = drawn.case.mesh, source.boundary
    assert faces is not None
    flat = np.array([1, 1, 0 if "empty" in mesh.patches.values() else 1])
    times = None if drawn.case.steady else [float(time) for time in drawn.times]
    if times != (None if source.time is None else list(source.time)):
        yield f"times {source.time}, expected {times}"
        return
    if set(rows) != {patch for patch, type_ in mesh.patches.items() if type_ != "empty"}:
        yield f"the patches {sorted(rows)}"
        return
    for name, text in drawn.case.fields[drawn.times[-1]].items():
        pick = () if source.time is None else (-1,)
        found = source.fields[name][pick].reshape(len(source.points), -1)
        inside = drawn.form.rounded(text.internal.at(cell_places(mesh)))
        if drawn.parts == 1:
            yield from _compared(f"{name} in the cells", found, inside, 1e-7)
        on_faces = faces.fields[name][pick].reshape(len(faces.points), -1)
        for patch, of_patch in rows.items():
            order = np.arange(len(of_patch))
            if drawn.parts > 1:
                order = _nearest(faces.points[of_patch], face_places(mesh, patch) * flat)
            values = theirs[patch][name][order]
            yield from _compared(f"{name} on {patch}", on_faces[of_patch], values, 1e-4)


def _nearest(points: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Return which of their points each of ours is next to."""
    return np.linalg.norm(points[:, None] - theirs[None], axis=2).argmin(axis=1)


def _compared(
    what: str, found: np.ndarray, expected: np.ndarray, tolerance: float
) -> Iterator[str]:
    """Yield a line where values differ; OpenFOAM writes them in single precision."""
    expected = expected[:, KEPT.get(found.shape[1], slice(None))]
    size = float(np.abs(expected).max(initial=1e-30))
    if not np.allclose(found, expected, rtol=1e-5, atol=tolerance * size):
        row = int(np.abs(found - expected).max(axis=1).argmax())
        yield f"{what}: {found[row].tolist()}, expected {expected[row].tolist()}"


def run(cases: Sequence[int], seed: int, keep: Path | None = None) -> list[Outcome]:
    """Try the cases of these numbers."""
    outcomes = []
    for number in cases:
        folder = keep or Path(tempfile.mkdtemp(prefix="foam-fuzz-"))
        try:
            outcomes.append(try_case(seed, number, folder))
        finally:
            if keep is None:
                shutil.rmtree(folder)
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else "")
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="repeat one case, and keep its files")
    asked = parser.parse_args()
    console = Console()
    if asked.only is not None:
        keep = Path(tempfile.mkdtemp(prefix=f"foam-fuzz-{asked.only}-"))
        (outcome,) = run([asked.only], asked.seed, keep)
        console.print(f"{keep}: {outcome}", markup=False)
        sys.exit(not outcome.is_good)
    outcomes = []
    for number in track(range(asked.cases), "cases", console=Console(stderr=True)):
        outcomes += run([number], asked.seed)
    for outcome in outcomes:
        if not outcome.is_good:
            console.print(str(outcome), markup=False, soft_wrap=True)
    verdicts = Counter(outcome.verdict for outcome in outcomes)
    console.print(f"{asked.cases} cases: {dict(verdicts)}")
    sys.exit(not all(outcome.is_good for outcome in outcomes))


if __name__ == "__main__":
    main()
