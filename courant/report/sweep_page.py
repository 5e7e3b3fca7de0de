"""Write the page of a sweep: its trials, what their settings do, and error against cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from courant.analysis.comparison import RunComparison, ScoreRow
from courant.analysis.scores import SCORES, AnchorScore
from courant.evaluation.ledger import Interval
from courant.report.drawing import PALETTE, WIDTH
from courant.report.page import render_page, write_panel
from courant.report.panel import Cell, Column, Panel, PanelFigure, Table
from courant.sweeps.search_space import BASELINE, Setting, Value, describe, label, show
from courant.sweeps.sweep import Sweep, TrialResult, best_trial

COLOR, BASELINE_COLOR, GREY = "#0b5fa5", "#d9822b", "#9aa1a8"
FIGURES_COLUMNS = 4
WIDE = 8
"""Numbers that span this factor get a log scale"""
FEW = 8
"""More values than this were drawn from a range: no line joins them, and they get no tick each"""
FITTING = 32
"""Letters that fit side by side under a panel; the ticks of more are tilted"""
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


def hyperparameters(results: Sequence[TrialResult], baseline: Setting, isolated: bool) -> Figure:
    """Draw one panel per key, validation NMAE over its values on a shared scale (fig:ablations).

    Where keys are varied in isolation a panel holds the trials that differ from the baseline in its
    key alone.
    """
    keys = list(baseline)
    measured = _measured(results)
    shown = {
        key: [
            each for each in measured if not isolated or _differs_only(each.setting, baseline, key)
        ]
        for key in keys
    }
    columns = min(FIGURES_COLUMNS, len(keys))
    rows = -(-len(keys) // columns)
    figure = Figure(figsize=(max(5.2, 3.5 * columns), 3.1 * rows + 0.5), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    for axis, key in zip(axes, keys, strict=False):
        _panel(axis, key, shown[key], baseline[key])
    for axis in axes[len(keys) :]:
        axis.set_axis_off()
    for axis in axes[::columns]:
        axis.set_ylabel("validation NMAE")
    handles = {
        label: handle
        for axis in axes
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    beside = len(handles) if columns > 1 else 2
    figure.legend(
        handles.values(), handles.keys(), loc="outside upper center", ncols=beside, frameon=False
    )
    return figure


def _panel(axis: Axes, key: str, results: Sequence[TrialResult], baseline: Value) -> None:
    values = _in_order({result.setting[key] for result in results} | {baseline})
    places = _places(axis, key, values)
    finished = [result for result in results if result.state == "finished"]
    stopped = [result for result in results if result.state != "finished"]
    lowest = {
        value: min((_nmae(each) for each in finished if each.setting[key] == value), default=None)
        for value in values
    }
    line = [(places[value], nmae) for value, nmae in lowest.items() if nmae is not None]
    if line and len(values) <= FEW:
        axis.plot(*zip(*line, strict=True), "-", color=COLOR, lw=1.4, label="lowest at each value")
    if finished:
        across = [places[result.setting[key]] for result in finished]
        nmae = list(map(_nmae, finished))
        axis.plot(across, nmae, "o", ms=5, color=COLOR, label="trained to the end")
    if stopped:
        across = [places[result.setting[key]] for result in stopped]
        nmae = list(map(_nmae, stopped))
        axis.plot(across, nmae, "o", ms=5, mfc="white", mec=GREY, mew=1.3, label="stopped early")
    axis.axvline(
        places[baseline], color=BASELINE_COLOR, lw=1.2, ls="--", zorder=0, label="baseline"
    )
    axis.set_xlabel(_label(key))
    axis.grid(alpha=0.25)


def _places(axis: Axes, key: str, values: Sequence[Value]) -> dict[Value, float]:
    """Place values: numbers on a scale, a log scale for a wide range; words side by side."""
    if not all(_is_number(value) for value in values):
        words = [show(value) for value in values]
        axis.set_xticks(range(len(values)), words)
        if len("".join(words)) > FITTING:
            axis.tick_params("x", rotation=40)
            for tick in axis.get_xticklabels():
                tick.set_horizontalalignment("right")
        axis.set_xlim(-0.5, len(values) - 0.5)
        return {value: float(place) for place, value in enumerate(values)}
    numbers = np.array(values, dtype=float)
    if numbers.min() > 0 and numbers.max() / numbers.min() >= WIDE:
        axis.set_xscale("log", base=2 if all(isinstance(value, int) for value in values) else 10)
    if len(values) <= FEW:
        axis.set_xticks(numbers.tolist(), [show(value) for value in values])
        axis.set_xticks([], minor=True)
    return dict(zip(values, numbers.tolist(), strict=True))


def parallel_coordinates(results: Sequence[TrialResult], keys: Sequence[str]) -> Figure:
    """Draw one axis per key and one for validation NMAE, one line per trial.

    The lower the NMAE, the darker; the best in orange.
    """
    measured = sorted(_measured(results), key=_nmae, reverse=True)
    errors = [_nmae(result) for result in measured]
    figure = Figure(figsize=(max(6.0, 2.1 * (len(keys) + 1)), 4.2), layout="constrained")
    axis = figure.subplots()
    scale, colors = Normalize(min(errors), max(errors) + 1e-12), colormaps["viridis"]
    heights = [
        _heights(axis, place, [result.setting[key] for result in measured])
        for place, key in enumerate(keys)
    ]
    heights.append(_heights(axis, len(keys), errors, continuous=True))
    for index, result in enumerate(measured):
        best = index == len(measured) - 1
        axis.plot(
            range(len(keys) + 1),
            [column[index] for column in heights],
            color=BASELINE_COLOR if best else colors(scale(_nmae(result))),
            lw=2.6 if best else 1.2,
            alpha=1 if best else 0.75,
            ls="-" if result.state == "finished" else ":",
            zorder=3 if best else 2,
            label=f"best: trial {result.number}, NMAE {_nmae(result):.3f}" if best else None,
        )
    axis.set_xticks(range(len(keys) + 1), [*map(_label, keys), "validation NMAE"])
    axis.set(yticks=[], xlim=(-0.3, len(keys) + 0.55), ylim=(-0.06, 1.06))
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)
    if any(result.state != "finished" for result in measured):
        axis.plot([], [], ":", color=GREY, label="stopped early")
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    return figure


def _heights(
    axis: Axes, place: int, column: Sequence[Value], continuous: bool = False
) -> list[float]:
    """Draw a vertical axis at `place` with its ticks; return each value's height, 0 to 1."""
    values = _in_order(set(column))
    numeric = all(_is_number(value) for value in values)
    if continuous or (numeric and len(values) > FEW):
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
    for height, text in marks.items():
        axis.annotate(
            text,
            (place, height),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            zorder=4,
            bbox={"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.75},
        )
    return heights


def _measured(results: Sequence[TrialResult]) -> list[TrialResult]:
    return [result for result in results if result.nmae is not None and result.state != "failed"]


def _nmae(result: TrialResult) -> float:
    return float("nan") if result.nmae is None else result.nmae


def _differs_only(setting: Setting, baseline: Setting, key: str) -> bool:
    return all(setting[other] == baseline[other] for other in baseline if other != key)


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
    name = label(key)
    return LABELS.get(name, name.replace("_", " "))


TRADE_OFF_COLUMNS = 4
ERROR = "nmae"
ABOUT_THE_BEST = 1.02
"""Errors up to this multiple of the lowest one count as no cost"""

_GOOD = "#1a7f37"
_NEUTRAL = "#1d1f21"
_MARKERS = ("o", "D", "s", "^")

Mark = tuple[str, str]
"""Colour and marker"""


@dataclass(frozen=True)
class _Drawn:
    """A row with an error, as the figure shows it."""

    row: ScoreRow
    error: Interval
    mark: Mark


def draw_trade_off(found: RunComparison) -> Figure | None:
    """Draw a point for each row, with the intervals of both numbers; None without such scores.

    The green corner is what the aims ask for: a good score at an error at most 2 % above the
    lowest. Errors of several families are divided by the lowest of each.
    """
    shown = [
        each
        for each in SCORES
        if each.aim is not None
        and any({ERROR, each.key} <= row.scores.keys() for row in found.rows)
    ]
    if not shown:
        return None
    columns = min(TRADE_OFF_COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    height = 3.2 * rows + 0.22 * len(found.rows)
    figure = Figure(figsize=(WIDTH * columns / TRADE_OFF_COLUMNS, height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    for axis in grid[len(shown) :]:
        axis.set_visible(False)
    marks = _marks(found)
    scored = [
        (row, mark) for row, mark in zip(found.rows, marks, strict=True) if ERROR in row.scores
    ]
    best = {
        family: min(row.scores[ERROR].mean for row, _ in scored if row.family == family)
        for family in {row.family for row, _ in scored}
    }
    # Errors of different flows have nothing in common but their ratio to the best.
    several = len(best) > 1
    drawn = [
        _Drawn(row, _over(row.scores[ERROR], best[row.family] if several else 1.0), mark)
        for row, mark in scored
    ]
    enough = ABOUT_THE_BEST * (1.0 if several else min(best.values()))
    for axis, score in zip(grid, shown, strict=False):
        _draw(axis, score, drawn)
        _draw_aim(axis, score, enough)
    # The green reaches to the edge, and moves none.
    low = min(each.error.low for each in drawn)
    high = max(each.error.high for each in drawn)
    margin = 0.1 * ((high - low) or high or 1.0)
    grid[0].set_ylim(max(0.0, low - margin), high + margin)
    for axis in grid[::columns]:
        label = "NMAE over the family's lowest" if several else "NMAE of the prediction"
        axis.set_ylabel(label, fontsize=8)
    figure.legend(
        handles=_legend(found, marks), loc="outside lower left", fontsize=8, frameon=False, ncols=2
    )
    return figure


def _marks(found: RunComparison) -> list[Mark]:
    """Return the colour and the marker of each row; of several families, one marker for each."""
    labels = list(dict.fromkeys(row.label for row in found.rows))
    several = len(found.families) > 1
    marks = []
    for row in found.rows:
        number = labels.index(row.label)
        shape = found.families.index(row.family) if several else number // len(PALETTE)
        marks.append((PALETTE[number % len(PALETTE)], _MARKERS[shape % len(_MARKERS)]))
    return marks


def _legend(found: RunComparison, marks: Sequence[Mark]) -> list[Line2D]:
    """Name each row; of several families, each colour and each marker."""
    if len(found.families) == 1:
        named = [(*mark, found.heading(row)) for row, mark in zip(found.rows, marks, strict=True)]
    else:
        colors = {row.label: color for row, (color, _) in zip(found.rows, marks, strict=True)}
        shapes = {row.family: shape for row, (_, shape) in zip(found.rows, marks, strict=True)}
        named = [(color, _MARKERS[0], label) for label, color in colors.items()]
        named += [(_NEUTRAL, shape, family) for family, shape in shapes.items()]
    return [
        Line2D([], [], color=color, marker=marker, ls="", label=label)
        for color, marker, label in named
    ]


def _over(error: Interval, unit: float) -> Interval:
    half = None if error.half_width is None else error.half_width / unit
    return Interval(error.mean / unit, half, error.count)


def _draw(axis: Axes, score: AnchorScore, drawn: Sequence[_Drawn]) -> None:
    for each in drawn:
        if (place := each.row.scores.get(score.key)) is None:
            continue
        color, marker = each.mark
        axis.errorbar(
            [place.mean],
            [each.error.mean],
            xerr=[place.half_width or 0.0],
            yerr=[each.error.half_width or 0.0],
            fmt=marker,
            color=color,
            ecolor="#999999",
            elinewidth=0.8,
        )


def _draw_aim(axis: Axes, score: AnchorScore, enough: float) -> None:
    assert score.aim is not None
    axis.axvline(score.aim, color=_GOOD, ls="--", lw=1)
    axis.axhline(enough, color=_GOOD, ls="--", lw=1)
    axis.margins(x=0.1)
    left, right = axis.get_xlim()
    near, far = (left, score.aim) if score.good == "small" else (score.aim, right)
    axis.fill_between([near, far], 0, enough, color=_GOOD, alpha=0.15, lw=0)
    axis.set_xlim(left, right)
    axis.xaxis.set_major_locator(MaxNLocator(5))
    axis.set_xlabel(f"{score.name}\n({score.aim_text})", fontsize=8)
    axis.tick_params(labelsize=7)
    axis.spines[["top", "right"]].set_visible(False)


PAGE = "index.html"
HYPERPARAMETERS = "hyperparameters.png"
PARALLEL = "parallel_coordinates.png"


def write_sweep_page(sweep: Sweep, results: Sequence[TrialResult]) -> str:
    """Write index.html and its figures into the sweep's folder; return the page's URL.

    Raises TrainingError where no trial was validated.
    """
    line = verdict(sweep, results)
    panels = (
        _hyperparameters(sweep, results),
        _together(sweep, results),
        _trials(sweep, results),
        _next_steps(sweep, results),
    )
    drawn: dict[str, bytes] = {}
    for panel in panels:
        write_panel(sweep.folder, panel, drawn)
    epochs = sweep.experiment.training.epochs
    meta = (
        sweep.space.about,
        f"dataset {sweep.dataset_url} {sweep.version}",
        f"{len(results)} trials of up to {epochs} epochs",
    )
    title = f"Sweep {sweep.space.name} of {sweep.experiment.name}"
    page = render_page(title, [words for words in meta if words], line, panels, drawn)
    sweep.folder.write_bytes(PAGE, page.encode())
    return f"{sweep.folder.url}/{PAGE}"


def verdict(sweep: Sweep, results: Sequence[TrialResult]) -> str:
    """Summarise the sweep in two sentences."""
    best, spent = best_trial(results), sum(result.epochs for result in results)
    states = [result.state for result in results]
    ended = [
        f"{states.count(state)} {state}"
        for state in ("finished", "stopped", "failed")
        if state in states
    ]
    share = spent / sweep.epochs_to_the_end
    return (
        f"Best of {len(results)} trials ({', '.join(ended)}): "
        f"validation NMAE {best.nmae:.3f} with {describe(best.setting)}. "
        f"{spent} epochs were trained, {share:.0%} of what all trials to their end would take."
    )


def _hyperparameters(sweep: Sweep, results: Sequence[TrialResult]) -> Panel:
    isolated = sweep.space.design == "isolated"
    varied = (
        "Each panel varies one hyperparameter and holds the others at the baseline (dashed)."
        if isolated
        else "Each panel shows all trials, whatever their other values; the baseline is dashed."
    )
    caption = (
        f"Validation NMAE of the weights that each trial keeps. {varied} "
        "Hollow: stopped early, so its error would have fallen further."
    )
    figure = hyperparameters(results, sweep.baseline, isolated)
    shown = PanelFigure(
        HYPERPARAMETERS,
        figure,
        caption,
        look_for="A setting matters where the error changes along its axis more than it scatters.",
        score=_best(results),
    )
    return Panel("hyperparameters", "Each hyperparameter", (shown,))


def _best(results: Sequence[TrialResult]) -> str:
    return f"Lowest validation NMAE {best_trial(results).nmae:.3f}"


def _together(sweep: Sweep, results: Sequence[TrialResult]) -> Panel:
    caption = (
        "One line per trial, darker for a lower error; the best in orange, trials that were stopped"
        " early dotted."
    )
    figure = parallel_coordinates(results, list(sweep.baseline))
    shown = PanelFigure(
        PARALLEL,
        figure,
        caption,
        look_for="Dark lines that run together show the settings that good trials share.",
        score=_best(results),
    )
    return Panel("together", "Together", (shown,))


def _trials(sweep: Sweep, results: Sequence[TrialResult]) -> Panel:
    best, keys = best_trial(results), list(sweep.baseline)
    names = (
        "trial",
        *(label(key) for key in keys),
        *("seed", "NMAE", "best epoch", "epochs", "seconds"),
    )
    columns = (
        *map(Column, names),
        Column("state", is_number=False),
        Column("run", is_number=False),
    )
    ranked = sorted(results, key=lambda each: (each.nmae is None, each.nmae, each.number))
    rows = tuple(_row(result, keys, result.number == best.number) for result in ranked)
    note = (
        "The same as trials.csv and trials.json beside this page. One seed says little about small "
        "differences: ask for more trials than there are settings, and each is tried again with "
        "the next seed."
    )
    note = " ".join([note, *(f"{line}." for line in sweep.left_out)])
    return Panel("trials", "Trials, best first", tables=(Table(columns, rows),), note=note)


def _row(result: TrialResult, keys: Sequence[str], is_best: bool) -> tuple[Cell, ...]:
    ended = f"{result.state}: {result.reason}" if result.reason else result.state
    nmae = "–" if result.nmae is None else f"{result.nmae:.4f}"
    return (
        Cell(str(result.number)),
        *(Cell(show(result.setting[key])) for key in keys),
        Cell(str(result.seed)),
        Cell(nmae, "good" if is_best else ""),
        Cell("–" if result.best_epoch is None else str(result.best_epoch)),
        Cell(str(result.epochs)),
        Cell(f"{result.seconds:.0f}"),
        Cell(ended, "bad" if result.state == "failed" else ""),
        Cell(result.run.rsplit("/", 1)[-1]),
    )


def _next_steps(sweep: Sweep, results: Sequence[TrialResult]) -> Panel:
    lines = (
        (
            f"courant train {sweep.dataset_url} --version {sweep.version} --experiment"
            f" {sweep.folder.url}/best.json"
        ),
        f"tensorboard --logdir {sweep.folder.url}/ray",
        "",
        "import courant",
        f'surrogate = courant.load("{best_trial(results).run}")',
    )
    return Panel("next_steps", "Go on", code="\n".join(lines))
