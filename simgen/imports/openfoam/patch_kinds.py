"""Decide what kind of boundary each patch is: by its type, its name, and what it does to U.

Kinds are what the distance field and the boundary cloud tell apart. Types that are no boundary of
the flow (empty, wedge, cyclic, processor) have none.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from simgen.errors import InputError
from simgen.foam.field import PatchEntry, entries_of, patch_entries
from simgen.foam.mesh_files import PatchRange
from simgen.foam.reader import FoamReader
from simgen.imports.openfoam.finding import has_file

#: In an override: the patch is left out.
NONE = "none"
_NO_BOUNDARY = ("empty", "wedge", "processor", "cyclic", "nonConformal")
_OF_TYPE = {
    "wall": "wall",
    "mappedWall": "wall",
    "symmetry": "symmetry",
    "symmetryPlane": "symmetry",
}
_OF_NAME = {"inlet": "inlet", "inflow": "inlet", "outlet": "outlet", "outflow": "outlet"}
#: By the beginning of the velocity's boundary condition.
_OF_VELOCITY = {
    "freestream": "farfield",
    "inletOutlet": "outlet",
    "pressureInletOutlet": "outlet",
    "zeroGradient": "outlet",
    "advective": "outlet",
    "waveTransmissive": "outlet",
    "noSlip": "wall",
    "slip": "symmetry",
    "fixedValue": "inlet",
    "flowRateInlet": "inlet",
    "surfaceNormalFixedValue": "inlet",
    "uniformFixedValue": "inlet",
    "turbulent": "inlet",
    "codedFixedValue": "inlet",
    "exprFixedValue": "inlet",
    "timeVaryingMapped": "inlet",
}
_UNIFORM = re.compile(rb"\s*+uniform\s*+\(([^()]*+)\)")
OPEN = "open"
"""A patch of which nothing tells more"""


def parse_overrides(texts: Sequence[str]) -> dict[str, str]:
    """Parse `PATCH=KIND`, where PATCH may hold * and ?; InputError shows the form."""
    overrides = {}
    for text in texts:
        patch, _, kind = (part.strip() for part in text.partition("="))
        if not patch or not kind:
            raise InputError(
                f"'{text}' is no PATCH=KIND; expected such as blade*=blade, or top={NONE} to leave"
                " a patch out"
            )
        overrides[patch] = kind
    return overrides


def parse_patch_values(texts: Sequence[str]) -> frozenset[str]:
    """Parse `CONDITION=cell`; InputError shows the form."""
    found = set()
    for text in texts:
        condition, _, value = (part.strip() for part in text.partition("="))
        if not condition or value != "cell":
            raise InputError(
                f"'{text}' is no CONDITION=cell; expected such as groovyBC=cell, for the values of"
                " the cells behind patches whose condition groovyBC writes none"
            )
        found.add(condition)
    return frozenset(found)


def patch_kind(
    patch: str, type_: str, velocity: Mapping[str, str], overrides: Mapping[str, str]
) -> str | None:
    """Return a patch's kind; None for one that is no boundary.

    `velocity` holds the type of U's boundary condition on each patch, where it is known.
    """
    for pattern, kind in overrides.items():
        if fnmatch.fnmatchcase(patch, pattern):
            return None if kind == NONE else kind
    if type_.startswith(_NO_BOUNDARY):
        return None
    if type_ in _OF_TYPE:
        return _OF_TYPE[type_]
    for word, kind in _OF_NAME.items():
        if word in patch.lower():
            return kind
    condition = velocity.get(patch, "")
    for beginning, kind in _OF_VELOCITY.items():
        if condition.startswith(beginning):
            return kind
    return OPEN


def boundary_conditions(path: Path, patches: Mapping[str, PatchRange]) -> dict[str, str]:
    """Return the type of each patch's condition in a field's file; empty where there is none.

    A fixed velocity of zero is `noSlip`, which older cases have no word for.
    """
    if not has_file(path):
        return {}  # a case without U has no velocity that tells more
    reader = FoamReader(path)
    entries: list[PatchEntry] = []
    for key in reader.names():
        if key == "boundaryField":
            entries = patch_entries(reader)
        else:
            reader.skip_entry()
    return {
        name: "noSlip"
        if entry.condition == "fixedValue" and _is_zero(reader.data, entry.at.get("value"))
        else entry.condition
        for name, entry in entries_of(patches, entries).items()
    }


def _is_zero(data: bytes, at: int | None) -> bool:
    found = _UNIFORM.match(data, at) if at is not None else None
    try:
        return found is not None and not any(float(each) for each in found[1].split())
    except ValueError:  # a macro, which may be anything
        return False
