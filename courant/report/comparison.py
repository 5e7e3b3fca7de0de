"""Figures of several runs: the page of a sweep, scores side by side, and what legibility costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from courant.analysis.case_scores import score_case
from courant.analysis.comparison import RunComparison
from courant.analysis.scores import SCORES, AnchorFields
from courant.evaluation.ledger import Interval
from courant.prediction.surrogate import load
from courant.report.context import (
    GOOD_COLOR,
    MAGNITUDES,
    MODEL_COLOR,
    PALETTE,
    WIDTH,
    Style,
    axes_grid,
    height_of,
    legend_above,
    mark_anchor,
    top_limits,
)
from courant.report.page import Cell, Panel, PanelTable, Picture, page_url, plain, write_page
from courant.sweeps.search_space import BASELINE, Setting, Value, describe, label, show
from courant.sweeps.sweep import Sweep, TrialResult, best_trial
from simgen.publish.figures import Layer, draw_field, layer

HYPERPARAMETERS = "hyperparameters.png"
PARALLEL = "parallel_coordinates.png"


def write_sweep_page(sweep: Sweep, results: Sequence[TrialResult]) -> str:
    """Write index.html and its figures into the sweep's folder; return the page's URL.

    Raises TrainingError where no trial was validated.
    """
    best, keys = best_trial(results), list(sweep.baseline)
    score = f"Lowest validation NMAE {best.nmae:.3f}"
    isolated = sweep.space.design == "isolated"
    varied = (
        "Each panel varies one hyperparameter and holds the others at the baseline (dashed)."
        if isolated
        else "Each panel shows all trials, whatever their other values; the baseline is dashed."
    )
    one_by_one = Picture(
        HYPERPARAMETERS,
        f"Validation NMAE of the weights that each trial keeps. {varied} Hollow: stopped early, so"
        " its error would have fallen further.",
        partial(draw_hyperparameters, results, sweep.baseline, isolated),
        look_for="A setting matters where the error changes along its axis more than it scatters.",
        score=score,
    )
    together = Picture(
        PARALLEL,
        "One line per trial, darker for a lower error; the best in orange, trials that were stopped"
        " early dotted.",
        partial(draw_trials, results, keys),
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
        Panel("hyperparameters", "Each hyperparameter", [one_by_one]),
        Panel("together", "Together", [together]),
        Panel(
            "trials",
            "Trials, best first",
            tables=[PanelTable(rows, words=("state", "run"))],
            note=" ".join([note, *(f"{line}." for line in sweep.left_out)]),
        ),
        Panel("next_steps", "Go on", code="\n".join(lines)),
    )
    meta = (
        sweep.space.about,
        f"dataset {sweep.dataset_url} {sweep.version}",
        f"{len(results)} trials of up to {sweep.experiment.training.epochs} epochs",
    )
    title = f"Sweep {sweep.space.name} of {sweep.experiment.name}"
    line = sweep_line(sweep, results)
    write_page(sweep.folder, title, list(filter(None, meta)), line, panels)
    return page_url(sweep.folder)


def sweep_line(sweep: Sweep, results: Sequence[TrialResult]) -> str:
    """Summarise the sweep in two sentences."""
    best, spent = best_trial(results), sum(result.epochs for result in results)
    whole = len(sweep.trials) * sweep.experiment.training.epochs
    states = [result.state for result in results]
    ended = [
        f"{states.count(state)} {state}"
        for state in ("finished", "stopped", "failed")
        if state in states
    ]
    return (
        f"Best of {len(results)} trials ({', '.join(ended)}): validation NMAE {best.nmae:.3f} with"
        f" {describe(best.setting)}. {spent} epochs were trained,"
        f" {spent / whole:.0%} of what all trials to their end would take."
    )


WIDE = 8
"""Numbers that span this factor get a log scale"""
FEW = 8
"""More values than this were drawn from a range: no line joins them, and they get no tick each"""
FITTING = 32
"""Letters that fit side by side under a panel; the ticks of more are tilted"""
GREY, BEST_COLOR = "#9aa1a8", PALETTE[1]
LABELS = {
    "num_anchors": "anchors $L$",
    "num_levels": "Perceiver levels",
    "num_heads": "attention heads",
    "num_loops": "self-attention loops",
    "gaussian_window": "Gaussian window in",
    "window_scale": r"window scale $\alpha$",
    "anchor_kind": "anchors",
    "shared_embedding": "shared embedding",
    "learning_rate": "learning rate",
}
"""The paper's labels of some keys; other keys are labelled by their own name"""


def _measured(results: Sequence[TrialResult]) -> list[tuple[TrialResult, float]]:
    """Return trials with their errors; those without one are left out."""
    return [
        (each, each.nmae) for each in results if each.nmae is not None and each.state != "failed"
    ]


def draw_hyperparameters(
    results: Sequence[TrialResult], baseline: Setting, isolated: bool
) -> Figure:
    """Draw one panel per key, validation NMAE over its values on a shared scale (fig:ablations)."""
    figure, axes, columns = axes_grid(
        len(baseline),
        4,
        lambda columns, rows: (max(5.2, 3.5 * columns), 3.1 * rows + 0.5),
        share_y=True,
    )
    for axis, key in zip(axes, baseline, strict=True):
        shown = [
            (each, nmae)
            for each, nmae in _measured(results)
            if not isolated
            or all(each.setting[other] == baseline[other] for other in baseline if other != key)
        ]
        _draw_key(axis, key, shown, baseline[key])
    for axis in axes[::columns]:
        axis.set_ylabel("validation NMAE")
    legend_above(figure, axes, None if columns > 1 else 2)
    return figure


def _draw_key(
    axis: Axes, key: str, results: Sequence[tuple[TrialResult, float]], baseline: Value
) -> None:
    """Draw error over a key's values: numbers on a linear or log scale, words side by side."""
    values = _in_order({each.setting[key] for each, _ in results} | {baseline})
    if all(map(_is_number, values)):
        numbers = np.array(values, dtype=float)
        if numbers.min() > 0 and numbers.max() / numbers.min() >= WIDE:
            is_whole = all(isinstance(value, int) for value in values)
            axis.set_xscale("log", base=2 if is_whole else 10)
        if len(values) <= FEW:
            axis.set_xticks(numbers.tolist(), list(map(show, values)))
            axis.set_xticks([], minor=True)
    else:
        numbers, words = np.arange(len(values), dtype=float), list(map(show, values))
        axis.set_xticks(range(len(values)), words)
        if len("".join(words)) > FITTING:
            axis.tick_params("x", rotation=40)
            for tick in axis.get_xticklabels():
                tick.set_horizontalalignment("right")
        axis.set_xlim(-0.5, len(values) - 0.5)
    places = dict(zip(values, numbers.tolist(), strict=True))
    groups: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for each, nmae in results:
        groups[each.state == "finished"].append((places[each.setting[key]], nmae))
    finished, stopped = groups[True], groups[False]
    lowest: dict[float, float] = {}
    for place, nmae in finished:
        lowest[place] = min(nmae, lowest.get(place, nmae))
    line: Style = {"color": MODEL_COLOR, "label": "lowest at each value"}
    if lowest and len(values) <= FEW:
        ordered = [place for place in places.values() if place in lowest]
        axis.plot(ordered, [lowest[place] for place in ordered], "-", lw=1.4, **line)
    if finished:
        style: Style = {"color": MODEL_COLOR, "label": "trained to the end"}
        axis.plot(*zip(*finished, strict=True), "o", ms=5, **style)
    if stopped:
        hollow: Style = {"mfc": "white", "mec": GREY, "label": "stopped early"}
        axis.plot(*zip(*stopped, strict=True), "o", ms=5, mew=1.3, **hollow)
    axis.axvline(places[baseline], color=BEST_COLOR, lw=1.2, ls="--", zorder=0, label="baseline")
    axis.set_xlabel(_label(key))
    axis.grid(alpha=0.25)


def draw_trials(results: Sequence[TrialResult], keys: Sequence[str]) -> Figure:
    """Draw one axis per key and one for validation NMAE, one line per trial, the best in orange."""
    measured = sorted(_measured(results), key=lambda pair: pair[1], reverse=True)
    errors = [nmae for _, nmae in measured]
    figure = Figure(figsize=(max(6.0, 2.1 * (len(keys) + 1)), 4.2), layout="constrained")
    axis = figure.subplots()
    scale, colors = Normalize(min(errors), max(errors) + 1e-12), colormaps["viridis"]
    heights = [
        _draw_values(axis, place, [result.setting[key] for result, _ in measured])
        for place, key in enumerate(keys)
    ]
    heights.append(_draw_values(axis, len(keys), errors, continuous=True))
    for (result, nmae), line in zip(measured, zip(*heights, strict=True), strict=True):
        best = result is measured[-1][0]
        axis.plot(
            line,
            color=BEST_COLOR if best else colors(scale(nmae)),
            lw=2.6 if best else 1.2,
            alpha=1 if best else 0.75,
            ls="-" if result.state == "finished" else ":",
            zorder=3 if best else 2,
            label=f"best: trial {result.number}, NMAE {nmae:.3f}" if best else None,
        )
    axis.set_xticks(range(len(keys) + 1), [*map(_label, keys), "validation NMAE"])
    axis.set(yticks=[], xlim=(-0.3, len(keys) + 0.55), ylim=(-0.06, 1.06))
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)
    if any(result.state != "finished" for result, _ in measured):
        axis.plot([], [], ":", color=GREY, label="stopped early")
    legend_above(figure, [axis], 2)
    return figure


def _draw_values(
    axis: Axes, place: int, column: Sequence[Value], continuous: bool = False
) -> list[float]:
    """Draw a vertical axis at `place` with its ticks; return each value's height, 0 to 1."""
    values = _in_order(set(column))
    if continuous or (all(map(_is_number, values)) and len(values) > FEW):
        numbers = np.array(column, dtype=float)
        log = numbers.min() > 0 and numbers.max() / numbers.min() >= WIDE
        scaled = np.log(numbers) if log else numbers
        span = float(np.ptp(scaled)) or 1.0
        ticks = np.linspace(scaled.min(), scaled.max(), 5)
        marks = {
            float((tick - scaled.min()) / span): f"{np.exp(tick) if log else tick:.3g}"
            for tick in ticks
        }
        heights = ((scaled - scaled.min()) / span).tolist()
    else:
        at = {value: index / max(1, len(values) - 1) for index, value in enumerate(values)}
        marks = {
            height: f"{value:.3g}" if isinstance(value, float) else show(value)
            for value, height in at.items()
        }
        heights = [at[value] for value in column]
    axis.axvline(place, color="#444444", lw=0.9, ymin=0.05, ymax=0.95, zorder=1)
    box: Style = {"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.75}
    style: Style = {
        "textcoords": "offset points",
        "va": "center",
        "fontsize": 8,
        "zorder": 4,
        "bbox": box,
    }
    for height, text in marks.items():
        axis.annotate(text, (place, height), xytext=(5, 0), **style)
    return heights


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _in_order(values: set[Value]) -> list[Value]:
    """Sort numbers by size, then words; those for absence or no change come first."""

    def order(value: Value) -> tuple[int, float, str]:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return 1, float(value), ""
        return 2 * (value not in ("none", BASELINE)), 0.0, str(value)

    return sorted(values, key=order)


def _label(key: str) -> str:
    return LABELS.get(label(key), plain(label(key)))


def draw_comparison(found: RunComparison) -> Figure:
    """Draw a bar for each row, with its interval, and the aim as a line where a score has one."""
    shown = [each for each in SCORES if each.key in found.keys]
    height = 0.75 + 0.3 * len(found.rows)
    figure, axes, columns = axes_grid(len(shown), 4, lambda _, rows: (WIDTH, height * rows + 0.3))
    places = np.arange(len(found.rows))[::-1]
    colors = [PALETTE[row % len(PALETTE)] for row in range(len(found.rows))]
    for number, (axis, score) in enumerate(zip(axes, shown, strict=True)):
        intervals = [row.scores.get(score.key) for row in found.rows]
        means = [np.nan if each is None else each.mean for each in intervals]
        widths = [0.0 if each is None else each.half_width or 0.0 for each in intervals]
        axis.barh(places, means, xerr=widths, color=colors, height=0.7, ecolor="#333333")
        # Rows without the score keep their place.
        axis.set_ylim(-0.6, len(places) - 0.4)
        if score.aim is not None:
            axis.axvline(score.aim, color=GOOD_COLOR, ls="--", lw=1)
        labels = [row.label for row in found.rows] if number % columns == 0 else []
        axis.set_yticks(places if labels else [], labels, fontsize=8)
        good = "" if score.good == "neither" else f"\n({score.good} is good)"
        axis.set_title(f"{score.name}{good}", fontsize=8, loc="left")
        axis.tick_params(axis="x", labelsize=7)
        axis.spines[["top", "right"]].set_visible(False)
    return figure


@dataclass(frozen=True)
class FieldsOfRuns:
    """The fields of the first run of several rows in the prediction of one case."""

    case: str
    plane: Layer
    rows: dict[str, AnchorFields]
    """By the row's label"""

    def arrays(self) -> dict[str, np.ndarray]:
        """Return points, and of each row anchors, magnitudes and places of the strongest."""
        found: dict[str, np.ndarray] = {"points": next(iter(self.rows.values())).points}
        for number, (name, fields) in enumerate(self.rows.items()):
            strongest = _strongest(fields)
            found[f"label_{number}"] = np.array(name)
            found[f"anchors_{number}"] = strongest
            found[f"magnitudes_{number}"] = fields.magnitudes[strongest]
            if fields.anchors is not None:
                found[f"places_{number}"] = fields.anchors[strongest]
        return found


def _strongest(fields: AnchorFields) -> np.ndarray:
    """Return the numbers of the six strongest anchors, in order."""
    return np.argsort(-fields.energies, kind="stable")[:6]


def fields_of_runs(
    found: RunComparison, cases: Sequence[str] = (), dataset_url: str | None = None
) -> FieldsOfRuns | None:
    """Decompose the first run of each row for the first case (none: of the test split).

    None where no run decomposes its predictions. Rows whose runs do not are left out.
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
    chosen = cases[0] if cases else next(common)
    stored = {name: dataset[chosen] for name, dataset in datasets.items()}
    rows = {name: score_case(loaded[name], case).fields for name, case in stored.items()}
    return FieldsOfRuns(chosen, layer(next(iter(stored.values()))), rows)


def draw_run_fields(found: FieldsOfRuns) -> Figure:
    """Draw the magnitudes of the strongest fields, a row's on one scale, with their anchors."""
    plane = found.plane
    columns = max(len(_strongest(fields)) for fields in found.rows.values())
    height = height_of(plane.aspect, WIDTH / columns, 1.0, 3.2) + 0.6
    figure = Figure(figsize=(WIDTH, height * len(found.rows)), layout="constrained")
    parts = figure.subfigures(len(found.rows), 1, squeeze=False)[:, 0]
    for part, (name, fields) in zip(parts, found.rows.items(), strict=True):
        part.suptitle(name, fontsize=9, x=0.005, ha="left")
        axes = part.subplots(1, columns, squeeze=False)[0]
        strongest = _strongest(fields)
        limits = top_limits(fields.magnitudes[strongest][:, plane.cell])
        shares = fields.energies / (float(fields.energies.sum()) or 1.0)
        for axis in axes[len(strongest) :]:
            axis.set_visible(False)
        for axis, anchor in zip(axes, strongest, strict=False):
            draw_field(axis, plane, fields.magnitudes[anchor], limits=limits, cmap=MAGNITUDES)
            mark_anchor(axis, fields.anchors, anchor, plane)
            title = f"anchor {anchor}, {shares[anchor]:.0%} of the energy"
            axis.set_title(title, fontsize=7, loc="left")
    return figure


ABOUT_THE_BEST = 1.02
"""Errors up to this multiple of the lowest one count as no cost"""


def draw_trade_off(found: RunComparison) -> Figure | None:
    """Draw a point for each row, with the intervals of both numbers; None without such scores.

    The green corner is what the aims ask for: a good score at an error at most 2 % above the
    lowest. Errors of several families are divided by the lowest of each.
    """
    rows = [row for row in found.rows if "nmae" in row.scores]
    shown = [
        each
        for each in SCORES
        if each.aim is not None and any(each.key in row.scores for row in rows)
    ]
    if not shown:
        return None
    figure, axes, columns = axes_grid(
        len(shown),
        4,
        lambda columns, lines: (WIDTH * columns / 4, 3.2 * lines + 0.22 * len(found.rows)),
        share_y=True,
    )
    best = {
        family: min(row.scores["nmae"].mean for row in rows if row.family == family)
        for family in {row.family for row in rows}
    }
    # Errors of different flows have nothing in common but their ratio to the best.
    several = len(best) > 1
    errors = []
    for row in rows:
        error, unit = row.scores["nmae"], best[row.family] if several else 1.0
        half = None if error.half_width is None else error.half_width / unit
        errors.append(Interval(error.mean / unit, half, error.count))
    enough = ABOUT_THE_BEST * (1.0 if several else min(best.values()))
    marks = {}
    labels = list(dict.fromkeys(row.label for row in found.rows))
    for row in found.rows:
        number = labels.index(row.label)
        by_family = len(found.families) > 1
        shape = found.families.index(row.family) if by_family else number // len(PALETTE)
        marks[id(row)] = PALETTE[number % len(PALETTE)], "oDs^"[shape % 4]
    for axis, score in zip(axes, shown, strict=True):
        assert score.aim is not None
        for row, error in zip(rows, errors, strict=True):
            if (place := row.scores.get(score.key)) is None:
                continue
            color, marker = marks[id(row)]
            widths: Style = {"xerr": [place.half_width or 0.0], "yerr": [error.half_width or 0.0]}
            style: Style = {"fmt": marker, "color": color, "ecolor": "#999999", "elinewidth": 0.8}
            axis.errorbar([place.mean], [error.mean], **widths, **style)
        axis.axvline(score.aim, color=GOOD_COLOR, ls="--", lw=1)
        axis.axhline(enough, color=GOOD_COLOR, ls="--", lw=1)
        axis.margins(x=0.1)
        left, right = axis.get_xlim()
        ends = (left, score.aim) if score.good == "small" else (score.aim, right)
        axis.fill_between(ends, 0, enough, color=GOOD_COLOR, alpha=0.15, lw=0)
        axis.set_xlim(left, right)
        axis.xaxis.set_major_locator(MaxNLocator(5))
        axis.set_xlabel(f"{score.name}\n({score.aim_text})", fontsize=8)
        axis.tick_params(labelsize=7)
        axis.spines[["top", "right"]].set_visible(False)
    # The green reaches to the edge, and moves none.
    low, high = min(each.low for each in errors), max(each.high for each in errors)
    margin = 0.1 * ((high - low) or high or 1.0)
    axes[0].set_ylim(max(0.0, low - margin), high + margin)
    for axis in axes[::columns]:
        over = "NMAE over the family's lowest" if several else "NMAE of the prediction"
        axis.set_ylabel(over, fontsize=8)
    if len(found.families) > 1:
        named = {row.label: (marks[id(row)][0], "o") for row in found.rows}
        named |= {row.family: ("#1d1f21", marks[id(row)][1]) for row in found.rows}
    else:
        named = {found.heading(row): marks[id(row)] for row in found.rows}
    handles = [
        Line2D([], [], color=color, marker=marker, ls="", label=name)
        for name, (color, marker) in named.items()
    ]
    figure.legend(handles=handles, loc="outside lower left", fontsize=8, frameon=False, ncols=2)
    return figure
