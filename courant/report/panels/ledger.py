"""Show what the surrogate cost, what a prediction saves, and when it has paid for itself."""

from __future__ import annotations

from courant.evaluation.interval import Interval
from courant.evaluation.ledger import Ledger, solver_times
from courant.report.context import Context
from courant.report.panel import Cell, Column, Panel, Table
from courant.report.wording import count
from courant.runs.directory import RunDirectory
from courant.sweeps.sweep import TABLE, sweep_of
from simgen.errors import SimgenError


def panel(context: Context) -> Panel:
    """Show core-seconds, and the number of predictions at which they are even."""
    ledger = ledger_of(context)
    table = Table((Column("", is_number=False), Column("core-seconds")), tuple(_rows(ledger)))
    return Panel("ledger", "Cost and savings", tables=(table,), note=_note(ledger))


def ledger_of(context: Context) -> Ledger:
    """Return the ledger of the report's run."""
    evaluation = context.evaluation
    used = [record.cost_s for record in context.records]
    return Ledger(
        solver=solver_times(context.dataset, context.surrogate.problem, tuple(evaluation.cases)),
        training=Interval(sum(used), None, 1),
        tuning_s=tuning_seconds(context.run),
        prediction_s=evaluation.timing.prediction_processor_s,
    )


def tuning_seconds(run: RunDirectory) -> float | None:
    """Return what the other trials of the run's sweep took; None for a run of no sweep."""
    sweep, name = sweep_of(run), run.url.rstrip("/").rpartition("/")[2]
    if sweep is None:
        return None
    try:
        rows = sweep.read_json(TABLE)
        return sum(float(row["seconds"]) for row in rows if not row["run"].endswith(f"/{name}"))
    except (SimgenError, KeyError, TypeError, ValueError, AttributeError):
        return None


def _rows(ledger: Ledger) -> list[tuple[Cell, Cell]]:
    solver, unknown = ledger.solver, "not on record"
    designs = count(solver.num_solved, "design")
    per = solver.per_prediction
    saved, even = ledger.saved_s, ledger.break_even
    lines = {
        f"meshing and solving {designs} for the training": _seconds(solver.spent_s),
        "training": _seconds(ledger.training.mean),
        "search for settings": _seconds(ledger.tuning_s),
        "the solver, for the case or span of a prediction": per.text() if per else unknown,
        "a prediction": f"{ledger.prediction_s:.3g}",
        "saved by a prediction": unknown if saved is None else f"{saved:.3g}",
        "number of predictions until it breaks even": even.text() if even else unknown,
    }
    return [(Cell(words), Cell(value)) for words, value in lines.items()]


def _seconds(value: float | None) -> str:
    return "not on record" if value is None else f"{value:,.1f}"


def _note(ledger: Ledger) -> str:
    searched = (
        ""
        if ledger.tuning_s is not None
        else " The run is not part of a sweep, so there is no search to count."
    )
    return (
        "Core-seconds are CPU seconds of the solver (wall time times cores where it told none), of"
        " training and of prediction (on a GPU the time for which it was held). Designs are those"
        " of training and validation, including rejected and failed ones. Meshing is not saved,"
        " since a prediction needs points as well. The interval is the 95 % interval of the"
        " solver's time over the"
        f" predicted cases.{searched}"
    )
