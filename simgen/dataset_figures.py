"""Figures of a dataset version: its designs, sample cases, the distribution of its fields; each a function to a matplotlib Figure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from matplotlib.figure import Figure

from simgen.design_space import Parameter
from simgen.field_plots import draw_field, layer, spanning
from simgen.store.reader import Dataset, StoredCase

SPLIT_COLORS = {"train": "#0b5fa5", "validation": "#d9822b", "test": "#b3261e"}
MAX_PAIRS = 6
COLUMNS = 3
#: Values of a field that a histogram is drawn from, at most.
MAX_VALUES = 2_000_000
MAX_HISTOGRAM_CASES = 12


def designs(dataset: Dataset) -> Figure:
    """Every design in the planes of its parameters, coloured by split; crosses were not accepted.

    Of a single parameter the splits stand one above the other.
    """
    table, parameters = dataset.design, dataset.schema.parameters
    pairs: Sequence[tuple[Parameter, Parameter | None]] = list(combinations(parameters, 2))[:MAX_PAIRS]
    if not pairs:
        pairs = [(parameter, None) for parameter in parameters]
    columns = min(COLUMNS, len(pairs))
    rows = -(-len(pairs) // columns)
    width = 3.6 * columns if len(pairs) > 1 else 7.0
    figure = Figure(figsize=(width, 3.0 * rows + 0.3), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    groups = {
        **{split: (table[table["split"] == split], color, "o") for split, color in SPLIT_COLORS.items()},
        "not accepted": (table[table["status"] != "accepted"], "k", "x"),
    }
    shown = {name: group for name, group in groups.items() if len(group[0]) or name in SPLIT_COLORS}
    for axis in axes[len(pairs) :]:
        axis.set_axis_off()
    for axis, (across, up) in zip(axes, pairs, strict=False):
        for height, (name, (cases, color, marker)) in enumerate(shown.items()):
            values = [height] * len(cases) if up is None else cases[up.name]
            label = f"{name} ({len(cases)})"
            axis.scatter(cases[across.name], values, s=24, color=color, marker=marker, label=label)
        axis.set(xlabel=_label(across), xlim=_around(across.low, across.high))
        if up is None:
            axis.set_yticks(range(len(shown)), list(shown))
            axis.set_ylim(len(shown) - 0.5, -0.5)
        else:
            axis.set(ylabel=_label(up), ylim=_around(up.low, up.high))
        axis.grid(alpha=0.25)
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=4, frameon=False, fontsize=9)
    return figure


def _label(parameter: Parameter) -> str:
    return f"{parameter.name} ({parameter.unit})"


def _around(low: float, high: float) -> tuple[float, float]:
    margin = 0.05 * (high - low)
    return low - margin, high + margin


def sample_cases(cases: Sequence[StoredCase], field: str) -> Figure:
    """Magnitude of a field at the last snapshot of each case, on one scale; of a 3D case in its middle plane."""
    columns = COLUMNS
    rows = -(-len(cases) // columns)
    schema = cases[0].dataset.schema
    of = next(candidate for candidate in schema.fields if candidate.name == field)
    layers = [layer(case) for case in cases]
    height = float(np.clip(3.6 * max(each.aspect for each in layers) + 0.3, 1.0, 4.0))
    figure = Figure(figsize=(12, height * rows + 0.3), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    magnitudes = [np.linalg.norm(last_values(case, field), axis=-1) for case in cases]
    limits = (0.0, max(spanning(values)[1] for values in magnitudes))
    for axis, case, triangles, values in zip(axes, cases, layers, magnitudes, strict=False):
        artist = draw_field(axis, triangles, values, limits=limits, cmap="viridis")
        axis.set_title(_case_title(case), fontsize=8, loc="left")
    for axis in axes[len(cases) :]:
        axis.set_visible(False)
    name = field if len(of.components) == 1 else f"|{field}|"
    figure.colorbar(artist, ax=axes.tolist(), label=f"{name} ({of.unit})", shrink=0.8, pad=0.01)
    return figure


def _case_title(case: StoredCase) -> str:
    """Id, split and the first parameter, where there is one."""
    words = [case.id, case.split or ""]
    for parameter in case.dataset.schema.parameters[:1]:
        words.append(f"{parameter.name} {case.parameters[parameter.name]:.3g} {parameter.unit}")
    return "  ".join(words)


def distributions(dataset: Dataset) -> Figure:
    """Histograms of every field's components over some training cases, with the training mean and standard deviation."""
    cases = [dataset[case] for case in dataset.cases("train")[:MAX_HISTOGRAM_CASES]]
    panels = [(field, number) for field in dataset.schema.fields for number in range(len(field.components))]
    figure = Figure(figsize=(3.6 * len(panels), 2.7), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    sampled = {field.name: _sampled(cases, field.name) for field in dataset.schema.fields}
    for axis, (field, number) in zip(axes, panels, strict=True):
        values = sampled[field.name][:, number]
        mean, std = (dataset.statistics[field.name][figure_][number] for figure_ in ("mean", "std"))
        axis.hist(values, bins=100, range=spanning(values), density=True, color="#0b5fa5", alpha=0.85)
        axis.axvline(mean, color="k", lw=1)
        axis.axvspan(mean - std, mean + std, color="k", alpha=0.08, lw=0)
        component = field.components[number]
        axis.set(xlabel=f"{field.name}{f' {component}' if len(field.components) > 1 else ''} ({field.unit})", yticks=[])
    axes[0].set_ylabel("density of values")
    return figure


def last_values(case: StoredCase, field: str) -> np.ndarray:
    """(N, C): a steady field, or a transient one's last snapshot."""
    return np.asarray(case[field][-1] if case.dataset.schema.transient else case[field][:])


def _sampled(cases: Sequence[StoredCase], field: str) -> np.ndarray:
    """(n, C) values from evenly spaced snapshots of the cases."""
    blocks = []
    for case in cases:
        array = case[field]
        if case.dataset.schema.transient:
            per_snapshot = len(cases) * array.shape[1]
            count = int(np.clip(MAX_VALUES // per_snapshot, 1, min(8, array.shape[0])))
            blocks += [np.asarray(array[int((step + 0.5) / count * array.shape[0])]) for step in range(count)]
        else:
            blocks.append(np.asarray(array[:]))
    return np.concatenate(blocks)
