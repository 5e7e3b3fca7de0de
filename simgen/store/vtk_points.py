"""Stored clouds as meshio's meshes of single points, with their arrays in the shapes that VTK knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import meshio
import numpy as np


def point_mesh(points: np.ndarray, data: Mapping[str, np.ndarray]) -> meshio.Mesh:
    """Points (N, 3) with arrays (N,) or (N, C) on them."""
    vertices = [("vertex", np.arange(len(points))[:, None])]
    return meshio.Mesh(points, vertices, point_data={name: _as_vtk(values) for name, values in data.items()})


def constant_arrays(volumes: np.ndarray, distance: np.ndarray, patch_kinds: Sequence[str]) -> dict[str, np.ndarray]:
    """What does not change with time: cell volumes (N,), and the distance (N, K) to each kind of patch."""
    return {"volume": volumes, **{f"distance_{kind}": distance[:, k] for k, kind in enumerate(patch_kinds)}}


def _as_vtk(values: np.ndarray) -> np.ndarray:
    """(N, C) -> scalars as (N,), vectors with their third component."""
    if values.ndim == 1:
        return values
    if values.shape[-1] == 1:
        return values[:, 0]
    return np.pad(values, ((0, 0), (0, 3 - values.shape[-1]))) if values.shape[-1] == 2 else values
