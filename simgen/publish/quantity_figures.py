"""Draw the quantities of interest of a dataset version; each is a function of the version."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from simgen.publish.dataset_figures import COLUMNS, SPLIT_COLORS
from simgen.publish.sensitivity import shown_quantities
from simgen.quantities import StatedQuantity
from simgen.store.read import Dataset
from simgen.store.split import counts_of

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
        axis.set(xlabel=_label(quantity))
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


def _label(quantity: StatedQuantity) -> str:
    name = quantity.name.replace("_", " ")
    return name if quantity.unit in ("", "1") else f"{name} ({quantity.unit})"
