"""Stored clouds as meshio's meshes of single points, with their arrays in the shapes that VTK knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import meshio
import numpy as np

if TYPE_CHECKING:
    from simgen.store.reader import StoredCase


def point_mesh(points: np.ndarray, data: Mapping[str, np.ndarray]) -> meshio.Mesh:
    """Points (N, 3) with arrays (N,) or (N, C) on them."""
    vertices = [("vertex", np.arange(len(points))[:, None])]
    return meshio.Mesh(points, vertices, point_data={name: _as_vtk(values) for name, values in data.items()})


def constant_arrays(case: StoredCase) -> dict[str, np.ndarray]:
    """What does not change with time: cell volumes, and the distance to each kind of patch."""
    distances = {f"distance_{kind}": case.distance[:, k] for k, kind in enumerate(case.patch_kinds)}
    return {"volume": case.volumes, **distances}


def _as_vtk(values: np.ndarray) -> np.ndarray:
    """(N, C) -> scalars as (N,), vectors with their third component."""
    if values.ndim == 1:
        return values
    if values.shape[-1] == 1:
        return values[:, 0]
    return np.pad(values, ((0, 0), (0, 3 - values.shape[-1]))) if values.shape[-1] == 2 else values
