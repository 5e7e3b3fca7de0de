"""Define quantities of interest: the numbers that an engineer asks of a case.

A family declares each. It is computed in two ways that agree to 1 % on solved fields: as the figure
of the same name that `CaseFamily.figures` measures on a solved case, and from fields on the stored
cloud, solved or predicted: values in cells, the boundary's geometry, and what is prescribed there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from simgen.design_space import shown_unit
from simgen.point_cloud import PointCloud, point_tree

if TYPE_CHECKING:
    from scipy.spatial import cKDTree


@dataclass(frozen=True)
class Faces:
    """F faces of one patch kind, each with the cell behind it."""

    points: np.ndarray  # (F, 3) m
    normals: np.ndarray  # (F, 3), out of the domain
    areas: np.ndarray  # (F,) m2
    cells: np.ndarray  # (F,) rows of the cloud
    depth: np.ndarray  # (F,) m from the centre of the cell behind a face to the face's plane

    def mean(self, values: np.ndarray) -> np.ndarray:
        """Average (..., F) over the faces' area."""
        return values @ self.areas / self.areas.sum()

    def outflow(self, velocity: np.ndarray) -> np.ndarray:
        """Return (..., F) m3/s out of the domain, of a velocity (..., F, 3)."""
        return (velocity * self.normals).sum(-1) * self.areas

    def tangential(self, vectors: np.ndarray) -> np.ndarray:
        """Return the part of (..., F, 3) that lies in the faces."""
        return vectors - (vectors * self.normals).sum(-1, keepdims=True) * self.normals


def states_from(cloud: PointCloud, since_s: float) -> PointCloud:
    """Return a transient cloud with its cells' states from a time (s) on; others as they are."""
    if cloud.time is None:
        return cloud
    late = cloud.time >= since_s * (1 - 1e-9)
    return replace(
        cloud,
        time=cloud.time[late],
        fields={name: values[late] for name, values in cloud.fields.items()},
        boundary=None if cloud.boundary is None else replace(cloud.boundary, fields={}),
    )


class CaseFields:
    """The fields of a case on its cloud, solved or predicted, for `Quantity.from_fields`."""

    def __init__(
        self, parameters: Mapping[str, float], settings: Mapping[str, float], cloud: PointCloud
    ) -> None:
        self.parameters, self.settings, self.cloud = parameters, settings, cloud

    def cells(self, name: str) -> np.ndarray:
        """Return a field's values in the cells, (N, C) or (T, N, C), in double precision."""
        return np.asarray(self.cloud.fields[name], dtype=np.float64)

    def vectors(self, name: str) -> np.ndarray:
        """Return a vector field (..., N, 3); of a 2D case z is 0."""
        values = self.cells(name)
        missing = 3 - values.shape[-1]
        return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, missing)])

    def faces(self, *kinds: str) -> Faces:
        """Return patch kinds' faces; without a gradient, values are `values[..., cells]`."""
        boundary = self.cloud.boundary
        assert boundary is not None
        chosen = np.isin(boundary.patch, [self.cloud.patch_kinds.index(kind) for kind in kinds])
        points, normals = (
            np.asarray(each[chosen], dtype=np.float64)
            for each in (boundary.points, boundary.normals)
        )
        # The cells on both sides of a thin plate are as near to its faces.
        near = self._tree.query(points, k=np.arange(1, min(8, len(self.cloud.points)) + 1))[1]
        depths = ((points[:, None] - self.cloud.points[near]) * normals[:, None]).sum(axis=-1)
        of = np.arange(len(points)), (depths > 0).argmax(axis=1)
        cells, depth = near[of], depths[of]
        areas = np.asarray(boundary.areas[chosen], dtype=np.float64)
        return Faces(points, normals, areas, cells, depth)

    def on(self, name: str, *kinds: str) -> tuple[Faces, np.ndarray]:
        """Return patch kinds' faces, and a field there (..., F, C): that of the cells behind."""
        faces = self.faces(*kinds)
        return faces, self.cells(name)[..., faces.cells, :]

    @functools.cached_property
    def _tree(self) -> cKDTree:
        return point_tree(self.cloud.points)


@dataclass(frozen=True)
class StatedQuantity:
    """The record in a dataset of a quantity that its cases have."""

    name: str  # Also that of a solved case's figure
    unit: str
    meaning: str
    over: str = field(default="", kw_only=True, compare=False)
    """The times of a transient case that it is of, such as the mean over them"""

    @property
    def stated(self) -> StatedQuantity:
        return StatedQuantity(self.name, self.unit, self.meaning, over=self.over)

    @property
    def described(self) -> str:
        return f"{self.meaning}, {self.over}" if self.over else self.meaning

    def __str__(self) -> str:
        unit = f" ({self.unit})" if shown_unit(self.unit) else ""
        return f"{self.name}{unit} = {self.described}"


@dataclass(frozen=True)
class Quantity(StatedQuantity):
    """A number that a family's cases are asked for."""

    from_fields: Callable[[CaseFields], float] | None
    """None where the cloud does not give it to 1 %"""
    needs: tuple[str, ...] = ()  # Components of fields that `from_fields` reads, such as velocity.x
    not_from_fields: str = ""  # Why the cloud does not give it, in words


def obtainable(
    quantities: Sequence[Quantity], components: Sequence[str]
) -> tuple[list[Quantity], dict[str, str]]:
    """Split into those that these components give, and the others with the reason in words."""
    reasons = {}
    for quantity in quantities:
        if quantity.from_fields is None:
            reasons[quantity.name] = quantity.not_from_fields
        elif lacking := [each for each in quantity.needs if each not in components]:
            reasons[quantity.name] = f"needs {', '.join(lacking)}"
    return [each for each in quantities if each.name not in reasons], reasons


def compute(quantities: Sequence[Quantity], fields: CaseFields) -> dict[str, float]:
    """Compute those quantities that fields give, by name."""
    return {
        quantity.name: float(quantity.from_fields(fields))
        for quantity in quantities
        if quantity.from_fields is not None
    }
