"""Errors of the model and its references by component: NMAE and relative L2 side by side."""

from __future__ import annotations

import numpy as np

from courant.evaluation.evaluation import MODEL, Evaluation, Score
from courant.evaluation.metrics import ALL
from courant.evaluation.references import NEAREST_DESIGN, PERSISTENCE, TRAINING_MEAN
from courant.report.context import Context
from courant.report.panel import Cell, Column, Panel, Table
from courant.report.wording import component_name

_ROLLOUT_REFERENCES = {
    PERSISTENCE: "Persistence holds the initial state: hard to beat at the first step, in "
    "flows that change little, and after each period of those that repeat.",
    TRAINING_MEAN: "The training mean is the mean state of the training cases at the same place.",
}
_FIELD_REFERENCES = {
    NEAREST_DESIGN: "The nearest design's field is that of the training case with the nearest "
    "parameters, at the nearest points.",
    TRAINING_MEAN: "The training mean is one number for each component.",
}
MEASURES = {"NMAE": "nmae", "relative L2": "relative_l2"}


def panel(context: Context) -> Panel:
    """One row for each component and one for all; marks say where the model wins or loses."""
    evaluation = context.evaluation
    scores = {
        component: {name: evaluation.by_component[name][component] for name in evaluation.predictors}
        for component in evaluation.components
    }
    scores[ALL] = evaluation.overall
    columns = [Column(f"{measure}, {name}") for measure in MEASURES for name in evaluation.predictors]
    rows = [(Cell(component_name(component)), *_cells(by_predictor)) for component, by_predictor in scores.items()]
    table = Table((Column("component", is_number=False), *columns), tuple(rows))
    return Panel("errors", "Errors", tables=(table,), note=_definitions(evaluation), arrays=_arrays(scores))


def mark(ours: float, theirs: list[float]) -> Cell:
    """The model's error, good where it is below every reference's, bad where it is below none."""
    if not theirs or not any(ours < other for other in theirs):
        return Cell(f"{ours:.3f}", "bad" if theirs else "")
    return Cell(f"{ours:.3f}", "good" if all(ours < other for other in theirs) else "")


def _cells(by_predictor: dict[str, Score]) -> list[Cell]:
    cells = []
    for measure in MEASURES.values():
        values = {name: getattr(score, measure) for name, score in by_predictor.items()}
        ours = values.pop(MODEL)
        cells += [mark(ours, list(values.values())), *(Cell(f"{v:.3f}") for v in values.values())]
    return cells


def _definitions(evaluation: Evaluation) -> str:
    is_rollout = evaluation.step_s is not None
    over = "points, steps and windows" if is_rollout else "points and cases"
    fields = {name.rpartition(".")[0] for name in evaluation.components}
    together = " All components are the mean over the fields, whose units differ." if len(fields) > 1 else ""
    known = _ROLLOUT_REFERENCES if is_rollout else _FIELD_REFERENCES
    references = "".join(f" {known[name]}" for name in evaluation.references if name in known)
    sample = "window and step" if is_rollout else "case"
    return (
        f"NMAE = Σ|û − u| / Σ|u|, both sums over all {over}. Relative L2 = |û − u|₂ / |u|₂ of each "
        f"{sample}, averaged. The paper's tables of its own cases hold the NMAE, which the paper "
        "never defines: its normalisation here is our reading. Its evaluation protocol is stated "
        "in relative L2. Points count alike, so fine cells weigh more than their size."
        f"{together}{references} Green: below every reference; red: below none."
    )


def _arrays(scores: dict[str, dict[str, Score]]) -> dict[str, np.ndarray]:
    """components (C + 1,), predictors (P,) and each measure (C + 1, P)."""
    predictors = list(scores[ALL])
    measured = {
        measure: np.array([[getattr(row[name], measure) for name in predictors] for row in scores.values()])
        for measure in MEASURES.values()
    }
    return {"components": np.array(list(scores)), "predictors": np.array(predictors), **measured}
