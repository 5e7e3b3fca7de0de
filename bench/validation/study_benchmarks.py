"""How far the benchmarks that are made here are from refined solves of the same cases."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.report import publish
from simgen.imports import benchmarks
from simgen.imports.benchmarks import CellGrid, SorptionGrid, concentration, first_value

CASES = (0, 1)
Solve = Callable[[int, int], np.ndarray]
"""From a case and how much finer than the coarsest grid; the values at the coarsest's places"""


def main(out: Path, short: bool) -> None:
    solves: dict[str, Solve] = {
        "darcy": lambda case, finer: _darcy(case, finer, 21 if short else 105),
        "diffusion-sorption": lambda case, finer: _sorption(case, finer, 32 if short else 256),
        "elasticity": lambda case, finer: _elasticity(
            case, finer, CellGrid(12, 4, 1) if short else CellGrid(36, 26, 1)
        ),
    }
    generated = {"darcy": 4, "diffusion-sorption": 4, "elasticity": 2}
    reference = {"darcy": 8, "diffusion-sorption": 16, "elasticity": 4}
    rows: list[dict[str, Any]] = []
    for name, solve in solves.items():
        for case in CASES[: 1 if short else None]:
            fine = solve(case, reference[name])
            for finer in (1, 2, 4):
                if finer == reference[name]:
                    continue
                began = time.process_time()
                found = solve(case, finer)
                rows.append(
                    {
                        "benchmark": name,
                        "case": case,
                        "cells of the coarsest, finer by": finer,
                        "as generated": "yes" if finer == generated[name] else "",
                        "error": float(np.linalg.norm(found - fine) / np.linalg.norm(fine)),
                        "processor time (s)": time.process_time() - began,
                    }
                )
    publish(out, "benchmarks", rows)


def _darcy(case: int, finer: int, cells: int) -> np.ndarray:
    return benchmarks.pressure(benchmarks.permeability(case, cells * finer + 1))[::finer, ::finer]


def _sorption(case: int, finer: int, cells: int) -> np.ndarray:
    found = concentration(first_value(case), SorptionGrid(cells * finer, 11))
    return found.reshape(11, cells, finer).mean(axis=2)


def _elasticity(case: int, finer: int, grid: CellGrid) -> np.ndarray:
    refined = CellGrid(grid.around, grid.across, finer)
    return benchmarks.cell_stress(lambda angle: benchmarks.void_radius(case, angle), refined)[1]
