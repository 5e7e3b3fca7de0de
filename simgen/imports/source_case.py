"""Hold one case of a source, and check what belongs on its record."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simgen.case import Gate
from simgen.cell_mesh import CellMesh
from simgen.design_space import DesignSpace
from simgen.errors import InputError
from simgen.imports.told import as_utf8, shown, told
from simgen.store.schema import Schema
from simgen.store.split import SPLITS

MOST_LETTERS = 64
CASE_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MOST_LETTERS - 1}}}")


@dataclass(frozen=True)
class SourceBoundary:
    """The B faces of a case's boundary."""

    points: Any
    """(B, d) m"""
    normals: Any
    """(B, d), unit vectors out of the domain"""
    areas: Any
    """(B,) m2"""
    patch: Any
    """(B,) names of patch kinds, or their numbers in the schema's order"""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Like those of the case, at the faces"""


@dataclass(frozen=True)
class SourceCase:
    """One case as its source has it: N points in d dimensions, T snapshots, C components."""

    name: str
    """Its id in the dataset: letters, digits, '.', '_' and '-'"""
    points: Any
    """(N, d), or (N, 3) with zeros behind"""
    fields: Mapping[str, Any]
    """By name: (N, C), or (N,) for one component; on a grid (*grid, C) or (*grid,); transient with
    T in front
    """
    time: Any = None
    """(T,) s, increasing; None for a steady case"""
    parameters: Mapping[str, float] = field(default_factory=dict)
    split: str | None = None
    """train, validation or test, if the schema's splits are published"""
    grid_shape: Sequence[int] | None = None
    """The shape, if the points are a regular grid of this case's own"""
    volumes: Any = None
    """(N,) m3"""
    distance: Any = None
    """(N, K) m"""
    direction: Any = None
    """(N, K, 3)"""
    boundary: SourceBoundary | None = None
    mesh: CellMesh | None = None
    """The cells around the points and the faces of the boundary, for drawing"""
    gates: tuple[Gate, ...] = ()
    """What the case was judged by; a case with a gate that it did not pass is not imported"""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """JSON-ready values for the case's record, such as its solver"""


@dataclass(frozen=True)
class UnreadCase:
    """A case that is read only if the dataset does not hold it already."""

    name: str
    files: str
    """Changes when a file of the case, or what is asked of it, does"""
    read: Callable[[], SourceCase]
    """Raises InputError or CaseError in one line where it cannot be imported"""


def case_name(place: str) -> str:
    """Make the name of a case from its place in a folder: `runs/a 1` is `runs-a-1`."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", place).strip("-._") or "case"
    if len(name) <= MOST_LETTERS:
        return name
    digest = hashlib.blake2b(os.fsencode(place), digest_size=4).hexdigest()
    return f"{name[: MOST_LETTERS - len(digest) - 1]}-{digest}"


def grid_points(*axes: Any) -> np.ndarray:
    """Return (N, d) points of the grid over these coordinates, the last axis fastest."""
    coordinates = np.meshgrid(*(np.asarray(axis) for axis in axes), indexing="ij")
    return np.stack([values.ravel() for values in coordinates], axis=-1)


def check_name(case: SourceCase) -> str:
    """Return the case's name; raise InputError for one that cannot name a folder."""
    if not isinstance(case, SourceCase):
        raise InputError(f"import: a {type(case).__name__} is no SourceCase")
    if not isinstance(case.name, str) or not CASE_NAME.fullmatch(case.name):
        raise InputError(
            f"import: case {shown(case.name)} needs a name of letters, digits, '.', '_' and"
            " '-', 64 at most"
        )
    return case.name


def check_split(case: SourceCase, schema: Schema) -> str | None:
    """Return the split that the source put the case in; raise InputError if it is missing."""
    if schema.splits == "drawn":
        if case.split is not None:
            raise InputError(f"case {case.name}: splits are drawn; leave out split")
        return None
    if not isinstance(case.split, str) or case.split not in SPLITS:
        raise InputError(
            f"case {case.name}: split is {shown(case.split)}, expected {', '.join(SPLITS)}"
        )
    return case.split


def check_parameters(case: SourceCase, schema: Schema) -> dict[str, float]:
    """Return the design parameters; InputError unless all are there and in range."""
    try:
        values = {str(name): float(value) for name, value in dict(case.parameters).items()}
        return DesignSpace(schema.parameters).check(values)
    except (InputError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"case {case.name}: {told(error)}") from error


def check_gates(case: SourceCase) -> tuple[Gate, ...]:
    """Return what the case was judged by; InputError for anything but gates."""
    if isinstance(case.gates, tuple) and all(isinstance(gate, Gate) for gate in case.gates):
        return case.gates
    raise InputError(f"case {case.name}: gates must be a tuple of Gate")


def check_provenance(case: SourceCase) -> Mapping[str, Any]:
    """Return the case's own entries for its record; InputError where JSON cannot hold them."""
    try:
        text = as_utf8(json.dumps(dict(case.provenance), allow_nan=False, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"case {case.name}: provenance is no JSON ({told(error)})") from error
    entries: Mapping[str, Any] = json.loads(text)
    return entries
