"""What is known of a steady case before it is solved: geometry, boundary conditions, design parameters.

The model's inputs are made from a `KnownCase` and nothing else, and a `KnownCase` holds no solved value: of a stored case's boundary
fields it keeps the faces on which the field is a boundary condition, and zero on all others. Two things would leak the answer otherwise:
a face without a condition of its own (zero gradient, no slip in OpenFOAM's files) carries its cell's solved value, and so
does an outlet's velocity.

The paper does not say what the features of the boundary cloud hold; its parameter counts leave room for one number per modelled
channel. Here they are that channel's prescribed value: the inlet's velocity profile, the surface speed of rotating walls, zero
elsewhere, standardised as the field is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial import cKDTree

from courant.data.geometry import DistanceField
from courant.data.normalisation import Channel, Normaliser
from courant.experiment import SteadyData
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.reader import StoredCase


@dataclass(frozen=True)
class BoundaryConditions:
    """The boundary's B faces with what is prescribed on them, in physical units."""

    points: np.ndarray
    """(B, 3) m, face centres"""
    values: np.ndarray
    """(B, C), the modelled channels; zero where nothing is prescribed"""


@dataclass(frozen=True)
class KnownCase:
    """All that a steady prediction starts from, in physical units; N cells or other query points, K patch kinds."""

    points: np.ndarray
    """(N, 3) m"""
    distance: DistanceField
    boundary: BoundaryConditions
    parameters: Mapping[str, float]


@dataclass(frozen=True)
class SteadyInputs:
    """What the model takes for one case, normalised, float32; N encoder points, M queries."""

    points: np.ndarray
    """(N, 3)"""
    features: np.ndarray
    """(N, C), with the mesh in the encoder (N, C + D)"""
    query_points: np.ndarray
    """(M, 3)"""
    query_features: np.ndarray
    """(M, D)"""
    parameters: np.ndarray
    """(P,)"""


def read_known(case: StoredCase, normaliser: Normaliser, config: SteadyData) -> KnownCase:
    """The known part of a stored case; its solved fields are not read, its boundary fields where they are prescribed."""
    boundary = case.boundary
    names = {channel.field for channel in normaliser.channels} & set(config.prescribed)
    fields = {name: np.asarray(boundary[name][:]) for name in names}
    conditions = keep_prescribed(boundary.points, boundary.patch, fields, normaliser, config)
    return KnownCase(case.points, (case.distance, case.direction), conditions, case.parameters)


def keep_prescribed(
    points: np.ndarray,
    patch: np.ndarray,
    fields: Mapping[str, np.ndarray],
    normaliser: Normaliser,
    config: SteadyData,
) -> BoundaryConditions:
    """Of the faces' `fields` (B, components) the prescribed values; `patch` (B,) numbers the family's patch kinds."""
    values = np.zeros((len(points), len(normaliser.channels)))
    for number, channel in enumerate(normaliser.channels):
        kinds = [normaliser.patch_kinds.index(kind) for kind in config.prescribed.get(channel.field, ())]
        given = np.isin(patch, kinds)
        if given.any():
            values[given, number] = fields[channel.field][given, channel.column]
    return BoundaryConditions(points, values)


def prepare_inputs(known: KnownCase, normaliser: Normaliser, config: SteadyData) -> SteadyInputs:
    """Normalised inputs: the boundary cloud in the encoder, or the points themselves with their distance field.

    A point of the mesh carries what is prescribed at its nearest boundary face: the condition that acts on it most directly.
    """
    points, boundary = normaliser.points(known.points), known.boundary
    distance = normaliser.distance(*known.distance)
    conditions = normaliser.standardise(boundary.values)
    if config.encoder == "boundary":
        cloud, features = normaliser.points(boundary.points), conditions
    else:
        nearest = cKDTree(boundary.points).query(known.points)[1]
        cloud, features = points, np.concatenate([conditions[nearest], distance], axis=1)
    return SteadyInputs(cloud, features, points, distance, normaliser.design(known.parameters))


def check_prescribed(
    prescribed: Mapping[str, Sequence[str]], channels: Sequence[Channel], patch_kinds: Sequence[str]
) -> None:
    """InputError for a field that is not modelled, or a patch kind that the family does not have."""
    fields = list(dict.fromkeys(channel.field for channel in channels))
    for field, kinds in prescribed.items():
        if field not in fields:
            raise InputError(f"data.prescribed: {field} is not modelled; choose of {', '.join(fields)}")
        unknown = [kind for kind in kinds if kind not in patch_kinds]
        if unknown:
            raise InputError(f"data.prescribed: no patch kind {', '.join(unknown)}; choose of {', '.join(patch_kinds)}")
