"""Describe an OpenFOAM case by its files: its solver, its fields, the kinds of its patches.

For cases that this project did not make: imported ones, and templates.
"""

import fnmatch
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from math import nan
from pathlib import Path

import numpy as np

from simgen.case import Field, Role
from simgen.errors import CaseError
from simgen.foam.dictionaries import DictionaryPlace, read_entry
from simgen.foam.field import COMPONENT_NAMES, read_field
from simgen.foam.mesh import PatchRange
from simgen.foam.reader import COMPONENTS, FoamReader


def has_file(path: Path) -> bool:
    """Return whether OpenFOAM would find this file, packed or not."""
    return path.is_file() or path.with_name(f"{path.name}.gz").is_file()


def read_control(directory: Path, region: str = "") -> tuple[str, float | None, bool | None]:
    """Return application, end time and whether the case is steady, from its dictionaries.

    Empty and None where they lack it; CaseError where they are damaged. A region has schemes
    of its own in system/<region>.
    """
    control, own = directory / "system/controlDict", directory / "system" / region / "fvSchemes"
    schemes = own if has_file(own) else directory / "system/fvSchemes"
    application, stop, last = (
        (read_entry(control, [name]) if has_file(control) else None) or ""
        for name in ("application", "stopAt", "endTime")
    )
    try:
        end = float(last) if stop in ("", "endTime") else None
    except ValueError:
        end = None
    of_order = ("ddtSchemes", "d2dt2Schemes") if has_file(schemes) else ()
    found = [text for each in of_order if (text := read_entry(schemes, [each, "default"]))]
    # localEuler steps each cell by a time of its own: its times are iterations. Solvers of static
    # stresses have a steady d2dt2 beside a ddt of the temperature.
    steady = any(text.startswith(("steadyState", "localEuler")) for text in found)
    return application, end, steady if found else None


# Fields: names, units, components

#: OpenFOAM's incompressible p is a pressure over a density, and is called so.
KINEMATIC = {"p": "kinematic_pressure", "p_rgh": "kinematic_pressure_without_gravity"}
NAMES = {
    "U": "velocity",
    "p": "pressure",
    "p_rgh": "pressure_without_gravity",
    "T": "temperature",
    "rho": "density",
    "k": "turbulent_kinetic_energy",
    "epsilon": "dissipation_rate",
    "omega": "specific_dissipation_rate",
    "nut": "turbulent_viscosity",
}
_UNITS: dict[tuple[float, ...], str] = {
    (1, -1, -2, 0, 0, 0, 0): "Pa",
    (1, 1, -2, 0, 0, 0, 0): "N",
    (1, 2, -2, 0, 0, 0, 0): "J",
    (1, 2, -3, 0, 0, 0, 0): "W",
}
_BASE = ("kg", "m", "s", "K", "mol", "A", "cd")
_SYMBOLS: dict[str, Sequence[float]] = {
    **{base: tuple(map(float, np.eye(len(_BASE))[n])) for n, base in enumerate(_BASE)},
    **{name: powers for powers, name in _UNITS.items()},
    # No number of a file with dimensions is in these.
    **dict.fromkeys(("count", "%", "deg", "rpm", "mm", "cm", "degC", "bar", "kPa"), (nan,) * 7),
}
#: Further ones by those before them.
_DERIVED = "rad=1, Hz=1/s, C=A s, V=W/A, ohm=V/A, S=A/V, F=C/V, Wb=V s, T=Wb/m2, H=Wb/A"
#: Entries of a field's file whose numbers have its dimensions, and what others have.
_OF_ITS_FIELD = (
    *("internalField", "value", "uniformValue", "refValue", "inletValue", "outletValue"),
    "freestreamValue",
)
_OF_ENTRIES = {"volumetricFlowRate": "m3/s", "massFlowRate": "kg/s"}


def dimension_of(patches: Mapping[str, PatchRange], points: Callable[[], np.ndarray]) -> int:
    """Return 2 for one layer of cells across z between empty patches, else 3.

    Plane cases across another axis are in 3D. `points` reads the mesh's (P, 3).
    """
    if not any(patch.type == "empty" and patch.size for patch in patches.values()):
        return 3
    places = points()
    z, tolerance = places[:, 2], 1e-6 * float(np.ptp(places, axis=0).max())
    on_sheets = (z <= z.min() + tolerance) | (z >= z.max() - tolerance)
    return 2 if on_sheets.all() and np.ptp(z) > 2 * tolerance else 3


def describe_field(path: Path, called: str, role: Role, dimension: int) -> Field:
    """Describe a field from the head of one of its files; CaseError where that is none.

    Components across a plane case are left out, but for a tensor's zz.
    """
    reader, unit = FoamReader(path), ""
    kind = re.sub("^vol(.)(.*)Field$", lambda of: of[1].lower() + of[2], reader.header["class"])
    number = COMPONENTS.get(kind)
    if number is None:
        raise CaseError(f"{path} is no field of cells (no class vol…Field in its header)")
    for key in reader.names():
        entry = reader.skip_entry()
        if key == "dimensions":
            unit = unit_of(entry.strip(b"[] \t\n;").split())
            break
    openfoam, plain = path.name, re.sub(r"\W+", "_", path.name)
    usual = {**NAMES, **(KINEMATIC if unit == "m2/s2" else {})}
    across = () if number == 1 or dimension == 3 else ("z", "xz", "yz", "zx", "zy")
    names = COMPONENT_NAMES.get(number, (plain,))
    components = tuple(each for each in names if each not in across)
    return Field(called or usual.get(openfoam, plain), unit, components, openfoam, role)


def unit_of(exponents: Sequence[bytes]) -> str:
    """Write dimensions as a unit: [0 1 -1 0 0 0 0] is m/s."""
    try:
        powers = [float(each) for each in exponents]
    except ValueError:
        return ""
    powers += [0.0] * (len(_BASE) - len(powers))
    if known := _UNITS.get(tuple(powers)):
        return known
    factors: tuple[list[str], list[str]] = ([], [])
    for base, power in zip(_BASE, powers, strict=False):
        if power:
            factors[power < 0].append(base if abs(power) == 1 else f"{base}{abs(power):g}")
    above, below = factors
    return "/".join([" ".join(above) or "1", *below])


def check_unit(unit: str, directory: Path, place: DictionaryPlace) -> None:
    """Raise CaseError for a unit that is given, and not known or not that of the number there."""
    if unit in ("", "1"):
        return
    file, name, powers = directory / place.file, place.entries[-1], powers_of(unit)
    found = re.search(r"\[(.*?)\]", read_entry(file, place.entries) or "")
    if found is None and name in _OF_ITS_FIELD:
        found = re.fullmatch(r"\[(.*?)\]", read_entry(file, ["dimensions"]) or "")
    own = unit_of(found[1].encode().split()) if found else _OF_ENTRIES.get(name, "")
    where = f"{file}: {'/'.join(place.entries)}"
    if own and powers != powers_of(own):
        raise CaseError(f"{where} has the unit {own}, not {unit}")
    if powers is None:
        raise CaseError(f"{where}: unit '{unit}' is not known; write one of {', '.join(_SYMBOLS)}")


def powers_of(unit: str) -> list[float] | None:
    """Return the exponents of a unit such as kg/(m s), None of one that is not known."""
    total = [0.0] * len(_BASE)
    for number, part in enumerate(re.sub(r"[()]", " ", unit).split("/")):
        for word in re.split(r"[\s*]+", part):
            found = re.fullmatch(r"([A-Za-z%]+)\^?(-?[\d.]+)?", word)
            if found is None and word in ("", "1", "-"):
                continue
            if found is None or found[1] not in _SYMBOLS:
                return None
            power = float(found[2] or 1) * (-1 if number else 1)
            total = [one + power * of for one, of in zip(total, _SYMBOLS[found[1]], strict=True)]
    return total


for _each in _DERIVED.split(", "):
    _SYMBOLS[_each.partition("=")[0]] = powers_of(_each.partition("=")[2]) or ()


# Kinds of patches: by name, by type, and by the condition of U

_NO_BOUNDARY = ("empty", "wedge", "processor", "cyclic", "nonConformal")
_WALLS = ("wall", "mappedWall")
_OF_NAME = {"inlet": "inlet", "inflow": "inlet", "outlet": "outlet", "outflow": "outlet"}
#: Kinds by the beginning of the velocity's boundary condition.
_OF_VELOCITY = {
    "farfield": ("freestream",),
    "wall": ("noSlip",),
    "symmetry": ("slip",),
    "outlet": (
        *("inletOutlet", "pressureInletOutlet", "zeroGradient", "advective", "waveTransmissive"),
    ),
    "inlet": (
        *("fixedValue", "flowRateInlet", "surfaceNormalFixedValue", "uniformFixedValue"),
        *("turbulent", "codedFixedValue", "exprFixedValue", "timeVaryingMapped"),
    ),
}


def patch_kind(patch: str, type_: str, condition: str, kinds: Mapping[str, str]) -> str | None:
    """Return a patch's kind; None for one that is no boundary, `open` where nothing is known.

    `condition` is that of U there, if it is known; `kinds` has kinds by patterns of names.
    """
    for pattern, kind in kinds.items():
        if fnmatch.fnmatchcase(patch, pattern):
            return None if kind == "none" else kind
    if type_.startswith(_NO_BOUNDARY):
        return None
    if type_ in _WALLS or type_.startswith("symmetry"):
        return "wall" if type_ in _WALLS else "symmetry"
    by_name = (kind for word, kind in _OF_NAME.items() if word in patch.lower())
    by_velocity = (kind for kind, words in _OF_VELOCITY.items() if condition.startswith(words))
    return next(itertools.chain(by_name, by_velocity), "open")


def velocity_conditions(path: Path, patches: Mapping[str, PatchRange]) -> dict[str, str]:
    """Return the condition of each patch in a file of U; empty where there is no such file.

    A fixed velocity of zero is `noSlip`, which older cases have no word for.
    """
    if not has_file(path):
        return {}
    velocity = read_field(path, patches)
    found = dict(velocity.patches)
    for name, value in velocity.boundary.items():
        if found[name] == "fixedValue" and value.ndim == 1 and not value.any():
            found[name] = "noSlip"
    return found
