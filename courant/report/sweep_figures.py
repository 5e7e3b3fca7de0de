"""Draw a sweep's figures: each hyperparameter against validation NMAE, and all of them at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from courant.sweeps.search_space import BASELINE, Setting, Value, label, show
from courant.sweeps.sweep import TrialResult

COLOR, BASELINE_COLOR, GREY = "#0b5fa5", "#d9822b", "#9aa1a8"
COLUMNS = 4
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
    columns = min(COLUMNS, len(keys))
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
