"""From a solved case to arrays: our reader beside foamToVTK with meshio, and beside foamlib, on one
branched-pipe case.

`mesh and fields` gives points, faces, owners and U, p, and computes what a point cloud takes: cell
centres, volumes, face centres and area vectors. foamToVTK writes points, connectivity and the same
fields, which meshio then reads: geometry is not in its time, since VTK's own centres and volumes of
polyhedra are wrong. `files alone` is ours without geometry, which is what that route gives.
`fields` is U and p of the last time alone. Every contender reads a case whose files lie in the page
cache. Last, what conversion costs of a trial case of each family, beside its solve.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import meshio
import numpy as np
from foamlib import FoamCase
from rich.console import Console
from rich.table import Table

from simgen.case import SolvedCase
from simgen.cases import FAMILIES, get_family
from simgen.foam.environment import find_openfoam
from simgen.foam.field import read_field
from simgen.foam.geometry import read_geometry
from simgen.foam.mesh_files import read_faces, read_labels, read_points, time_directories
from simgen.solving.convert import convert
from simgen.solving.solve_case import solve_case

BAR_VTK, BAR_FOAMLIB, BAR_CONVERSION = 5.0, 1.0, 0.03
REPEATS = 5
#: mm: 31,000 cells
MESH_SIZE = 4.3


def main(out: Path, short: bool) -> None:
    find_openfoam().activate()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        case = _solved_pipe(Path(folder), 8.0 if short else MESH_SIZE)
        last = time_directories(case)[-1][1]
        least = _race(
            {
                "mesh and fields": lambda: (
                    read_geometry(case),
                    read_field(last / "U"),
                    read_field(last / "p"),
                ),
                "mesh and fields, files alone": lambda: _files(case),
                "mesh and fields, foamToVTK + meshio": lambda: _through_vtk(case),
                "fields": lambda: (read_field(last / "U"), read_field(last / "p")),
                "fields, foamlib": lambda: _through_foamlib(case),
            },
            2 if short else REPEATS,
        )
        shares = [] if short else [_conversion(name, Path(folder)) for name in FAMILIES]
        num_cells = len(read_geometry(case).centres)
    record = {
        "cells": num_cells,
        "seconds": least,
        "over_vtk": least["mesh and fields, foamToVTK + meshio"] / least["mesh and fields"],
        "over_foamlib": least["fields, foamlib"] / least["fields"],
        "bars": {
            "over_vtk": BAR_VTK,
            "over_foamlib": BAR_FOAMLIB,
            "conversion_share": BAR_CONVERSION,
        },
        "conversion": shares,
    }
    (out / "extraction.json").write_text(json.dumps(record, indent=2))
    screen = Console()
    table = Table(f"{num_cells:,} cells", "seconds", box=None)
    for name, seconds in least.items():
        table.add_row(name, f"{seconds:.4f}")
    screen.print(table)
    screen.print(
        f"{record['over_vtk']:.1f} times as fast as foamToVTK with meshio (bar {BAR_VTK:g})"
    )
    screen.print(f"{record['over_foamlib']:.2f} times as fast as foamlib (bar {BAR_FOAMLIB:g})")
    for share in shares:
        screen.print(
            f"{share['family']}: conversion {share['convert_s']:.2f} s of a solve of"
            f" {share['solve_s']:.1f} s, {100 * share['share']:.1f} % (bar"
            f" {100 * BAR_CONVERSION:g} %)"
        )


def _solved_pipe(folder: Path, mesh_size: float) -> Path:
    family = get_family("branched-pipe")
    middle = {
        parameter.name: (parameter.low + parameter.high) / 2
        for parameter in family.design_space.parameters
    }
    point = family.point(
        middle, family.settings("trial", {"mesh_size": mesh_size, "max_iterations": 20})
    )
    solve_case(point, folder)  # stopped long before it has settled: its files are as large as any
    return folder / point.id


def _files(case: Path) -> tuple[object, ...]:
    mesh, last = case / "constant/polyMesh", time_directories(case)[-1][1]
    points = read_points(mesh / "points")
    offsets, corners = read_faces(mesh / "faces", len(points))
    labels = (read_labels(mesh / name, len(offsets) - 1) for name in ("owner", "neighbour"))
    return (points, offsets, corners, *labels, read_field(last / "U"), read_field(last / "p"))


def _through_vtk(case: Path) -> dict[str, np.ndarray]:
    shutil.rmtree(case / "VTK", ignore_errors=True)
    command = ["foamToVTK", "-latestTime", "-fields", "(U p)"]
    subprocess.run(command, cwd=case, env=None, check=True, capture_output=True)
    (internal,) = (case / "VTK").glob("*/internal.vtu")
    mesh = meshio.read(internal)
    return {name: mesh.cell_data[name][0] for name in ("U", "p")}


def _through_foamlib(case: Path) -> list[np.ndarray]:
    last = FoamCase(case)[-1]
    return [np.asarray(last[name].internal_field) for name in ("U", "p")]


def _race(contenders: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Least seconds of each, in turns."""
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, call in contenders.items():
            began = time.perf_counter()
            call()
            taken[name].append(time.perf_counter() - began)
    return {name: min(seconds) for name, seconds in taken.items()}


def _conversion(name: str, folder: Path) -> dict[str, str | float]:
    family = get_family(name)
    point = family.point(family.design_space.sample(1, "sobol", 42)[0], family.settings("trial"))
    result = solve_case(point, folder)
    case = SolvedCase(point, folder / point.id)
    seconds = _race({"convert": lambda: convert(case)}, 3)["convert"]
    solve = result.provenance["wall_time_s"]["solve"]
    return {"family": name, "convert_s": seconds, "solve_s": solve, "share": seconds / solve}
