"""The case families by name; a fourth is one more module here with its dictionaries beside it."""

from __future__ import annotations

from simgen.case import CaseFamily
from simgen.cases.branched_pipe import BranchedPipe
from simgen.cases.centrifugal_pump import CentrifugalPump
from simgen.cases.cylinder import CylinderFlow
from simgen.errors import InputError

FAMILIES: dict[str, CaseFamily] = {
    family.name: family for family in (CylinderFlow(), BranchedPipe(), CentrifugalPump())
}


def get_family(name: str) -> CaseFamily:
    """The family called `name`; InputError lists the known ones."""
    if name not in FAMILIES:
        raise InputError(f"family '{name}' is unknown; choose one of {', '.join(FAMILIES)}")
    return FAMILIES[name]
