"""Draw figures of a dataset version: designs, sample cases, and field distributions.

Each is a function that returns a matplotlib Figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from matplotlib.figure import Figure

from simgen.case import Field
from simgen.design_space import Parameter
from simgen.publish.field_plots import add_colorbar, draw_field, layer, spanning
from simgen.store.read import Dataset, StoredCase
from simgen.store.split import RATIOS

SPLIT_COLORS = {
    "train": "#0b5fa5",
    "validation": "#d9822b",
    "test": "#b3261e",
    "calibration": "#6a4c93",
}
MAX_PAIRS = 6
COLUMNS = 3
#: A histogram is drawn from at most this many values of a field.
MAX_VALUES = 2_000_000
MAX_HISTOGRAM_CASES = 12


def designs(dataset: Dataset) -> Figure:
    """Draw every design in the planes of its parameters, coloured by split.

    Crosses mark designs that were not accepted. With a single parameter the splits are stacked.
    """
    table, parameters = dataset.design, dataset.schema.parameters
    pairs: Sequence[tuple[Parameter, Parameter | None]] = list(combinations(parameters, 2))[
        :MAX_PAIRS
    ]
    if not pairs:
        pairs = [(parameter, None) for parameter in parameters]
    columns = min(COLUMNS, len(pairs))
    rows = -(-len(pairs) // columns)
    width = 3.6 * columns if len(pairs) > 1 else 7.0
    figure = Figure(figsize=(width, 3.0 * rows + 0.3), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    groups = {
        **{
            split: (table[table["split"] == split], color, "o")
            for split, color in SPLIT_COLORS.items()
        },
        "not accepted": (table[table["status"] != "accepted"], "k", "x"),
    }
    shown = {name: group for name, group in groups.items() if len(group[0]) or name in RATIOS}
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
    figure.legend(*handles, loc="outside upper center", ncols=5, frameon=False, fontsize=9)
    return figure


def _label(parameter: Parameter) -> str:
    return _with_unit(parameter.name, parameter.unit)


def _with_unit(name: str, unit: str) -> str:
    return f"{name} ({unit})" if unit else name


def _around(low: float, high: float) -> tuple[float, float]:
    margin = 0.05 * (high - low)
    return low - margin, high + margin


def sample_cases(cases: Sequence[StoredCase], field: str) -> Figure:
    """Draw a field, or its magnitude, at the last snapshot of each case, all on one scale.

    A 3D case is shown in its middle plane.
    """
    columns = COLUMNS
    rows = -(-len(cases) // columns)
    schema = cases[0].dataset.schema
    of = next(candidate for candidate in schema.fields if candidate.name == field)
    layers = [layer(case) for case in cases]
    height = float(np.clip(3.6 * max(each.aspect for each in layers) + 0.3, 1.0, 4.0))
    figure = Figure(figsize=(12, height * rows + 0.3), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    shown = [_shown_values(last_values(case, field), of) for case in cases]
    low, high = zip(*map(spanning, shown), strict=True)
    limits = (min(low) if len(of.components) == 1 else 0.0, max(high))
    for axis, case, triangles, values in zip(axes, cases, layers, shown, strict=False):
        artist = draw_field(axis, triangles, values, limits=limits, cmap="viridis")
        axis.set_title(_case_title(case), fontsize=8, loc="left")
    for axis in axes[len(cases) :]:
        axis.set_visible(False)
    name = field if len(of.components) == 1 else f"|{field}|"
    label = _with_unit(name, of.unit)
    if add_colorbar(figure, artist, axes.tolist(), label=label, shrink=0.8, pad=0.01) is None:
        figure.supylabel(label, fontsize=9)
    return figure


def _shown_values(values: np.ndarray, field: Field) -> np.ndarray:
    """Reduce (N, C) to (N,): the magnitude of a vector, a scalar as it is."""
    return values[:, 0] if len(field.components) == 1 else np.linalg.norm(values, axis=-1)


def _case_title(case: StoredCase) -> str:
    """Title a case by id, split and the first parameter, if there is one."""
    words = [case.id, case.split or ""]
    for parameter in case.dataset.schema.parameters[:1]:
        words.append(f"{parameter.name} {case.parameters[parameter.name]:.3g} {parameter.unit}")
    return "  ".join(words)


def distributions(dataset: Dataset) -> Figure:
    """Draw histograms of every field's components over some training cases.

    The training mean and standard deviation are marked.
    """
    cases = [dataset[case] for case in dataset.cases("train")[:MAX_HISTOGRAM_CASES]]
    panels = [
        (field, number)
        for field in dataset.schema.fields
        for number in range(len(field.components))
    ]
    figure = Figure(figsize=(3.6 * len(panels), 2.7), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    sampled = {field.name: _sampled(cases, field.name) for field in dataset.schema.fields}
    for axis, (field, number) in zip(axes, panels, strict=True):
        values = sampled[field.name][:, number]
        mean, std = (dataset.statistics[field.name][figure_][number] for figure_ in ("mean", "std"))
        axis.hist(
            values, bins=100, range=spanning(values), density=True, color="#0b5fa5", alpha=0.85
        )
        axis.axvline(mean, color="k", lw=1)
        axis.axvspan(mean - std, mean + std, color="k", alpha=0.08, lw=0)
        component = field.components[number]
        axis.set(
            xlabel=_with_unit(
                f"{field.name}{f' {component}' if len(field.components) > 1 else ''}", field.unit
            ),
            yticks=[],
        )
    axes[0].set_ylabel("density of values")
    return figure


def last_values(case: StoredCase, field: str) -> np.ndarray:
    """Return (N, C): a steady field, or a transient one's last snapshot."""
    return np.asarray(case[field][-1] if case.dataset.schema.transient else case[field][:])


def _sampled(cases: Sequence[StoredCase], field: str) -> np.ndarray:
    """Return (n, C) values from evenly spaced snapshots of the cases."""
    blocks = []
    for case in cases:
        array = case[field]
        if case.dataset.schema.transient:
            per_snapshot = len(cases) * array.shape[1]
            count = int(np.clip(MAX_VALUES // per_snapshot, 1, min(8, array.shape[0])))
            blocks += [
                np.asarray(array[int((step + 0.5) / count * array.shape[0])])
                for step in range(count)
            ]
        else:
            blocks.append(np.asarray(array[:]))
    return np.concatenate(blocks)
