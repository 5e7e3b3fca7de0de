"""Show how errors grow with the steps of a rollout."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from courant.evaluation.evaluation import MODEL, Evaluation
from courant.evaluation.metrics import ALL
from courant.report.context import Context
from courant.report.drawing import colors
from courant.report.panel import Cell, Column, Panel, PanelFigure, Table
from courant.report.panels.errors import mark
from courant.report.wording import component_name, windows

FIGURE = "error_growth.png"
COLUMNS = 3


def panel(context: Context) -> Panel:
    """Show NMAE against time for the model and its references, and both measures at each step."""
    evaluation = context.evaluation
    caption = (
        f"NMAE over {windows(evaluation)}, against the time since the state that the prediction"
        " starts from."
    )
    first, last = (evaluation.nmae[MODEL][ALL][step] for step in (0, -1))
    figure = PanelFigure(
        FIGURE,
        draw(evaluation),
        caption,
        look_for="The model is worth its cost where its line is below all others.",
        score=f"NMAE {first:.3f} at the first step, {last:.3f} at the last",
        arrays=("time_s", "components", "predictors", "nmae"),
    )
    names = (ALL, *evaluation.components)
    arrays = {
        "time_s": _time(evaluation),
        "components": np.array(names),
        "predictors": np.array(evaluation.predictors),
        "nmae": np.array(
            [[evaluation.nmae[p][name] for name in names] for p in evaluation.predictors]
        ),
        "relative_l2": np.array(
            [[evaluation.relative_l2[p][name] for name in names] for p in evaluation.predictors]
        ),
    }
    note = (
        "The table takes all components together. Green values are below every reference, red ones"
        " below none."
    )
    return Panel(
        "errors_over_rollout",
        "Errors over the rollout",
        (figure,),
        (_table(evaluation),),
        note,
        arrays=arrays,
    )


def draw(evaluation: Evaluation) -> Figure:
    """Draw NMAE against rollout time: all components together, and each where there are several."""
    names = (ALL, *evaluation.components) if len(evaluation.components) > 1 else (ALL,)
    columns = min(COLUMNS, len(names))
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(4.4 * columns, 3.1 * rows + 0.3), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    time, color = _time(evaluation), colors(evaluation.predictors)
    for axis, name in zip(axes, names, strict=False):
        for predictor in evaluation.predictors:
            values = evaluation.nmae[predictor][name]
            axis.plot(time, values, "o-", ms=4, color=color[predictor], label=predictor)
        axis.set(xlabel="rollout time (s)", title=component_name(name), ylim=(0, None))
        axis.grid(alpha=0.25)
    for axis in axes[::columns]:
        axis.set_ylabel("NMAE")
    for axis in axes[len(names) :]:
        axis.set_axis_off()
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=len(color), frameon=False)
    return figure


def _time(evaluation: Evaluation) -> np.ndarray:
    return (evaluation.step_s or 0.0) * np.arange(1, evaluation.num_steps + 1)


def _table(evaluation: Evaluation) -> Table:
    measures = {"NMAE": evaluation.nmae, "relative L2": evaluation.relative_l2}
    heads = [f"{measure}, {name}" for measure in measures for name in evaluation.predictors]
    rows = []
    for step, time in enumerate(_time(evaluation).tolist()):
        cells = [Cell(str(step + 1)), Cell(f"{time:g}")]
        for errors in measures.values():
            theirs = [errors[name][ALL][step] for name in evaluation.references]
            cells += [mark(errors[MODEL][ALL][step], theirs), *(Cell(f"{v:.3f}") for v in theirs)]
        rows.append(tuple(cells))
    return Table(tuple(map(Column, ("step", "time (s)", *heads))), tuple(rows))
