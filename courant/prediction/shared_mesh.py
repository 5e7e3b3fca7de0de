"""Designs of a dataset whose cases were solved elsewhere, all on one mesh.

No family can mesh such a design, and none has to: its mesh is that of any stored case. A rollout
starts from the state of the nearest solved design.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from simgen.case import CaseFamily
from simgen.cases import get_family
from simgen.design_space import DesignPoint, DesignSpace
from simgen.errors import InputError, RangeError
from simgen.point_cloud import PointCloud
from simgen.quantities import Quantity

if TYPE_CHECKING:
    from simgen.store.read import Dataset

MESHES_APART = 1e-5  # Of the domain's size: cell centres that differ by less are the same


@dataclass(frozen=True)
class SharedMesh:
    """What a family does for the designs of its cases, as far as one mesh allows it."""

    dataset: Dataset
    cloud: PointCloud  # Cells and boundary of every case, without fields
    revision: int = 1

    @classmethod
    def of(cls, dataset: Dataset) -> SharedMesh:
        """Read the mesh of a version's cases; InputError where they are not on one."""
        first, *others = (dataset[case] for case in dataset.cases())
        points = first.points
        for case in others:
            same = case.num_points == first.num_points and np.allclose(
                case.points, points, rtol=0, atol=MESHES_APART * float(np.ptp(points))
            )
            if not same:
                raise InputError(
                    f"{dataset.url} holds cases that were solved elsewhere on several meshes"
                    f" ({first.id} and {case.id} differ), and no family of that name can mesh a"
                    " design: predict on a mesh file, courant predict RUN MESH.vtu, or have designs"
                    " meshed and solved as variations of one of the cases, and train on these:"
                    f" {dataset.schema.template_command()}"
                )
        cloud, kinds = first.cloud({}), dataset.schema.measured_kinds
        if kinds:
            lengths, ways = first.distance, first.direction
            cloud = replace(cloud, distance=lengths, direction=ways, distance_kinds=kinds)
        return cls(dataset, replace(cloud, grid_shape=first.grid_shape, mesh=first.mesh))

    @property
    def name(self) -> str:
        return self.dataset.schema.family

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        return self.dataset.computed

    def point(self, parameters: Mapping[str, float], settings: Mapping[str, float]) -> DesignPoint:
        """Return the design point; InputError outside of the cases' parameters."""
        space = DesignSpace(self.dataset.schema.parameters)
        if not space.names:
            url = self.dataset.url
            raise InputError(f"cases of {url} have no parameters: import them with --parameters")
        try:
            return DesignPoint(self.name, 1, space.check(parameters, "design"), dict(settings))
        except RangeError as error:
            wider = "for a wider range import these and further cases into another store"
            raise RangeError(f"{error}; {wider}") from None


def meshing_family(dataset: Dataset) -> CaseFamily | SharedMesh:
    """Return what meshes the designs of a dataset that no family of the installation has made.

    It is the template beside it, or the mesh of cases that were solved elsewhere. InputError where
    nothing meshes them.
    """
    if dataset.schema.source is None:
        return get_family(dataset.schema.family, dataset.url)
    return SharedMesh.of(dataset)
