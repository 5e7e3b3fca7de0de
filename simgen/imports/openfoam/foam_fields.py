"""Say what a field of OpenFOAM is called in a dataset, in which unit, with which components."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from simgen.case import Field, Role
from simgen.errors import CaseError, InputError
from simgen.foam.field import COMPONENT_NAMES
from simgen.foam.reader import COMPONENTS
from simgen.imports.openfoam.finding import read_head

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
_UNITS: dict[tuple[int, ...], str] = {
    (1, -1, -2, 0, 0, 0, 0): "Pa",
    (1, 1, -2, 0, 0, 0, 0): "N",
    (1, 2, -2, 0, 0, 0, 0): "J",
    (1, 2, -3, 0, 0, 0, 0): "W",
}
_BASE = ("kg", "m", "s", "K", "mol", "A", "cd")
_CLASS = re.compile(rb"class\s+vol(\w+)Field\s*;")
_DIMENSIONS = re.compile(rb"dimensions\s*\[([^\]]*)\]\s*;")


@dataclass(frozen=True)
class AskedField:
    """A field to import: OpenFOAM's name, and the dataset's, if one is asked for."""

    openfoam: str
    name: str = ""
    role: Role = "solved"

    @classmethod
    def parse(cls, text: str, role: Role = "solved") -> AskedField:
        """Parse `U`, or `U=velocity`."""
        openfoam, _, name = (part.strip() for part in text.partition("="))
        if not openfoam or "/" in openfoam:
            raise InputError(f"'{text}' is no field; expected U or U=NAME")
        return cls(openfoam, name, role)


def field_of(path: Path, asked: AskedField, dimension: int) -> Field:
    """Describe the field from the head of one of its files; CaseError where that is none."""
    head = read_head(path)
    found, measured = _CLASS.search(head), _DIMENSIONS.search(head)
    kind = found[1].decode() if found else ""
    number = COMPONENTS.get(kind[:1].lower() + kind[1:])
    if number is None:
        raise CaseError(f"{path} is no field of cells (no class vol…Field in its header)")
    unit = _unit(measured[1].split()) if measured else ""
    name = asked.name or _name(asked.openfoam, unit)
    components = _components(asked.openfoam, number, dimension)
    return Field(name, unit, components, asked.openfoam, asked.role)


def _name(openfoam: str, unit: str) -> str:
    if unit == "m2/s2" and openfoam in KINEMATIC:
        return KINEMATIC[openfoam]
    return NAMES.get(openfoam, re.sub(r"\W+", "_", openfoam))


def _components(name: str, number: int, dimension: int) -> tuple[str, ...]:
    """Leave out the vector's component across a plane case."""
    if number == 1:
        return (re.sub(r"\W+", "_", name),)
    return COMPONENT_NAMES[3][:dimension] if number == 3 else COMPONENT_NAMES[number]


def _unit(exponents: list[bytes]) -> str:
    """Write dimensions as a unit: [0 1 -1 0 0 0 0] is m/s."""
    try:
        powers = [float(each) for each in exponents]
    except ValueError:
        return ""
    powers += [0.0] * (len(_BASE) - len(powers))
    if (known := _UNITS.get(tuple(int(each) for each in powers))) and all(
        each.is_integer() for each in powers
    ):
        return known
    pairs = list(zip(_BASE, powers, strict=False))
    above = " ".join(_power(base, power) for base, power in pairs if power > 0)
    below = "/".join(_power(base, -power) for base, power in pairs if power < 0)
    if not above and not below:
        return "1"
    return f"{above or '1'}/{below}" if below else above


def _power(base: str, power: float) -> str:
    return base if power == 1 else f"{base}{power:g}"
