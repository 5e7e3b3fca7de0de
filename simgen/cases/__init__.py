"""List the case families by name; a new family is one more folder here, with its dictionaries."""

from __future__ import annotations

from simgen.case import CaseFamily
from simgen.cases.branched_pipe.family import BranchedPipe
from simgen.cases.centrifugal_pump.family import CentrifugalPump
from simgen.cases.cylinder.family import CylinderFlow
from simgen.errors import InputError

FAMILIES: dict[str, CaseFamily] = {
    family.name: family for family in (CylinderFlow(), BranchedPipe(), CentrifugalPump())
}


def get_family(name: str) -> CaseFamily:
    """Return the family called `name`; InputError lists the known ones."""
    if name not in FAMILIES:
        raise InputError(f"family '{name}' is unknown; choose one of {', '.join(FAMILIES)}")
    return FAMILIES[name]
