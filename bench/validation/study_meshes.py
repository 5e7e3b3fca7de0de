"""Does every design mesh? 64 Sobol designs and all corners of each family's design space, through
checkMesh.
"""

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.report import publish
from simgen.case import CaseFamily
from simgen.cases import FAMILIES
from simgen.errors import CaseError
from simgen.meshing import check_mesh

DESIGNS = 64


def main(out: Path, short: bool) -> None:
    rows: list[dict[str, Any]] = []
    for family in FAMILIES.values():
        sampled = family.design_space.sample(4 if short else DESIGNS, "sobol", 42)
        space = family.design_space
        corners = space.sample(2 ** len(space.parameters), "grid")
        designs = [*sampled, *(corners[:4] if short else corners)]
        found = [_mesh(family, design, out / "mesh") for design in designs]
        meshes = [figures for figures in found if figures is not None]
        cells = sorted(int(figures["num_cells"]) for figures in meshes)
        rows.append(
            {
                "family": family.name,
                "designs": len(found),
                "clean": sum(figures["failed_checks"] == 0 for figures in meshes),
                "lost": len(found) - len(meshes),
                "cells": f"{cells[0]} to {cells[-1]}",
                "non-orthogonality (deg)": max(of["max_non_orthogonality"] for of in meshes),
                "skewness": max(figures["max_skewness"] for figures in meshes),
                "seconds each": sum(figures["seconds"] for figures in meshes) / len(meshes),
            }
        )
    publish(out, "meshes", rows, lost=sum(row["lost"] for row in rows))


def _mesh(
    family: CaseFamily, design: Mapping[str, float], directory: Path
) -> dict[str, float] | None:
    """checkMesh's figures and the seconds; None where there is no mesh, for a printed reason."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    began = time.perf_counter()
    try:
        family.write_case(family.point(design, family.settings("trial")), directory)
        return {**check_mesh(directory), "seconds": time.perf_counter() - began}
    except CaseError as error:
        print(f"{family.name} {dict(design)}: {error}")
        return None
