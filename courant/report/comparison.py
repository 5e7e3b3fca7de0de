"""Figures of several runs: the page of a sweep, scores side by side, and what legibility costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from courant.analysis.case_scores import score_case
from courant.analysis.comparison import RunComparison, ScoreRow
from courant.analysis.scores import SCORES
from courant.prediction.surrogate import load
from courant.report import drawing
from courant.report.drawing import MAGNITUDES, FieldMap, draw_maps
from courant.report.page import Cell, Panel, PanelTable, Picture, page_url, plain, write_page
from courant.sweeps.search_space import BASELINE, Setting, Value, describe, label, show
from courant.sweeps.sweep import Sweep, TrialResult, best_trial
from simgen.publish.figures import layer

HYPERPARAMETERS, PARALLEL = "hyperparameters.png", "parallel_coordinates.png"


@rc_context(rc=drawing.STYLE)
def write_sweep_page(sweep: Sweep, results: Sequence[TrialResult]) -> str:
    """Write index.html and its figures into the sweep's folder; return the page's URL.

    Raises TrainingError where no trial was validated.
    """
    best, keys = best_trial(results), list(sweep.baseline)
    score = f"Lowest validation NMAE {best.nmae:.3f}"
    isolated = sweep.space.design == "isolated"
    varied = "the others at the baseline (dashed)" if isolated else "whatever the others"
    one_by_one = Picture(
        HYPERPARAMETERS,
        f"Validation NMAE of the weights that each trial keeps by one hyperparameter, {varied}."
        " Hollow: stopped early, so its error would have fallen further.",
        draw_hyperparameters(results, sweep.baseline, isolated),
        look_for="A setting matters where the error changes along its axis more than it scatters.",
        score=score,
    )
    together = Picture(
        PARALLEL,
        "One line per trial, darker for a lower error; the best in orange, trials that were stopped"
        " early dotted.",
        draw_trials(results, keys),
        look_for="Dark lines that run together show the settings that good trials share.",
        score=score,
    )
    rows = []
    for each in sorted(results, key=lambda each: (each.nmae is None, each.nmae, each.number)):
        ended = f"{each.state}: {each.reason}" if each.reason else each.state
        nmae = "–" if each.nmae is None else f"{each.nmae:.4f}"
        row: dict[str, str | Cell] = {"trial": str(each.number)}
        row |= {label(key): show(each.setting[key]) for key in keys}
        row |= {
            "seed": str(each.seed),
            "NMAE": Cell.judged(nmae, True if each.number == best.number else None),
            "best epoch": "–" if each.best_epoch is None else str(each.best_epoch),
            "epochs": str(each.epochs),
            "seconds": f"{each.seconds:.0f}",
            "state": Cell.judged(ended, False if each.state == "failed" else None),
            "run": each.run.rsplit("/", 1)[-1],
        }
        rows.append(row)
    note = (
        "The same as trials.csv and trials.json beside this page. One seed says little about small"
        " differences: ask for more trials than there are settings, and each is tried again with"
        " the next seed."
    )
    lines = (
        f"courant train {sweep.dataset_url} --version {sweep.version} --experiment"
        f" {sweep.folder.url}/best.json",
        f"tensorboard --logdir {sweep.folder.url}/ray",
        "",
        "import courant",
        f'surrogate = courant.load("{best.run}")',
    )
    panels = (
        Panel("hyperparameters", "Hyperparameters", [one_by_one, together]),
        Panel(
            "trials",
            "Trials, best first",
            tables=[PanelTable(rows, words=("state", "run"))],
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
    write_page(sweep.folder, title, meta, sweep_line(sweep, results), panels)
    return page_url(sweep.folder)


def sweep_line(sweep: Sweep, results: Sequence[TrialResult]) -> str:
    """Summarise the sweep in two sentences."""
    best, spent = best_trial(results), sum(result.epochs for result in results)
    whole = len(sweep.trials) * sweep.experiment.training.epochs
    states = [result.state for result in results]
    kinds = ("finished", "stopped", "failed")
    ended = [f"{states.count(state)} {state}" for state in kinds if state in states]
    return (
        f"Best of {len(results)} trials ({', '.join(ended)}): validation NMAE {best.nmae:.3f} with"
        f" {describe(best.setting)}. {spent} epochs were trained,"
        f" {spent / whole:.0%} of what all trials to their end would take."
    )


WIDE = 8
"""Numbers that span this factor get a log scale"""
FEW = 8
"""More values than this were drawn from a range: no line joins them, and they get no tick each"""
GREY, BEST_COLOR = "#9aa1a8", drawing.PALETTE[1]


def _measured(results: Sequence[TrialResult]) -> list[tuple[TrialResult, float]]:
    """Return trials with their errors; those without one are left out."""
    return [
        (each, each.nmae) for each in results if each.nmae is not None and each.state != "failed"
    ]


def scale(values: Sequence[Value], few: int = FEW) -> tuple[dict[Value, float], dict[float, str]]:
    """Return the place of each value on an axis from 0 to 1, and the ticks.

    Few values are evenly spaced in their order, those for absence or no change first; more numbers
    are on a linear scale or, over a wide range, on a logarithmic one.
    """

    def rank(value: Value) -> tuple[int, float, str]:
        if isinstance(value, float | int):
            return 1, float(value), ""
        return 0 if value in (None, "none", BASELINE) else 2, 0.0, str(value)

    ordered = sorted(set(values), key=rank)
    if len(ordered) <= few or any(isinstance(each, str) for each in ordered):
        places = np.linspace(0, 1, len(ordered)).tolist()
        names = [f"{each:.3g}" if isinstance(each, float) else show(each) for each in ordered]
        return dict(zip(ordered, places, strict=True)), dict(zip(places, names, strict=True))
    scaled = np.array(ordered, float)
    is_log = scaled[0] > 0 and scaled[-1] / scaled[0] >= WIDE
    scaled = np.log(scaled) if is_log else scaled
    ticks, low, span = np.linspace(scaled[0], scaled[-1], 5), scaled[0], np.ptp(scaled) or 1.0
    at = dict(zip(ordered, ((scaled - low) / span).tolist(), strict=True))
    return at, {
        float((tick - low) / span): f"{np.exp(tick) if is_log else tick:.3g}" for tick in ticks
    }


def draw_hyperparameters(
    results: Sequence[TrialResult], baseline: Setting, isolated: bool
) -> Figure:
    """Draw one panel per key, validation NMAE over its values on a shared scale (fig:ablations)."""
    figure, axes = drawing.axes_grid(len(baseline), 4, 3.5, 3.1, share_y=True)
    for axis, (key, value) in zip(axes, baseline.items(), strict=True):
        shown = [
            (each, nmae)
            for each, nmae in _measured(results)
            if not isolated
            or all(each.setting[other] == baseline[other] for other in baseline if other != key)
        ]
        at, ticks = scale([value, *(each.setting[key] for each, _ in shown)])
        finished, stopped = (
            [(at[e.setting[key]], nmae) for e, nmae in shown if (e.state == "finished") == is_done]
            for is_done in (True, False)
        )
        if finished and len(at) <= FEW:
            lowest = dict(sorted(finished, key=lambda point: -point[1]))
            line = sorted(lowest.items())
            axis.plot(
                *zip(*line, strict=True), color=drawing.MODEL_COLOR, label="lowest at each value"
            )
        drawn: tuple[tuple[list[tuple[float, float]], drawing.Style], ...] = (
            (finished, {"color": drawing.MODEL_COLOR, "label": "trained to the end"}),
            (stopped, {"mfc": "white", "mec": GREY, "label": "stopped early"}),
        )
        for points, style in drawn:
            if points:
                axis.plot(*zip(*points, strict=True), "o", ms=5, **style)
        axis.axvline(at[value], color=BEST_COLOR, ls="--", lw=1.2, zorder=0, label="baseline")
        axis.set_xticks(list(ticks), list(ticks.values()), rotation=30, ha="right")
        axis.set(xlabel=plain(label(key)), xlim=(-0.1, 1.1))
    axes[0].set_ylabel("validation NMAE")
    drawing.legend_above(figure, axes, 4 if len(axes) > 1 else 2)
    return figure


def draw_trials(results: Sequence[TrialResult], keys: Sequence[str]) -> Figure:
    """Draw one axis per key and one for validation NMAE, one line per trial, the best in orange."""
    measured = sorted(_measured(results), key=lambda pair: pair[1], reverse=True)
    errors = [nmae for _, nmae in measured]
    figure = Figure(figsize=(max(6.0, 2.1 * (len(keys) + 1)), 4.2))
    axis = figure.subplots()
    columns: list[list[Value]] = [[each.setting[key] for each, _ in measured] for key in keys]
    columns.append([*errors])
    box: drawing.Style = {"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.75}
    text: drawing.Style = {
        "textcoords": "offset points",
        "va": "center",
        "fontsize": 8,
        "bbox": box,
    }
    heights = []
    for place, column in enumerate(columns):
        at, ticks = scale(column, FEW if place < len(keys) else 1)
        heights.append([at[value] for value in column])
        axis.axvline(place, color="#444444", lw=0.9, zorder=1)
        for height, name in ticks.items():
            axis.annotate(name, (place, height), xytext=(5, 0), zorder=4, **text)
    shades, colors = Normalize(min(errors), max(errors) + 1e-12), colormaps["viridis"]
    for (result, nmae), line in zip(measured, zip(*heights, strict=True), strict=True):
        style: drawing.Style = {"color": colors(shades(nmae)), "lw": 1.2, "alpha": 0.75}
        if result is measured[-1][0]:
            style = {"color": BEST_COLOR, "lw": 2.6, "zorder": 3}
            style["label"] = f"best: trial {result.number}, NMAE {nmae:.3f}"
        axis.plot(line, ls="-" if result.state == "finished" else ":", **style)
    axis.set_xticks(range(len(keys) + 1), [*(plain(label(key)) for key in keys), "validation NMAE"])
    axis.set(yticks=[], xlim=(-0.3, len(keys) + 0.55), ylim=(-0.06, 1.06))
    axis.spines[:].set_visible(False)
    if any(result.state != "finished" for result, _ in measured):
        axis.plot([], [], ":", color=GREY, label="stopped early")
    drawing.legend_above(figure, [axis])
    return figure


@rc_context(rc=drawing.STYLE)
def draw_comparison(found: RunComparison) -> Figure:
    """Draw a bar for each row, with its interval, and the aim as a line where a score has one."""
    shown = [each for each in SCORES if each.key in found.keys]
    figure, axes = drawing.axes_grid(len(shown), 4, drawing.WIDTH / 4, 0.75 + 0.3 * len(found.rows))
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
) -> tuple[str, Figure, dict[str, np.ndarray]] | None:
    """Draw the strongest fields of each row's first run for the first case.

    That is the first of the test split where none is named. Returns the case, the figure, a row on
    one scale, and the arrays behind it. None where no run decomposes its predictions; rows whose
    runs do not are left out.
    """
    loaded = {row.label: load(row.runs[0]) for row in found.rows}
    datasets = {
        name: surrogate.open_dataset(dataset_url)
        for name, surrogate in loaded.items()
        if surrogate.decomposes
    }
    if not datasets:
        return None
    first, *others = (dataset.cases("test") for dataset in datasets.values())
    common = (case for case in first if all(case in cases_of for cases_of in others))
    case = cases[0] if cases else next(common)
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


ABOUT_THE_BEST = 1.02
"""Errors up to this multiple of the lowest one count as no cost"""


@rc_context(rc=drawing.STYLE)
def draw_trade_off(found: RunComparison) -> Figure | None:
    """Draw a point for each row, with the intervals of both numbers; None without such scores.

    The green corner is what the aims ask for: a good score at an error at most 2 % above the
    lowest. Errors of several families are divided by the lowest of each.
    """
    rows = [row for row in found.rows if "nmae" in row.scores]
    shown = [
        (each, each.aim)
        for each in SCORES
        if each.aim is not None and any(each.key in row.scores for row in rows)
    ]
    if not shown:
        return None
    units: dict[str, float] = {}
    for row in rows:
        lowest = row.scores["nmae"].mean
        units[row.family] = min(lowest, units.get(row.family, lowest))
    several, enough = len(units) > 1, ABOUT_THE_BEST
    if not several:
        # Errors of different flows have nothing in common but their ratio to the best.
        enough *= min(units.values())
        units = dict.fromkeys(units, 1.0)
    labels = list(dict.fromkeys(row.label for row in found.rows))

    def mark(row: ScoreRow) -> tuple[str, str]:
        number = labels.index(row.label)
        shape = found.families.index(row.family) if several else number // len(drawing.PALETTE)
        return drawing.PALETTE[number % len(drawing.PALETTE)], "oDs^"[shape % 4]

    height = 3.2 + 0.22 * len(found.rows)
    figure, axes = drawing.axes_grid(len(shown), 4, drawing.WIDTH / 4, height, share_y=True)
    ends = []
    for axis, (score, aim) in zip(axes, shown, strict=True):
        for row in rows:
            error, unit, (color, marker) = row.scores["nmae"], units[row.family], mark(row)
            ends += [error.low / unit, error.high / unit]
            if (place := row.scores.get(score.key)) is not None:
                style: drawing.Style = {"fmt": marker, "color": color, "ecolor": "#999999"}
                style["xerr"] = place.half_width or 0.0
                style["yerr"] = (error.half_width or 0.0) / unit
                axis.errorbar(place.mean, error.mean / unit, elinewidth=0.8, **style)
        axis.axvline(aim, color=drawing.GOOD_COLOR, ls="--", lw=1)
        axis.axhline(enough, color=drawing.GOOD_COLOR, ls="--", lw=1)
        axis.margins(x=0.1)
        left, right = axis.get_xlim()
        corner = (left, aim) if score.good == "small" else (aim, right)
        axis.fill_between(corner, 0, enough, color=drawing.GOOD_COLOR, alpha=0.15, lw=0)
        axis.set_xlim(left, right)
        axis.xaxis.set_major_locator(MaxNLocator(5))
        axis.set_xlabel(f"{score.name}\n({score.aim_text})", fontsize=8)
        axis.tick_params(labelsize=7)
    # The green reaches to the edge, and moves none.
    margin = 0.1 * ((max(ends) - min(ends)) or max(ends) or 1.0)
    axes[0].set_ylim(max(0.0, min(ends) - margin), max(ends) + margin)
    axes[0].set_ylabel("NMAE over the family's lowest" if several else "NMAE of the prediction")
    if several:
        named = {row.label: (mark(row)[0], "o") for row in found.rows}
        named |= {row.family: ("#1d1f21", mark(row)[1]) for row in found.rows}
    else:
        named = {found.heading(row): mark(row) for row in found.rows}
    for name, (color, marker) in named.items():
        axes[0].plot([], [], marker, color=color, label=name)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=2)
    return figure
