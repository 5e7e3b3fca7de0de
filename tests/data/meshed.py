"""Ducts and waves whose cells stand in a row: each shares a face with the ones beside it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from simgen.case import CaseResult
from simgen.cases import get_family
from simgen.cell_mesh import HEXAHEDRON, QUAD, CellMesh
from simgen.design_space import DesignPoint
from simgen.point_cloud import PointCloud
from simgen.store.schema import Schema
from simgen.store.write import DatasetWriter
from tests import world


def row_of_cells(num_cells: int, num_faces: int) -> CellMesh:
    """Hexahedra in a row along x, and faces of the boundary on the side of the first one."""
    corners = [(x, y, z) for x in range(num_cells + 1) for y, z in ((0, 0), (1, 0), (1, 1), (0, 1))]
    entries: list[int] = []
    for cell in range(num_cells):
        entries += [HEXAHEDRON, 8, *range(4 * cell, 4 * cell + 8)]
    entries += [QUAD, 4, 0, 1, 5, 4] * num_faces
    return CellMesh(np.array(corners, "f4"), np.array(entries, "i4"))


def expected_edges(num_cells: int, width: int = 2) -> np.ndarray:
    """(N, width): the cells before and behind each one of the row."""
    lists = np.full((num_cells, width), -1)
    for cell in range(num_cells):
        found = [each for each in (cell - 1, cell + 1) if 0 <= each < num_cells]
        lists[cell, : len(found)] = found
    return lists


def _publish(
    url: str, schema: Schema, made: Sequence[tuple[DesignPoint, PointCloud]], **provenance: Any
) -> str:
    writer = DatasetWriter.open(url, schema)
    fork = writer.fork()
    for point, cloud in made:
        mesh = row_of_cells(len(cloud.points), len(cloud.boundary.points))
        whole = {"wall_time_s": {"solve": 1.0}, **provenance}
        fork.write(CaseResult(point, "accepted", provenance=whole), replace(cloud, mesh=mesh))
    writer.commit([fork])
    writer.publish("meshed")
    return url


def publish_meshed_waves(url: str) -> str:
    made = [
        (world.design_point(n), world.travelling_wave(40 + 7 * n, 0.2 + 0.1 * n, seed=n))
        for n in range(5)
    ]
    return _publish(url, Schema.of(get_family("cylinder-flow")), made)


def publish_meshed_ducts(url: str) -> str:
    made = [
        (DesignPoint("branched-pipe", 1, each, {"mesh_size": 0.1}), world.duct(60 + 7 * n, each, n))
        for n, each in enumerate(world.SPACE.sample(10, "sobol", 1))
    ]
    return _publish(url, world.SCHEMA, made)
