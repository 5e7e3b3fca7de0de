"""Files that the pages read: cases that were solved elsewhere, a published benchmark, a space."""

from __future__ import annotations

from pathlib import Path

import meshio
import numpy as np

from tests.imports.foam_cases import write_case

WIDTHS = "design: grid\nparameters:\n  model.window_scale: [0.5, 0.35, 0.25]\n"
DESIGNS = "case,speed (m/s),angle (deg)\nrun1,1.0,10\nrun2,2.0,20\n"


def write_sources(folder: Path) -> None:
    """Write them under the names that the pages give them."""
    for number in (1, 2, 3):
        write_case(folder / f"my-cases/run{number}", speed=number)
        _write_vtk(folder / f"results/run{number}.vtu", number)
    (folder / "designs.csv").write_text(DESIGNS + "run3,3.0,30\n")
    (folder / "widths.yaml").write_text(WIDTHS)


def _write_vtk(file: Path, factor: float) -> None:
    points = np.array([[x, y, 0.0] for x in range(3) for y in range(3)], dtype=float)
    quads = [("quad", np.array([[0, 3, 4, 1], [1, 4, 5, 2], [3, 6, 7, 4], [4, 7, 8, 5]]))]
    arrays = {"velocity": factor * points, "p": factor * points[:, 0]}
    file.parent.mkdir(exist_ok=True)
    meshio.Mesh(points, quads, point_data=arrays).write(file)
