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


def boundary_conditions(path: Path) -> dict[str, str]:
    """Return the type of each patch's condition in a field's file; empty where there is none.

    A fixed velocity of zero is `noSlip`, which older cases have no word for.
    """
    if not has_file(path):
        return {}  # a case without U has no velocity that tells more
    reader = FoamReader(path)
    conditions: dict[str, str] = {}
    at_rest: set[str] = set()
    for key in reader.names():
        if key != "boundaryField":
            reader.skip_entry()
            continue
        reader.expect(b"{")
        for patch in reader.names(b"}"):
            reader.expect(b"{")
            for entry in reader.names(b"}"):
                value = reader.skip_entry()
                if entry == "type":
                    conditions[patch] = value.rstrip(b";").decode(errors="replace").strip()
                elif entry == "value" and _is_zero(value):
                    at_rest.add(patch)
    return {
        patch: "noSlip" if patch in at_rest and condition == "fixedValue" else condition
        for patch, condition in conditions.items()
    }


def _is_zero(value: bytes) -> bool:
    found = _UNIFORM.match(value)
    try:
        return found is not None and not any(float(each) for each in found[1].split())
    except ValueError:  # a macro, which may be anything
        return False
