"""Pages of sweeps and benchmarks, scores side by side, and what legibility costs."""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator

from courant.analysis.comparison import RunComparison
from courant.analysis.scores import SCORES, score_case
from courant.evaluation.ledger import Interval
from courant.evaluation.metrics import METRICS
from courant.prediction.surrogate import load
from courant.report import drawing
from courant.report.drawing import FieldMap, draw_maps
from courant.report.page import Cell, Lead, Panel, PanelTable, Picture, page_url, plain, write_page
from courant.sweeps.benchmark import SEARCH_SHARE
from courant.sweeps.benchmark_table import BenchmarkTable
from courant.sweeps.search_space import BASELINE, Setting, Value, describe, label, show
from courant.sweeps.sweep import Sweep, TrialResult, best_trial, trial_rows
from simgen.log_lines import duration_text
from simgen.publish.colours import MAGNITUDES
from simgen.publish.figures import axes_grid, layer


@rc_context(rc=drawing.STYLE)
def write_sweep_page(sweep: Sweep, results: Sequence[TrialResult]) -> str:
    """Write index.html and its figures into the sweep's folder; return the page's URL.

    Raises TrainingError where no trial was validated.
    """
    best, isolated = best_trial(results), sweep.space.design == "isolated"
    varied = "the others at the baseline (dashed)" if isolated else "whatever the others"
    one_by_one = Picture(
        "hyperparameters.png",
        f"Validation NMAE of the weights that each trial keeps by one hyperparameter, {varied}."
        " Hollow: stopped early, so its error would have fallen further.",
        draw_hyperparameters(results, sweep.space.baseline(sweep.experiment), isolated),
        look_for="A setting matters where the error changes along its axis more than it scatters.",
        score=f"Lowest validation NMAE {best.nmae:.3f}",
    )
    rows, titles = [], {"nmae": "validation NMAE", "seconds": "wall seconds"}
    ranked = sorted(
        zip(results, trial_rows(sweep, results), strict=True),
        key=lambda pair: (pair[0].nmae is None, pair[0].nmae, pair[0].number),
    )
    for result, row in ranked:
        cells: dict[str, str | Cell] = {
            titles.get(name) or plain(name): "–" if value is None else show(value)
            for name, value in row.items()
            if value or name != "reason"
        }
        if result is best:
            cells[titles["nmae"]] = Cell(show(result.nmae), "good")
        if result.state == "failed":
            cells["state"] = Cell(result.state, "bad")
        rows.append(cells)
    note = (
        "The same as trials.csv and trials.json beside this page. One seed says little about small"
        " differences: ask for more trials than there are settings, and each is tried again with"
        " the next seed."
    )
    lines = (
        f"courant train {sweep.dataset_url} --version {sweep.version} --experiment"
        f" {sweep.folder.url}/best.json --runs {sweep.folder.url.rpartition('/')[0]}",
        f"tensorboard --logdir {sweep.folder.url}/ray",
        "",
        "import courant",
        f'surrogate = courant.load("{best.run}")',
    )
    panels = (
        Panel("hyperparameters", "Hyperparameters", [one_by_one]),
        Panel(
            "trials",
            "Trials, best first",
            tables=[PanelTable(rows, words=("state", "run", "reason"))],
            note=" ".join([note, *(f"{line}." for line in sweep.left_out)]),
        ),
        Panel("next_steps", "Go on", code="\n".join(lines)),
    )
    meta = [
        f"dataset {sweep.dataset_url} {sweep.version}",
        f"{len(results)} trials of up to {sweep.experiment.training.epochs} epochs",
    ]
    if sweep.space.about:
        meta.insert(0, sweep.space.about)
    title = f"Sweep {sweep.space.name} of {sweep.experiment.name}"
    write_page(sweep.folder, title, meta, Lead("", sweep_line(sweep, results)), {"": panels})
    return page_url(sweep.folder)


def sweep_line(sweep: Sweep, results: Sequence[TrialResult]) -> str:
    """Summarise the sweep in two sentences."""
    best, spent = best_trial(results), sum(result.epochs for result in results)
    # Within a budget of time, or its patience, a trial ends after epochs of its own.
    asked = sweep.experiment.training.epochs
    whole = sum(result.epochs if result.state == "finished" else asked for result in results)
    states = [result.state for result in results]
    kinds = ("finished", "stopped", "failed")
    ended = [f"{states.count(state)} {state}" for state in kinds if state in states]
    return (
        f"Best of {len(results)} trials ({', '.join(ended)}): validation NMAE {best.nmae:.3f} with"
        f" {describe(best.setting)}. {spent} epochs were trained,"
        f" {spent / whole:.0%} of what all trials to their end would take."
    )


WIDE = 8  # Numbers that span this factor get a log scale
FEW = 8
"""More values than this were drawn from a range: no line joins them, and they get no tick each"""


def draw_hyperparameters(
    results: Sequence[TrialResult], baseline: Setting, isolated: bool
) -> Figure:
    """Draw one panel per key, validation NMAE over its values on a shared scale (fig:ablations).

    Few values are evenly spaced in their order, those for absence or no change first.
    """

    def rank(value: Value) -> tuple[int, float, str]:
        if isinstance(value, float | int):
            return 1, float(value), ""
        return 0 if value in (None, "none", BASELINE) else 2, 0.0, str(value)

    figure, axes = axes_grid(len(baseline), 4, 3.5, 3.1, share_y=True)
    for axis, (key, value) in zip(axes, baseline.items(), strict=True):
        shown = [
            each
            for each in results
            if each.nmae is not None
            and each.state != "failed"
            and not (isolated and any(each.setting[o] != baseline[o] for o in baseline if o != key))
        ]
        ordered = sorted({value, *(each.setting[key] for each in shown)}, key=rank)
        numbers = [each for each in ordered if isinstance(each, float | int)]
        is_range = FEW < len(ordered) == len(numbers)
        at: dict[Value, Any] = {of: of if is_range else place for place, of in enumerate(ordered)}
        finished, stopped = (
            [
                (at[each.setting[key]], each.nmae)
                for each in shown
                if (each.state == "finished") is ended
            ]
            for ended in (True, False)
        )
        if finished and not is_range:
            lowest = dict(sorted(finished, key=itemgetter(1), reverse=True))
            line: drawing.Style = {"color": drawing.MODEL_COLOR, "label": "lowest at each value"}
            axis.plot(*zip(*sorted(lowest.items()), strict=True), **line)
        drawn: tuple[tuple[list[Any], drawing.Style], ...] = (
            (finished, {"color": drawing.MODEL_COLOR, "label": "trained to the end"}),
            (stopped, {"mfc": "white", "mec": "#9aa1a8", "label": "stopped early"}),
        )
        for points, style in drawn:
            if points:
                axis.plot(*zip(*points, strict=True), "o", ms=5, **style)
        orange: drawing.Style = {"color": drawing.PALETTE[1], "ls": "--", "lw": 1.2, "zorder": 0}
        axis.axvline(at[value], label="baseline", **orange)
        axis.set_xlabel(plain(label(key)))
        if not is_range:
            names = list(map(show, ordered))
            axis.set_xticks(range(len(names)), names, rotation=30, ha="right")
        elif 0 < WIDE * numbers[0] <= numbers[-1]:
            axis.set_xscale("log")
    axes[0].set_ylabel("validation NMAE")
    drawing.legend_above(figure, axes, 4 if len(axes) > 1 else 2)
    return figure


@rc_context(rc=drawing.STYLE)
def draw_comparison(found: RunComparison) -> Figure:
    """Draw a bar for each row, with its interval, and the aim as a line where a score has one."""
    shown = [each for each in SCORES if each.key in found.keys]
    figure, axes = axes_grid(len(shown), 4, drawing.WIDTH / 4, 0.75 + 0.3 * len(found.rows))
    places = np.arange(len(found.rows))[::-1]
    colors = [drawing.PALETTE[row % len(drawing.PALETTE)] for row in range(len(found.rows))]
    for number, (axis, score) in enumerate(zip(axes, shown, strict=True)):
        intervals = [row.scores.get(score.key) for row in found.rows]
        means = [np.nan if each is None else each.mean for each in intervals]
        widths = [0.0 if each is None else each.half_width or 0.0 for each in intervals]
        axis.barh(places, means, xerr=widths, color=colors, height=0.7, ecolor="#333333")
        # Rows without the score keep their place.
        axis.set_ylim(-0.6, len(places) - 0.4)
        if score.aim is not None:
            axis.axvline(score.aim, color=drawing.GOOD_COLOR, ls="--", lw=1)
        labels = [row.label for row in found.rows] if number % 4 == 0 else []
        axis.set_yticks(places if labels else [], labels, fontsize=8)
        good = "" if score.good == "neither" else f"\n({score.good} is good)"
        axis.set_title(f"{score.name}{good}", fontsize=8)
        axis.tick_params(axis="x", labelsize=7)
    return figure


STRONGEST = 6


@rc_context(rc=drawing.STYLE)
def compare_fields(
    found: RunComparison, cases: Sequence[str] = (), dataset_url: str | None = None
) -> tuple[str, Figure, dict[str, np.ndarray]]:
    """Draw the strongest fields of each row's first run for the first case that all runs know.

    It is one of the test split where none is named; runs that were scored have one in common.
    Returns the case, the figure, a row on one scale, and the arrays behind it.
    """
    loaded = {row.label: load(row.runs[0]) for row in found.rows}
    datasets = {name: surrogate.open_dataset(dataset_url) for name, surrogate in loaded.items()}
    asked = cases or next(iter(datasets.values())).cases("test")
    case = next(of for of in asked if all(of in each.members for each in datasets.values()))
    plane = layer(next(iter(datasets.values()))[case])
    rows, arrays = [], dict[str, np.ndarray]()
    for number, (name, dataset) in enumerate(datasets.items()):
        fields = score_case(loaded[name], dataset[case]).fields
        strongest = np.argsort(-fields.energies, kind="stable")[:STRONGEST]
        magnitudes = fields.magnitudes[strongest]
        arrays |= {
            "points": fields.points,
            f"label_{number}": np.array(name),
            f"anchors_{number}": strongest,
            f"magnitudes_{number}": magnitudes,
        }
        if fields.anchors is not None:
            arrays[f"places_{number}"] = fields.anchors[strongest]
        places = [None] * len(strongest) if fields.anchors is None else fields.anchors[strongest]
        shares = fields.energies[strongest] / (float(fields.energies.sum()) or 1.0)
        limits = drawing.top_limits(magnitudes[:, plane.cell])
        titles = [
            f"anchor {each}, {share:.0%} of energy"
            for each, share in zip(strongest, shares, strict=True)
        ]
        titles[0] = f"{name}\n{titles[0]}"
        rows.append(
            [
                FieldMap(plane, values, title, "|δ| (std)", limits, MAGNITUDES, place)
                for values, title, place in zip(magnitudes, titles, places, strict=True)
            ]
        )
    return case, draw_maps(rows, "row"), arrays


ABOUT_THE_BEST = 1.02  # Errors up to this multiple of the family's lowest one count as no cost
MARKERS = "oDs^vPX*"  # By family, of five rows each, and those after them


@rc_context(rc=drawing.STYLE)
def draw_trade_off(found: RunComparison) -> Figure | None:
    """Draw a point for each row, with the intervals of both numbers; None without such scores.

    Errors are over the lowest of their family. The green corner is what the aims ask for: a good
    score at an error at most 2 % above the lowest.
    """
    rows = [row for row in found.rows if "nmae" in row.scores]
    shown = [
        (each, each.aim)
        for each in SCORES
        if each.aim is not None and any(each.key in row.scores for row in rows)
    ]
    if not shown:
        return None
    lowest = {
        family: min(row.scores["nmae"].mean for row in rows if row.family == family)
        for family in {row.family for row in rows}
    }
    labels = list(dict.fromkeys(row.label for row in found.rows))
    height = 3.2 + 0.22 * len(found.rows)
    figure, axes = axes_grid(len(shown), 4, drawing.WIDTH / 4, height, share_y=True)
    for axis, (score, aim) in zip(axes, shown, strict=True):
        for row in rows:
            error, unit = row.scores["nmae"], lowest[row.family]
            number = labels.index(row.label)
            if (place := row.scores.get(score.key)) is not None:
                axis.errorbar(
                    place.mean,
                    error.mean / unit,
                    xerr=place.half_width or 0.0,
                    yerr=(error.half_width or 0.0) / unit,
                    fmt=MARKERS[(found.families.index(row.family) + 4 * (number // 5)) % 8],
                    color=drawing.PALETTE[number % len(drawing.PALETTE)],
                    ecolor="#999999",
                    elinewidth=0.8,
                    label=found.heading(row),
                )
        axis.axvline(aim, color=drawing.GOOD_COLOR, ls="--", lw=1)
        axis.axhline(ABOUT_THE_BEST, color=drawing.GOOD_COLOR, ls="--", lw=1)
        axis.margins(x=0.1)
        left, right = axis.get_xlim()
        # The green reaches to the edge, and moves none.
        corner = (left, aim) if score.good == "small" else (aim, right)
        axis.fill_between(corner, 0, ABOUT_THE_BEST, color=drawing.GOOD_COLOR, alpha=0.15, lw=0)
        axis.set_xlim(left, right)
        axis.xaxis.set_major_locator(MaxNLocator(5))
        axis.set_xlabel(f"{score.name}\n({score.aim_text})", fontsize=8)
        axis.tick_params(labelsize=7)
    errors = [(row.scores["nmae"], lowest[row.family]) for row in rows]
    top = max(error.high / unit for error, unit in errors)
    bottom = min(error.low / unit for error, unit in errors)
    margin = 0.1 * ((top - bottom) or 1.0)
    axes[0].set_ylim(max(0.0, bottom - margin), max(top, ABOUT_THE_BEST) + margin)
    axes[0].set_ylabel("NMAE over the family's lowest")
    drawing.legend_above(figure, axes, 3)
    return figure


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
    write_page(folder, title, meta, Lead("", table.verdict()), {"": panels})
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
            "training": NONE if row.ledger is None else duration_text(row.ledger.training.mean),
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
        "figure.png",
        "Left: each training. Right: each seed, with the search in its processor time.",
        draw_benchmark(table),
        look_for="A model is better where its points lie lower and further to the left.",
        score=f"Lowest NMAE {means[best]:.3g}, {best}",
    )
    settings = None if table.benchmark.space is None else _settings(table)
    pictures = [settings, picture] if settings else [picture]
    return Panel("models", "Models", pictures, [_table(rows)], note=" ".join(notes))


def _costs(table: BenchmarkTable) -> Panel:
    rows = []
    for row in table.models:
        if (ledger := row.ledger) is None or row.wall_s is None:
            continue
        spread, solver, even = ledger.training.half_width, ledger.solver, ledger.break_even
        cells = {
            "model": row.name,
            "training": duration_text(ledger.training.mean)
            + ("" if spread is None else f" ± {duration_text(spread)}"),
            "search": NONE if ledger.tuning_s is None else duration_text(ledger.tuning_s),
            "wall time": duration_text(row.wall_s.mean),
            "memory": NONE if row.memory_gb is None else f"{row.memory_gb:.2f} GB",
        }
        per, spent, took = solver.per_prediction, solver.spent_s, ledger.prediction_s
        cells |= {
            "prediction": f"{1000 * took:.3g} ms" if took < 1 else duration_text(took),
            "solver": UNKNOWN if per is None else duration_text(per.mean),
            "solves": f"{NONE if spent is None else duration_text(spent)} ({solver.num_solved})",
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


SYMBOLS = "os^DvPX*p<h>"
LINES = ("--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))


def _settings(table: BenchmarkTable) -> Picture | None:
    """Show each setting's test error over the recipe's, and the paper's; None without these."""
    recipe = next(row for row in table.models if row.name == table.benchmark.base.model.kind)
    own = {curve.seed: curve.test_nmae for curve in recipe.curves}
    found = [
        (row, Interval.of([curve.test_nmae / own[curve.seed] for curve in paired]))
        for row in table.models
        if (paired := [curve for curve in row.curves if curve.seed in own])
    ]
    if not found:
        return None
    figure = Figure(figsize=(0.75 * drawing.WIDTH, 1 + 0.28 * len(found)))
    axis = figure.subplots()
    for place, (row, over) in enumerate(found):
        width, color = over.half_width or 0.0, drawing.PALETTE[0]
        axis.errorbar(over.mean, place, xerr=width, fmt="o", color=color, label="here")
        if row.paper_nmae and recipe.paper_nmae:
            ratio, color = row.paper_nmae / recipe.paper_nmae, drawing.PALETTE[1]
            axis.plot(ratio, place, "D", mfc="none", color=color, label="the paper")
    axis.axvline(1.0, color="#7a7a7a", lw=1, zorder=0)
    axis.set_yticks(range(len(found)), [row.name for row, _ in found])
    axis.invert_yaxis()
    axis.set(xlabel=f"NMAE over that of the recipe, {recipe.name}", xscale="log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 1.2, 1.5, 2, 3, 5, 8)))
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_formatter("")
    drawing.legend_above(figure, [axis], 2)
    return Picture(
        "settings.png",
        "Each setting's test error over the recipe's of the same seed, the mean with its interval.",
        figure,
        look_for="A setting differs from the recipe where its interval does not reach the line.",
        score=f"{found[0][0].name} has {found[0][1].text()} times the recipe's error",
    )


def draw_benchmark(table: BenchmarkTable) -> Figure:
    """Draw validation error while training, and test error over all that was spent."""
    figure = Figure(figsize=(11.5, 4.8))
    during, after = figure.subplots(1, 2, sharey=True)
    style: drawing.Style
    colors = [*drawing.PALETTE, *colormaps["Dark2"](range(8))]
    for number, row in enumerate(row for row in table.models if row.ledger):
        assert row.ledger is not None
        searched_s, color = row.ledger.tuning_s or 0.0, colors[number % len(colors)]
        for curve in row.curves:
            if curve.validated:
                style = {"marker": ".", "ms": 3, "lw": 1.2, "color": color, "alpha": 0.8}
                during.plot(*zip(*curve.validated, strict=True), **style)
        spent = [searched_s + curve.processor_s for curve in row.curves]
        style = {"ms": 6, "color": color, "alpha": 0.85, "label": row.name}
        errors = [curve.test_nmae for curve in row.curves]
        after.plot(spent, errors, SYMBOLS[number % len(SYMBOLS)], **style)
    for number, row in enumerate(table.references):
        assert row.errors is not None
        style = {"color": "#7a7a7a", "ls": LINES[number % len(LINES)], "lw": 1.2, "zorder": 0}
        after.axhline(row.errors.nmae.mean, label=row.name, **style)
    during.set(title="validation error during training", ylabel="NMAE", xscale="log")
    during.set(xlabel="processor time of the training (s)", yscale="log")
    after.set(title="test error of each seed", yscale="log")
    after.set(xlabel="processor time of search and training (s)")
    # From zero on, with room for the whole of the last marker.
    after.set_xlim(0, 1.05 * after.get_xlim()[1])
    for scale in (during.xaxis, during.yaxis):
        scale.set_major_locator(LogLocator(subs=(1, 2, 3, 5, 7)))
        scale.set_major_formatter("{x:g}")
        scale.set_minor_formatter("")
    figure.legend(*after.get_legend_handles_labels(), loc="outside right center")
    return figure
