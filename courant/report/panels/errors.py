"""Compare errors of the model and its references by component, in every metric."""

from __future__ import annotations

import numpy as np

from courant.evaluation.evaluation import (
    DMD,
    MODEL,
    NEAREST_DESIGN,
    PERSISTENCE,
    POD_GP,
    POD_RBF,
    TRAINING_MEAN,
    Evaluation,
    Score,
)
from courant.evaluation.metrics import ALL, METRICS
from courant.report.context import Context
from courant.report.panel import Cell, Column, Panel, Table
from courant.report.wording import component_name

_ROLLOUT_REFERENCES = {
    PERSISTENCE: (
        "Persistence holds the initial state; it is hard to beat at the first step, in "
        "flows that change little, and after each full period of periodic flows."
    ),
    TRAINING_MEAN: "The training mean is the mean state of the training cases at the same points.",
    DMD: (
        "DMD (dynamic mode decomposition) advances the initial state by the linear map that fits "
        "the training cases best."
    ),
    NEAREST_DESIGN: (
        "The nearest design's states are those of the training case with the nearest parameters and"
        " given fields, at the same times and the nearest points, whatever the initial state."
    ),
}
_FIELD_REFERENCES = {
    NEAREST_DESIGN: (
        "The nearest design's field is that of the training case with the nearest "
        "parameters and given fields, at the nearest points."
    ),
    TRAINING_MEAN: "The training mean is one number for each component.",
    POD_GP: (
        "POD (proper orthogonal decomposition) combines the training fields' principal components, "
        "with coefficients by a Gaussian process (GP) or radial basis functions (RBF) of the "
        "design parameters."
    ),
    POD_RBF: "Both POD models know the geometry only by its parameters.",
}


def panel(context: Context) -> Panel:
    """Show one row for each component and one for all; marks show where the model wins or loses."""
    evaluation = context.evaluation
    scores = {
        component: {
            name: evaluation.by_component[name][component] for name in evaluation.predictors
        }
        for component in evaluation.components
    }
    scores[ALL] = evaluation.overall
    columns = [
        Column(f"{metric.label}, {name}")
        for metric in METRICS.values()
        if metric.in_tables
        for name in evaluation.predictors
    ]
    rows = [
        (Cell(component_name(component)), *_cells(by_predictor))
        for component, by_predictor in scores.items()
    ]
    table = Table((Column("component", is_number=False), *columns), tuple(rows))
    return Panel(
        "errors", "Errors", tables=(table,), note=_definitions(evaluation), arrays=_arrays(scores)
    )


def mark(ours: float, theirs: list[float]) -> Cell:
    """Mark the model's error: good if below every reference's, bad if below none."""
    if not theirs or not any(ours < other for other in theirs):
        return Cell(f"{ours:.3f}", "bad" if theirs else "")
    return Cell(f"{ours:.3f}", "good" if all(ours < other for other in theirs) else "")


def _cells(by_predictor: dict[str, Score]) -> list[Cell]:
    cells = []
    for metric in (name for name, each in METRICS.items() if each.in_tables):
        values = {name: score[metric] for name, score in by_predictor.items()}
        ours = values.pop(MODEL)
        cells += [mark(ours, list(values.values())), *(Cell(f"{v:.3f}") for v in values.values())]
    return cells


def _definitions(evaluation: Evaluation) -> str:
    is_rollout = evaluation.step_s is not None
    over = "points, steps and windows" if is_rollout else "points and cases"
    fields = {name.rpartition(".")[0] for name in evaluation.components}
    together = (
        " The row of all components is the mean over the fields, because their units differ."
        if len(fields) > 1
        else ""
    )
    known = _ROLLOUT_REFERENCES if is_rollout else _FIELD_REFERENCES
    references = "".join(f" {known[name]}" for name in evaluation.references if name in known)
    sample = "window and step" if is_rollout else "case"
    meanings = " ".join(
        metric.meaning.format(over=over, sample=sample)
        for metric in METRICS.values()
        if metric.in_tables
    )
    return (
        f"{meanings} The paper's tables of its own "
        "cases have the NMAE, which the paper never defines: its normalisation here is our "
        "reading. The paper's evaluation protocol uses relative L2. All points count alike, so "
        "fine cells weigh more than their share of the volume."
        f"{together}{references} Green values are below every reference, red ones below none."
    )


def _arrays(scores: dict[str, dict[str, Score]]) -> dict[str, np.ndarray]:
    """components (C + 1,), predictors (P,) and each measure (C + 1, P)."""
    predictors = list(scores[ALL])
    measured = {
        metric: np.array([[row[name][metric] for name in predictors] for row in scores.values()])
        for metric in METRICS
    }
    return {"components": np.array(list(scores)), "predictors": np.array(predictors), **measured}
