"""Figures as files of a report, and which cases it shows."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from courant.evaluation.references import MODEL
from courant.run_directory import RunDirectory

DPI = 110


@dataclass(frozen=True)
class ShownCase:
    """A case whose prediction is drawn."""

    case: str
    label: str
    figure: str
    nmae: float
    start_s: float | None = None
    """Of the rollout; None in steady problems"""
    end_s: float | None = None


def save_figure(folder: RunDirectory, name: str, figure: Figure) -> None:
    buffer = io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(buffer, format="png", dpi=DPI)
    folder.write_bytes(name, buffer.getvalue())


def choose_cases(evaluation: dict[str, Any]) -> dict[str, str]:
    """Label -> case: the one of median error, and the one of largest; of fewer than three cases the latter alone."""
    by_error = sorted(evaluation["cases"], key=lambda case: evaluation["cases"][case][MODEL]["nmae"])
    if len(by_error) < 3:
        return {f"{evaluation['split']} case": by_error[-1]}
    return {"median error": by_error[len(by_error) // 2], "largest error": by_error[-1]}
