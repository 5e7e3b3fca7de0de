"""Build a steady model's inputs from what is known before the solve.

That is geometry, boundary conditions and design parameters. Inputs are made from a `KnownCase`
only, and a `KnownCase` holds no solved value: of a stored case's boundary fields it keeps the faces
on which the field is a boundary condition, and zero on all others. Otherwise two things would leak
the answer: a face without a condition of its own (zero gradient, no slip in OpenFOAM's files)
carries its cell's solved value, and so does an outlet's velocity.

The paper does not say what the features of the boundary cloud hold; its parameter counts leave room
for one number per modelled channel. Here they are that channel's prescribed value: the inlet's
velocity profile, the surface speed of rotating walls, zero elsewhere, standardised as the field is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial import cKDTree

from courant.data.channels import Channel
from courant.data.geometry import DistanceField
from courant.data.normalisation import Normaliser
from courant.data_config import SteadyData
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.access.stored_case import StoredCase


@dataclass(frozen=True)
class BoundaryConditions:
    """The boundary's B faces with their prescribed values, in physical units."""

    points: np.ndarray
    """(B, 3) m, face centres"""
    values: np.ndarray
    """(B, C), the modelled channels; zero where nothing is prescribed"""


@dataclass(frozen=True)
class KnownCase:
    """Everything that a steady prediction starts from, in physical units.

    N cells or other query points, K patch kinds.
    """

    points: np.ndarray
    """(N, 3) m"""
    distance: DistanceField | None
    """None in data without one"""
    boundary: BoundaryConditions | None
    """None in data without a boundary cloud"""
    parameters: Mapping[str, float]
    given: np.ndarray
    """(N, G), the given channels"""


@dataclass(frozen=True)
class SteadyInputs:
    """A model's input for one case, normalised, float32; N encoder points, M queries."""

    points: np.ndarray
    """(N, 3)"""
    features: np.ndarray
    """(N, C); with the mesh in the encoder (N, C + G + D), without C where there is no boundary"""
    query_points: np.ndarray
    """(M, 3)"""
    query_features: np.ndarray
    """(M, G + D)"""
    parameters: np.ndarray
    """(P,)"""
    scale: np.ndarray | None
    """(C,) of `Normaliser.scale`; None where nothing is scaled"""


def read_known(case: StoredCase, normaliser: Normaliser, config: SteadyData) -> KnownCase:
    """Read the known part of a stored case.

    Solved fields are not read, boundary fields only where they are prescribed.
    """
    conditions = None
    if normaliser.has_boundary:
        boundary = case.boundary
        names = {channel.field for channel in normaliser.channels} & set(config.prescribed)
        fields = {name: np.asarray(boundary[name][:]) for name in names}
        conditions = keep_prescribed(boundary.points, boundary.patch, fields, normaliser, config)
    return KnownCase(
        case.points,
        (case.distance, case.direction) if normaliser.stored_kinds else None,
        conditions,
        case.parameters,
        read_channels(case, normaliser.given),
    )


def read_channels(case: StoredCase, channels: Sequence[Channel]) -> np.ndarray:
    """Read (N, C): channels of a steady case, in their units."""
    stored = {name: np.asarray(case[name][:]) for name in {each.field for each in channels}}
    columns = [stored[channel.field][..., channel.column] for channel in channels]
    return np.stack(columns, axis=-1) if columns else np.zeros((case.num_points, 0), np.float32)


def keep_prescribed(
    points: np.ndarray,
    patch: np.ndarray,
    fields: Mapping[str, np.ndarray],
    normaliser: Normaliser,
    config: SteadyData,
) -> BoundaryConditions:
    """Keep the prescribed values of the faces' `fields` (B, components), zero elsewhere.

    `patch` (B,) are numbers of the family's patch kinds.
    """
    values = np.zeros((len(points), len(normaliser.channels)))
    for number, channel in enumerate(normaliser.channels):
        kinds = [
            normaliser.patch_kinds.index(kind) for kind in config.prescribed.get(channel.field, ())
        ]
        given = np.isin(patch, kinds)
        if given.any():
            values[given, number] = fields[channel.field][given, channel.column]
    return BoundaryConditions(points, values)


def prepare_inputs(known: KnownCase, normaliser: Normaliser, config: SteadyData) -> SteadyInputs:
    """Normalise a known case into model inputs.

    The encoder gets the boundary cloud, or the points with their distance field. In the second case
    each point carries what is prescribed at its nearest boundary face, the condition that acts on
    it most directly. A cloud without any other feature has its coordinates as features.
    """
    points, boundary = normaliser.points(known.points), known.boundary
    distance = normaliser.distance_channels(known.distance, len(points))
    at_points = np.concatenate([normaliser.standardise_given(known.given), distance], axis=1)
    cloud, features = points, at_points
    if boundary is not None:
        conditions = normaliser.standardise(boundary.values)
        if config.encoder == "boundary":
            cloud, features = normaliser.points(boundary.points), conditions
        else:
            nearest = cKDTree(boundary.points).query(known.points)[1]
            features = np.concatenate([conditions[nearest], at_points], axis=1)
    if not features.shape[1]:
        features = cloud[:, : normaliser.dimension]
    return SteadyInputs(
        cloud,
        features,
        points,
        at_points,
        normaliser.design(known.parameters),
        normaliser.scale(known.parameters) if normaliser.powers else None,
    )


def check_prescribed(
    prescribed: Mapping[str, Sequence[str]], channels: Sequence[Channel], patch_kinds: Sequence[str]
) -> None:
    """Raise InputError for a field that is not modelled, or an unknown patch kind."""
    fields = list(dict.fromkeys(channel.field for channel in channels))
    for field, kinds in prescribed.items():
        if field not in fields:
            raise InputError(
                f"data.prescribed: {field} is not modelled; choose of {', '.join(fields)}"
            )
        unknown = [kind for kind in kinds if kind not in patch_kinds]
        if unknown:
            raise InputError(
                f"data.prescribed: no patch kind {', '.join(unknown)}; choose of"
                f" {', '.join(patch_kinds)}"
            )
