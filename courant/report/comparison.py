"""Figures of several runs: the page of a sweep, scores side by side, and what legibility costs."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from courant.analysis.case_scores import score_case
from courant.analysis.comparison import RunComparison
from courant.analysis.scores import SCORES
from courant.prediction.surrogate import load
from courant.report import drawing
from courant.report.drawing import MAGNITUDES, FieldMap, draw_maps
from courant.report.page import Cell, Panel, PanelTable, Picture, page_url, plain, write_page
from courant.sweeps.search_space import BASELINE, Setting, Value, describe, label, show
from courant.sweeps.sweep import Sweep, TrialResult, best_trial, trial_rows
from simgen.publish.figures import layer

HYPERPARAMETERS = "hyperparameters.png"


@rc_context(rc=drawing.STYLE)
def write_sweep_page(sweep: Sweep, results: Sequence[TrialResult]) -> str:
    """Write index.html and its figures into the sweep's folder; return the page's URL.

    Raises TrainingError where no trial was validated.
    """
    best, isolated = best_trial(results), sweep.space.design == "isolated"
    varied = "the others at the baseline (dashed)" if isolated else "whatever the others"
    one_by_one = Picture(
        HYPERPARAMETERS,
        f"Validation NMAE of the weights that each trial keeps by one hyperparameter, {varied}."
        " Hollow: stopped early, so its error would have fallen further.",
        draw_hyperparameters(results, sweep.baseline, isolated),
        look_for="A setting matters where the error changes along its axis more than it scatters.",
        score=f"Lowest validation NMAE {best.nmae:.3f}",
    )
    rows = []
    ranked = sorted(
        zip(results, trial_rows(sweep, results), strict=True),
        key=lambda pair: (pair[0].nmae is None, pair[0].nmae, pair[0].number),
    )
    for result, row in ranked:
        cells: dict[str, str | Cell] = {
            plain(name): "–" if value is None else show(value) for name, value in row.items()
        }
        if result is best:
            cells["nmae"] = Cell(show(result.nmae), "good")
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
        f" {sweep.folder.url}/best.json",
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

    figure, axes = drawing.axes_grid(len(baseline), 4, 3.5, 3.1, share_y=True)
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
        at: dict[Value, Any] = {
            each: each if is_range else place for place, each in enumerate(ordered)
        }
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
"""Errors up to this multiple of the family's lowest one count as no cost"""
MARKERS = "oDs^vPX*"
"""By family, of five rows each, and those after them"""


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
    figure, axes = drawing.axes_grid(len(shown), 4, drawing.WIDTH / 4, height, share_y=True)
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
                    color=drawing.PALETTE[number % 5],
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
