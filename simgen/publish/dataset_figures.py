"""Draw figures of a dataset version: designs, sample cases, distributions, quantities.

Each is a function that returns a matplotlib Figure. What a number depends on is measured by Sobol
indices over the design space. These need thousands of values, which are those of a Gaussian process
that is fitted to the designs; where it does not predict designs that it was not fitted to, there
are none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from simgen.case import Field
from simgen.design_space import Parameter, scaled
from simgen.publish.field_plots import add_colorbar, draw_field, layer, spanning
from simgen.quantities import StatedQuantity
from simgen.regression import Predictor, gaussian_process
from simgen.store.read import Dataset, StoredCase
from simgen.store.split import RATIOS, counts_of

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


BINS = 20


def histograms(dataset: Dataset) -> Figure:
    """Draw how each quantity is distributed over the accepted cases, stacked by split."""
    shown, table = shown_quantities(dataset), dataset.design
    colors = {split: SPLIT_COLORS[split] for split in counts_of(dataset.cases)}
    columns = min(COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    figure = Figure(figsize=(3.6 * columns, 2.7 * rows + 0.3), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, quantity in zip(axes, shown, strict=False):
        known = table[np.isfinite(table[quantity.name].astype(float))]
        values = [known[quantity.name][known["split"] == split] for split in colors]
        axis.hist(values, bins=BINS, stacked=True, color=[*colors.values()])
        axis.set(xlabel=_quantity_label(quantity))
    for axis in axes[len(shown) :]:
        axis.set_axis_off()
    for axis in axes[::columns]:
        axis.set_ylabel("cases")
    handles = [Patch(color=color) for color in colors.values()]
    figure.legend(handles, [*colors], loc="outside upper center", ncols=4, frameon=False)
    return figure


def parallel_coordinates(dataset: Dataset) -> Figure:
    """Draw each accepted design as a line over parameters and quantities.

    Lines are coloured by the first quantity; each axis runs over the values that occur. A line has
    a gap at a quantity that its design lacks.
    """
    shown = shown_quantities(dataset)
    parameters = dataset.schema.parameters
    names = [*(each.name for each in parameters), *(each.name for each in shown)]
    units = [*(each.unit for each in parameters), *(each.unit for each in shown)]
    values = dataset.design.loc[dataset.cases(), names].to_numpy(float)
    values = np.where(np.isfinite(values), values, np.nan)
    low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    heights = (values - low) / np.where(high > low, high - low, 1.0)
    figure = Figure(figsize=(1.9 * len(names), 4.0), layout="constrained")
    axis = figure.subplots()
    of_first = np.nan_to_num(heights[:, len(parameters)])
    for line, height in sorted(zip(heights.tolist(), of_first.tolist(), strict=True), key=_last):
        axis.plot(line, lw=0.8, alpha=0.6, color=colormaps["viridis"](height))
    for place, (bottom, top) in enumerate(zip(low, high, strict=True)):
        axis.axvline(place, color="k", lw=0.6)
        axis.annotate(f"{bottom:.3g}", (place, 0), (0, -9), **_BESIDE)
        axis.annotate(f"{top:.3g}", (place, 1), (0, 3), **_BESIDE)
    labels = [
        f"{name.replace('_', ' ')}\n{'' if unit in ('', '1') else unit}"
        for name, unit in zip(names, units, strict=True)
    ]
    axis.set_xticks(range(len(names)), labels, fontsize=8)
    axis.tick_params(axis="x", length=0, pad=12)
    axis.set(yticks=[], ylim=(-0.02, 1.08), xlim=(-0.3, len(names) - 0.7))
    axis.spines[:].set_visible(False)
    return figure


_BESIDE: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": 7}


def _last(pair: tuple[object, float]) -> float:
    return pair[1]


def _quantity_label(quantity: StatedQuantity) -> str:
    name = quantity.name.replace("_", " ")
    return name if quantity.unit in ("", "1") else f"{name} ({quantity.unit})"


LEAST_DESIGNS = 8
"""For each parameter"""
LEAST_FIT = 0.7
MAX_DESIGNS = 300
"""The fit's time grows with the cube of their number"""
NUM_SAMPLES = 1024
NUM_FOLDS = 5
_CHUNK = 2048


@dataclass(frozen=True)
class Sensitivity:
    """The share of a number's variance over the design space that each parameter explains."""

    first: tuple[float, ...]
    """Alone"""
    total: tuple[float, ...]
    """With all its interactions"""
    fit: float
    """R2 of the Gaussian process on designs that it was not fitted to"""


def shown_quantities(dataset: Dataset) -> tuple[StatedQuantity, ...]:
    """Return the stated quantities that some case has."""
    table = dataset.design
    return tuple(each for each in dataset.schema.quantities if table[each.name].notna().any())


def sensitivities(dataset: Dataset) -> dict[str, Sensitivity | None]:
    """Return the Sobol indices of each quantity from the solved designs; None where unknown."""
    table = dataset.design.loc[dataset.cases()]
    parameters = dataset.schema.parameters
    designs = table[[each.name for each in parameters]].to_dict("records")
    return {
        each.name: sobol_indices(parameters, designs, table[each.name].to_numpy(float))  # type: ignore[arg-type]
        for each in shown_quantities(dataset)
    }


def sobol_indices(
    parameters: Sequence[Parameter],
    designs: Sequence[Mapping[str, float]],
    values: Sequence[float] | np.ndarray,
) -> Sensitivity | None:
    """Return the indices of a number that was found for these designs; NaN ones are left out.

    None where there are fewer than 8 designs a parameter, or where a fit explains less than 0.7 of
    the variance of designs that were left out.
    """
    inputs, outputs = _usable(parameters, designs, np.asarray(values, dtype=float))
    if not parameters or len(inputs) < LEAST_DESIGNS * len(parameters) or not np.ptp(outputs):
        return None
    fit = _fit(inputs, outputs)
    if fit < LEAST_FIT:
        return None
    from scipy.stats import sobol_indices as indices_of
    from scipy.stats import uniform

    predict = gaussian_process(inputs, outputs[:, None])
    found = indices_of(
        func=lambda samples: _in_chunks(predict, samples.T)[None],
        n=NUM_SAMPLES,
        dists=[uniform(-1, 2)] * len(parameters),
        rng=np.random.default_rng(0),
    )
    first, total = (
        np.clip(np.ravel(each), 0, 1) for each in (found.first_order, found.total_order)
    )
    return Sensitivity(tuple(first.tolist()), tuple(total.tolist()), fit)


def _usable(
    parameters: Sequence[Parameter], designs: Sequence[Mapping[str, float]], values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs (n, P), each scaled to -1..1 over its range, and outputs (n,)."""
    known = np.flatnonzero(np.isfinite(values))
    if len(known) > MAX_DESIGNS:
        known = np.sort(np.random.default_rng(0).choice(known, MAX_DESIGNS, replace=False))
    inputs = [scaled(parameters, designs[row]) for row in known.tolist()]
    return np.array(inputs).reshape(len(known), len(parameters)), values[known]


def _fit(inputs: np.ndarray, outputs: np.ndarray) -> float:
    """Return R2 over designs that were left out, a fifth of them at a time."""
    order = np.random.default_rng(0).permutation(len(inputs))
    predicted = np.empty(len(inputs))
    for fold in range(NUM_FOLDS):
        out = order[fold::NUM_FOLDS]
        rest = np.setdiff1d(order, out)
        predicted[out] = gaussian_process(inputs[rest], outputs[rest, None])(inputs[out])[:, 0]
    wrong = ((predicted - outputs) ** 2).sum()
    return float(1 - wrong / ((outputs - outputs.mean()) ** 2).sum())


def _in_chunks(predict: Predictor, inputs: np.ndarray) -> np.ndarray:
    parts = [predict(inputs[begin : begin + _CHUNK]) for begin in range(0, len(inputs), _CHUNK)]
    return np.asarray(np.concatenate(parts)[:, 0])
