"""Write a benchmark's results: a page of Markdown, its figure, CSV and JSON.

The figure is error against processor time, with every seed.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from courant.benchmark.assess import NUM_POINTS
from courant.benchmark.request import SEARCH_SHARE, duration
from courant.benchmark.rows import Cost, Row, Table, verdict
from courant.evaluation.ledger import Interval
from courant.evaluation.metrics import METRICS

FIGURE = "figure.png"
NONE = "–"


def markdown(table: Table) -> str:
    """Return the page: verdict, tables, and the words that they need."""
    request = table.request
    cases = ", ".join(f"{num} {split}" for split, num in table.num_cases.items())
    searched = (
        f"learning rate of {', '.join(f'{rate:g}' for rate in request.rates)} by validation NMAE"
        f" at {SEARCH_SHARE:g} of the budget each"
        if request.searches
        else f"learning rate {request.rates[0]:g}"
    )
    parts = [
        f"# Benchmark of {request.base.name}",
        f"Dataset `{request.dataset_url}` {request.version}: {cases} cases. Budget of each"
        f" training: {request.budget.text}; {searched}.",
        f"**{verdict(table)}**",
        _table(*_main(table)),
        _explanation(table),
        f"![error against processor time]({FIGURE})",
        "## Costs",
        _table(*_costs(table)),
        "Processor time is that of all threads of the training process"
        f" ({table.device}). Memory is the peak of that process, some 0.4 GB of which are Python"
        " with its libraries on a CPU. A prediction is one case"
        f"{'' if table.step_s is None else ', a whole rollout'}; the model reads as many points as"
        " it predicts unless its encoder reads the boundary alone.",
        "## Ledger",
        _table(*_ledger(table)),
        "Core-seconds. Solves are those of training and validation designs, with rejected and"
        " failed ones. A prediction saves the solver's time for what it covers, not the meshing."
        " The interval takes the solver's and the training's at their worst together.",
        "## Components",
        _table(*_components(table)),
    ]
    if any(row.errors and len(row.errors.steps) > 1 for row in table.rows):
        parts += ["## Steps", _table(*_steps(table))]
    parts += _quantities(table)
    parts += ["## Scalar figures by design parameters alone", _nulls(table)]
    failed = [f"- {row.name}: {said}" for row in table.models for said in row.failures]
    if failed:
        parts += ["## Failed", "\n".join(failed)]
    return "\n\n".join(parts) + "\n"


Cells = tuple[Sequence[str], list[list[str]]]


def _main(table: Table) -> Cells:
    numbers = bool(table.paper.nmae)
    first, *others = METRICS.values()
    header = ["", first.label, "median case", *(metric.label for metric in others)]
    header += ["parameters", "rate", "epochs", "seeds", "training"]
    header += ["paper's NMAE"] if numbers else []
    rows = []
    for row in table.rows:
        if row.errors is None:
            continue
        errors = row.errors
        nmae, *further = (errors.overall[name].text(of.digits) for name, of in METRICS.items())
        cells = [
            f"*{row.name}*" if row.is_reference else row.name,
            nmae,
            errors.typical.text(),
            *further,
            NONE if row.parameters is None else f"{row.parameters:,}",
            NONE if row.rate is None else f"{row.rate:g}{'†' if row.rate_at_edge else ''}",
            NONE if row.epochs is None else str(row.epochs),
            NONE if row.is_reference else _seeds(row, errors.nmae.count),
            NONE if row.cost is None else duration(row.cost.training_s.mean),
        ]
        if numbers:
            cells.append(NONE if row.paper_nmae is None else f"{row.paper_nmae:g}")
        rows.append(cells)
    return header, rows


def _seeds(row: Row, trained: int) -> str:
    failed = len(row.failures)
    return f"{trained} of {trained + failed}" if failed else str(trained)


def _explanation(table: Table) -> str:
    said = [
        "Errors on the test split: mean over seeds and 95 % interval of that mean. The median case"
        " is the NMAE of the test case in the middle; where it is far lower, a few bad cases rule"
        " the NMAE of all. RAE is the error over the fields' variation about the training cases'"
        " mean, so that an offset of a field does not lower it. The largest error is over the"
        " largest value of the field. References, which have no network, are in italics; nearest"
        " design, training mean, POD and DMD need the solved training designs as well.",
        table.paper.words,
    ]
    if any(row.rate_at_edge for row in table.rows):
        said.append("† The lowest or highest rate that was tried: one beyond may be better.")
    said += [f"{line}." for line in table.request.left_out]
    return " ".join(said)


def _costs(table: Table) -> Cells:
    header = ["", "training", "search", "wall time", "memory"]
    header += [f"prediction of {num:,} points" for num in NUM_POINTS]
    rows = []
    for row in table.models:
        if row.cost is not None:
            rows.append([row.name, *_cost_cells(row.cost)])
    return header, rows


def _cost_cells(cost: Cost) -> list[str]:
    memory = NONE if cost.memory_gb is None else f"{cost.memory_gb:.2f} GB"
    times = [cost.prediction_s.get(str(num)) for num in NUM_POINTS]
    spread = cost.training_s.half_width
    return [
        f"{duration(cost.training_s.mean)}{'' if spread is None else f' ± {duration(spread)}'}",
        duration(cost.search_s),
        duration(cost.wall_s.mean),
        memory,
        *("too long" if each is None else _short(each) for each in times),
    ]


def _short(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else duration(seconds)


def _ledger(table: Table) -> Cells:
    header = ["", "solves", "training", "search", "prediction", "solver", "breaks even after"]
    rows: list[list[str]] = []
    for row in table.models:
        ledger = row.ledger
        if ledger is None:
            continue
        solver, even = ledger.solver, ledger.break_even
        spent = NONE if solver.spent_s is None else duration(solver.spent_s)
        per = solver.per_prediction
        rows.append(
            [
                row.name,
                f"{spent} ({solver.num_solved})",
                duration(ledger.training.mean),
                NONE if ledger.tuning_s is None else duration(ledger.tuning_s),
                _short(ledger.prediction_s),
                "not on record" if per is None else duration(per.mean),
                "not on record" if even is None else f"{even.text()} predictions{_but(table, row)}",
            ]
        )
    return header, rows


def _but(table: Table, row: Row) -> str:
    """Say which reference is better than a model, and needs no training; empty where none is."""
    first = next((each for each in table.rows if each is row or each.is_reference), row)
    return f"; but {first.name} is better, without a training" if first is not row else ""


def _components(table: Table) -> Cells:
    names = next(list(row.errors.components) for row in table.rows if row.errors)
    shown = {name: metric.label for name, metric in METRICS.items() if metric.in_tables}
    header = ["", *(f"{name}, {label}" for name in names for label in shown.values())]
    rows = [
        [row.name, *(row.errors.components[of][name].text() for of in names for name in shown)]
        for row in table.rows
        if row.errors
    ]
    return header, rows


def _steps(table: Table) -> Cells:
    num = next(len(row.errors.steps) for row in table.rows if row.errors)
    step_s = table.step_s or 0.0
    header = ["NMAE after", *(f"{(step + 1) * step_s:g} s" for step in range(num))]
    rows = [
        [row.name, *(nmae.text() for nmae, _ in row.errors.steps)]
        for row in table.rows
        if row.errors
    ]
    return header, rows


def _quantities(table: Table) -> list[str]:
    """Show errors in quantities of interest beside the null, where fields tell any."""
    if not table.quantities:
        return []
    names = [row.name for row in table.models if row.errors]
    rows = [
        [
            each.name,
            NONE if each.null is None else f"{each.null:.3g}",
            *(each.models[name].text() if name in each.models else NONE for name in names),
        ]
        for each in table.quantities
    ]
    words = (
        "The sum of absolute errors over the sum of absolute values, of quantities computed from"
        " predicted fields. The null is a Gaussian process on the design parameters alone: a model"
        " above it has learned nothing of use for that quantity."
    )
    return ["## Quantities of interest", _table(["", "null", *names], rows), words]


def _nulls(table: Table) -> str:
    if not table.nulls:
        return (
            "None: the cases have no figures that vary, no design parameters, or the splits are"
            " too small."
        )
    header = ["figure", "regression", "R²", "NMAE"]
    rows = [
        [each.figure, each.regression, _thousandths(each.r2), _thousandths(each.nmae)]
        for each in table.nulls
    ]
    words = "A network whose fields give such a figure less well has learned nothing of use for it."
    return f"{_table(header, rows)}\n\n{words}"


def _thousandths(score: float) -> str:
    """Three digits, or nothing where the test cases share one value, so that no score exists."""
    return f"{score:.3f}" if math.isfinite(score) else NONE


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, numbers to the right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


COLORS = (
    *("#0b5fa5", "#d9822b", "#1a7f37", "#8250df", "#b3261e", "#00838f", "#6d4c41", "#5f6b76"),
    *("#c2185b", "#827717", "#1a1a1a", "#42a5f5"),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "p", "<", "h", ">")
REFERENCE = "#7a7a7a"
STYLES = ("--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))


def draw(table: Table) -> bytes:
    """Return a PNG: validation error while training, and test error over all that was spent."""
    figure = Figure(figsize=(11.5, 4.8), layout="constrained")
    during, after = figure.subplots(1, 2, sharey=True)
    for number, row in enumerate(row for row in table.models if row.errors is not None):
        color, marker = COLORS[number % len(COLORS)], MARKERS[number % len(MARKERS)]
        _during(during, row, color)
        _after(after, row, color, marker)
    for number, row in enumerate(table.references):
        if row.errors is not None:
            style = STYLES[number % len(STYLES)]
            after.axhline(
                row.errors.nmae.mean, color=REFERENCE, ls=style, lw=1.2, zorder=0, label=row.name
            )
    for axis, title, x in (
        (during, "validation error during training", "processor time of the training (s)"),
        (after, "test error of each seed", "processor time of search and training (s)"),
    ):
        axis.set(yscale="log", title=title, xlabel=x)
        axis.grid(alpha=0.25, which="both")
    during.set(xscale="log", ylabel="NMAE")
    # From zero on, with room for the whole of the last marker.
    after.set_xlim(0, 1.05 * after.get_xlim()[1])
    for scale in (during.xaxis, during.yaxis):
        low, high = scale.get_view_interval()
        # Over less than a decade the ticks at 1, 2 and 5 would be too few to tell the errors.
        scale.set_major_locator(LogLocator(subs=(1, 2, 5) if high > 10 * low else range(1, 10)))
        scale.set_major_formatter("{x:g}")
        scale.set_minor_formatter("")
    handles, labels = after.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=150)
    return picture.getvalue()


def _during(axis: Axes, row: Row, color: str) -> None:
    for course in row.courses:
        if course.validated:
            spent, errors = zip(*course.validated, strict=True)
            axis.plot(spent, errors, "-", marker=".", ms=3, lw=1.2, color=color, alpha=0.8)


def _after(axis: Axes, row: Row, color: str, marker: str) -> None:
    assert row.cost is not None
    for number, course in enumerate(row.courses):
        spent = row.cost.search_s + course.processor_s
        shown = row.name if not number else None
        axis.plot([spent], [course.test_nmae], marker, ms=6, color=color, alpha=0.85, label=shown)


MARKDOWN, CSV, JSON = "table.md", "table.csv", "table.json"


def write_results(table: Table) -> str:
    """Write the table in all its forms into the benchmark's folder; return the page's URL."""
    folder = table.request.folder
    folder.write_bytes(FIGURE, draw(table))
    folder.write_bytes(CSV, _csv(table).encode())
    folder.write_json(JSON, _json(table))
    folder.write_bytes(MARKDOWN, markdown(table).encode())
    return f"{folder.url}/{MARKDOWN}"


def _csv(table: Table) -> str:
    """Return one line for each model and reference, with all of their numbers."""
    # As objects: a column of numbers with gaps would turn its whole numbers into floats.
    lines = pandas.DataFrame([_flat(row) for row in table.rows], dtype=object)
    return str(lines.to_csv(index=False))


def _flat(row: Row) -> dict[str, Any]:
    flat: dict[str, Any] = {
        "name": row.name,
        "reference": row.is_reference,
        "parameters": row.parameters,
        "learning_rate": row.rate,
        "rate_at_edge": row.rate_at_edge,
        "epochs": row.epochs,
        "paper_nmae": row.paper_nmae,
        "failed": "; ".join(row.failures),
    }
    if row.errors is not None:
        flat |= _spread("median case", row.errors.typical) | {"seeds": row.errors.nmae.count}
        for metric, interval in row.errors.overall.items():
            flat |= _spread(metric, interval)
        for name, by_metric in row.errors.components.items():
            for metric, interval in by_metric.items():
                flat |= _spread(f"{metric} {name}", interval)
        for step, (nmae, relative) in enumerate(row.errors.steps, start=1):
            flat |= _spread(f"nmae step {step}", nmae)
            flat |= _spread(f"relative_l2 step {step}", relative)
    if row.cost is not None:
        flat |= _spread("training_processor_s", row.cost.training_s)
        flat |= {"search_processor_s": row.cost.search_s, "memory_gb": row.cost.memory_gb}
        flat |= {"training_wall_s": row.cost.wall_s.mean}
        flat |= {f"prediction_s {num}": value for num, value in row.cost.prediction_s.items()}
    even = row.ledger.break_even if row.ledger else None
    if even is not None:
        flat |= {"break_even": even.expected, "break_even_low": even.low}
        flat |= {"break_even_high": even.high}
    return flat


def _spread(name: str, interval: Interval) -> dict[str, float | None]:
    return {name: interval.mean, f"{name} ±": interval.half_width}


def _json(table: Table) -> dict[str, Any]:
    """Return everything that the page says, in numbers; infinite ones are null."""
    request = table.request
    rows = []
    for row in table.rows:
        content = asdict(row)
        even = row.ledger.break_even if row.ledger else None
        rows.append({**content, "break_even": asdict(even) if even else None})
    content = {
        "dataset": request.dataset_url,
        "version": request.version,
        "snapshot": request.snapshot_id,
        "recipe": request.base.name,
        "budget": request.budget.text,
        "rates": list(request.rates),
        "cases": table.num_cases,
        "verdict": verdict(table),
        "paper": table.paper.words,
        "rows": rows,
        "quantities": [asdict(each) for each in table.quantities],
        "nulls": [asdict(each) for each in table.nulls],
    }
    return json.loads(json.dumps(_finite(content)))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
