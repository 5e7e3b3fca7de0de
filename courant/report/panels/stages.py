"""Show where the time went, from meshing to prediction."""

from __future__ import annotations

from courant.evaluation.evaluation import Evaluation
from courant.report.context import Context
from courant.report.panel import Cell, Column, Panel, Table
from courant.report.wording import count

_RUN_STAGES = {
    "load": "reading the dataset",
    "train": "training",
    "validation": "validation",
    "checkpoint": "checkpoints",
}


def panel(context: Context) -> Panel:
    """Show seconds of each stage, and one prediction beside the solver."""
    rows = tuple((Cell(stage), Cell(f"{seconds:,.1f}")) for stage, seconds in stages(context))
    table = Table((Column("stage", is_number=False), Column("seconds")), rows)
    return Panel("stages", "Time", tables=(table,), note=_speed(context.evaluation))


def stages(context: Context) -> list[tuple[str, float]]:
    """Return names and seconds; stages without a record are left out."""
    dataset, timings = context.dataset, context.course.timings
    walls = [dataset[name].provenance.get("wall_time_s", {}) for name in dataset.design.index]
    solving = [
        (f"{words}, all cases", float(sum(wall.get(stage, 0.0) for wall in walls)))
        for stage, words in (("mesh", "meshing"), ("solve", "solving"))
        if any(stage in wall for wall in walls)
    ]
    training = [
        (words, float(getattr(timings, name)))
        for name, words in _RUN_STAGES.items()
        if timings is not None
    ]
    evaluation = context.evaluation
    predictions = count(evaluation.num_windows, f"{evaluation.split} prediction")
    return [*solving, *training, (predictions, evaluation.timing.prediction_total_s)]


def _speed(evaluation: Evaluation) -> str:
    timing = evaluation.timing
    span = (evaluation.step_s or 0.0) * evaluation.num_steps
    what = f"A rollout over {span:g} s" if span else "A case"
    where = timing.prediction_device
    if where == "CPU":
        where = f"{count(timing.prediction_threads, 'CPU thread')}"
    line = f"{what} takes {1000 * timing.prediction_s:.3g} ms on {where}"
    if timing.solver_s is None:
        return f"{line}; the dataset has no record of the solver's time."
    host = "" if timing.solver_host == "unknown" else f" ({timing.solver_host})"
    solver = f"{timing.solver_s:.3g} s for the same on its machine{host}"
    return f"{line}; the solver took {solver}."
