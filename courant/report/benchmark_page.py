"""Write the page of a benchmark: its tables, and error against processor time with every seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib import colormaps, rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from courant.evaluation.metrics import METRICS
from courant.report import drawing
from courant.report.page import Panel, PanelTable, Picture, page_url, write_page
from courant.sweeps.benchmark import SEARCH_SHARE, duration
from courant.sweeps.benchmark_table import BenchmarkTable

FIGURE = "figure.png"
NONE, UNKNOWN = "–", "not on record"


@rc_context(rc=drawing.STYLE)
def write_benchmark_page(table: BenchmarkTable) -> str:
    """Write index.html, its figure, table.csv and table.json; return the page's URL."""
    benchmark, folder = table.benchmark, table.benchmark.folder
    table.write()
    panels = [_models(table), _costs(table), _components(table)]
    if table.quantities:
        panels.append(_quantities(table))
    cases = ", ".join(f"{num} {split}" for split, num in table.num_cases.items())
    rates = ", ".join(f"{rate:g}" for rate in benchmark.rates)
    meta = (
        f"dataset {benchmark.dataset_url} {benchmark.version}: {cases} cases",
        f"budget of each training: {benchmark.budget.text}",
        f"learning rates: {rates}"
        + (f", by validation NMAE at {SEARCH_SHARE:g} of the budget" if benchmark.searches else ""),
    )
    title = f"Benchmark of {benchmark.base.name}"
    write_page(folder, title, meta, table.verdict(), panels)
    return page_url(folder)


def _table(rows: Sequence[Mapping[str, str]]) -> PanelTable:
    """Make a table whose first column has names, and the others numbers."""
    return PanelTable(rows, words=list(rows[0])[:1] if rows else (), sortable=True)


def _models(table: BenchmarkTable) -> Panel:
    rows, has_paper = [], any(row.paper_nmae for row in table.rows)
    for row in table.rows:
        if row.errors is None:
            continue
        errors = {of.label: row.errors.overall[key].text(of.digits) for key, of in METRICS.items()}
        first, *others = errors
        trained = row.errors.nmae.count
        seeds = f"{trained} of {trained + len(row.failures)}" if row.failures else str(trained)
        cells = {
            "model": f"{row.name} (reference)" if row.is_reference else row.name,
            first: errors[first],
            "median case": row.errors.typical.text(),
            **{label: errors[label] for label in others},
            "parameters": NONE if row.parameters is None else f"{row.parameters:,}",
            "rate": NONE if row.rate is None else f"{row.rate:g}{'†' if row.rate_at_edge else ''}",
            "epochs": NONE if row.epochs is None else str(row.epochs),
            "seeds": NONE if row.is_reference else seeds,
            "training": NONE if row.ledger is None else duration(row.ledger.training.mean),
        }
        if has_paper:
            cells["paper's NMAE"] = NONE if row.paper_nmae is None else f"{row.paper_nmae:g}"
        rows.append(cells)
    notes = [
        "Errors on the test split: mean over seeds and 95 % interval of that mean. The median case"
        " is the NMAE of the test case in the middle; where it is far lower, a few bad cases are"
        " most of the NMAE of all. RAE is the error over the fields' variation about the training"
        " cases' mean, so that an offset of a field does not lower it. The largest error is over"
        " the largest value of the field. References have no network; nearest design, training"
        " mean, POD and DMD need the solved training designs as well."
    ]
    if has_paper:
        notes.append(
            "The paper's numbers are of its own data, each model trained for epochs of its own on"
            " one A100. Its tables of public benchmarks are captioned NMAE, while its text has them"
            " judged by relative L2: hold them against both columns."
        )
    if any(row.rate_at_edge for row in table.rows):
        notes.append("† The lowest or highest rate that was tried: one beyond may be better.")
    failed = [f"{row.name}: {reason}" for row in table.models for reason in row.failures]
    notes += [f"{line}." for line in (*table.benchmark.left_out, *failed)]
    means = {row.name: row.errors.nmae.mean for row in table.rows if row.errors}
    best = min(means, key=means.__getitem__)
    picture = Picture(
        FIGURE,
        "Left: each training. Right: each seed, with the search in its processor time.",
        draw(table),
        look_for="A model is better where its points lie lower and further to the left.",
        score=f"Lowest NMAE {means[best]:.3g}, {best}",
    )
    return Panel("models", "Models", [picture], [_table(rows)], note=" ".join(notes))


def _costs(table: BenchmarkTable) -> Panel:
    rows = []
    for row in table.models:
        if (ledger := row.ledger) is None or row.wall_s is None:
            continue
        spread, solver, even = ledger.training.half_width, ledger.solver, ledger.break_even
        cells = {
            "model": row.name,
            "training": duration(ledger.training.mean)
            + ("" if spread is None else f" ± {duration(spread)}"),
            "search": NONE if ledger.tuning_s is None else duration(ledger.tuning_s),
            "wall time": duration(row.wall_s.mean),
            "memory": NONE if row.memory_gb is None else f"{row.memory_gb:.2f} GB",
        }
        per, spent = solver.per_prediction, solver.spent_s
        cells |= {
            "prediction": _short(ledger.prediction_s),
            "solver": UNKNOWN if per is None else duration(per.mean),
            "solves": f"{NONE if spent is None else duration(spent)} ({solver.num_solved})",
            "breaks even after": UNKNOWN if even is None else f"{even.text()} predictions",
        }
        # A reference that is better, and needs no training, comes before the model.
        first = next(each for each in table.rows if each is row or each.is_reference)
        if first is not row and even is not None:
            cells["breaks even after"] += f"; but {first.name} is better, without a training"
        rows.append(cells)
    note = (
        f"Times are core-seconds of all threads ({table.device}), but for the wall time of a"
        " training. Memory is the peak of its process, some 0.4 GB of which are Python with its"
        " libraries on a CPU. A prediction is one case"
        f"{'' if table.step_s is None else ', a whole rollout'} of the test split, the median."
        " Solves are those of training and validation designs, with rejected and failed ones. A"
        " prediction saves the solver's time for what it covers, not the meshing. The interval"
        " takes the solver's and the training's at their worst together."
    )
    return Panel("costs", "Costs and ledger", tables=[_table(rows)], note=note)


def _short(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else duration(seconds)


def _components(table: BenchmarkTable) -> Panel:
    """Show errors by component and, of rollouts, by step."""
    shown = {name: metric.label for name, metric in METRICS.items() if metric.in_tables}
    components, steps = [], []
    for row in table.rows:
        if row.errors is not None:
            by_component, by_step = {"model": row.name}, {"NMAE after": row.name}
            for component, errors in row.errors.components.items():
                by_component |= {f"{component}, {shown[key]}": errors[key].text() for key in shown}
            for step, errors in row.errors.steps.items():
                by_step[f"{int(step) * (table.step_s or 0.0):g} s"] = errors["nmae"].text()
            components.append(by_component)
            steps.append(by_step)
    tables = [_table(components)] + ([] if table.step_s is None else [_table(steps)])
    return Panel("components", "Components and steps", tables=tables)


def _quantities(table: BenchmarkTable) -> Panel:
    """Show errors in quantities of interest beside the null."""
    names = [row.name for row in table.models if row.errors]
    rows = [
        {
            "quantity": each.name,
            "null": NONE if each.null is None else f"{each.null:.3g}",
            **{name: each.models[name].text() if name in each.models else NONE for name in names},
        }
        for each in table.quantities
    ]
    note = (
        "The sum of absolute errors over the sum of absolute values, of quantities computed from"
        " predicted fields. The null is a Gaussian process on the design parameters alone: a model"
        " above it has learned nothing of use for that quantity."
    )
    return Panel("quantities", "Quantities of interest", tables=[_table(rows)], note=note)


MARKERS = "os^DvPX*p<h>"
REFERENCE = "#7a7a7a"
STYLES = ("--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))


def draw(table: BenchmarkTable) -> Figure:
    """Draw validation error while training, and test error over all that was spent."""
    figure = Figure(figsize=(11.5, 4.8))
    during, after = figure.subplots(1, 2, sharey=True)
    colors = [*drawing.PALETTE, *colormaps["Dark2"](range(8))]
    for number, row in enumerate(row for row in table.models if row.ledger is not None):
        assert row.ledger is not None
        searched_s = row.ledger.tuning_s or 0.0
        color, marker = colors[number % len(colors)], MARKERS[number % len(MARKERS)]
        for curve in row.curves:
            if curve.validated:
                spent, errors = zip(*curve.validated, strict=True)
                during.plot(spent, errors, "-", marker=".", ms=3, lw=1.2, color=color, alpha=0.8)
        after.plot(
            [searched_s + curve.processor_s for curve in row.curves],
            [curve.test_nmae for curve in row.curves],
            marker,
            ms=6,
            color=color,
            alpha=0.85,
            label=row.name,
        )
    for number, row in enumerate(table.references):
        assert row.errors is not None
        after.axhline(
            row.errors.nmae.mean,
            color=REFERENCE,
            ls=STYLES[number % len(STYLES)],
            lw=1.2,
            zorder=0,
            label=row.name,
        )
    for axis, title, x in (
        (during, "validation error during training", "processor time of the training (s)"),
        (after, "test error of each seed", "processor time of search and training (s)"),
    ):
        axis.set(yscale="log", title=title, xlabel=x)
    during.set(xscale="log", ylabel="NMAE")
    # From zero on, with room for the whole of the last marker.
    after.set_xlim(0, 1.05 * after.get_xlim()[1])
    for scale in (during.xaxis, during.yaxis):
        low, high = scale.get_view_interval()
        # Over less than a decade the ticks at 1, 2 and 5 would be too few to show the errors.
        scale.set_major_locator(LogLocator(subs=(1, 2, 5) if high > 10 * low else range(1, 10)))
        scale.set_major_formatter("{x:g}")
        scale.set_minor_formatter("")
    handles, labels = after.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center")
    return figure
