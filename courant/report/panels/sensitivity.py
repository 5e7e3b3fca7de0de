"""Show what the quantities of interest depend on, through the model and in the solved designs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from courant.evaluation.sensitivity import Dependence, dependences
from courant.report.context import Context
from courant.report.drawing import PALETTE
from courant.report.panel import Panel, PanelFigure
from courant.report.wording import plain
from simgen.publish.dataset_figures import Sensitivity

NAME = "sensitivity"
SOURCES = ("solved", "predicted")
COLORS = dict(zip(SOURCES, ("#7a7a7a", PALETTE[0]), strict=True))


def panel(context: Context) -> Panel | None:
    """Show Sobol indices; None where too few designs tell them."""
    found = {
        name: each
        for name, each in dependences(context.surrogate, context.dataset).items()
        if each.solved is not None or each.predicted is not None
    }
    if not found:
        return None
    parameters = [each.name for each in context.dataset.schema.parameters]
    caption = (
        "Sobol indices: the share of each quantity's variance over the design space that a"
        " parameter explains, alone (bar) and with its interactions (line). They are shown for the"
        " solved designs and for the model's predictions, each from a Gaussian process fitted to"
        " designs of this dataset."
    )
    return Panel(
        NAME,
        "Dependence of the quantities on the parameters",
        (
            PanelFigure(
                "sensitivity.png",
                draw(found, parameters),
                caption,
                look_for=(
                    "Blue bars as high as the grey ones mean that the model has learned what each"
                    " quantity depends on."
                ),
                score=_score(found),
            ),
        ),
        note=_note(found),
        arrays=_arrays(found, parameters),
    )


def _score(found: Mapping[str, Dependence]) -> str:
    """Return the largest difference of an index between solved designs and predictions."""
    apart = [
        float(np.abs(np.subtract(each.solved.first, each.predicted.first)).max())
        for each in found.values()
        if each.solved is not None and each.predicted is not None
    ]
    if not apart:
        return "Indices are known of one of the two only"
    return f"First indices of solved and predicted designs differ by at most {max(apart):.2f}"


def draw(found: Mapping[str, Dependence], parameters: Sequence[str]) -> Figure:
    """Draw first and total indices of every quantity by parameter."""
    figure = Figure(figsize=(max(6.0, 4.2 * len(found)), 3.6), layout="constrained")
    axes = figure.subplots(1, len(found), squeeze=False, sharey=True)[0]
    places = np.arange(len(parameters))
    for axis, (name, each) in zip(axes, found.items(), strict=True):
        for shift, source in zip((-0.2, 0.2), SOURCES, strict=True):
            indices: Sensitivity | None = getattr(each, source)
            if indices is None:
                continue
            color = COLORS[source]
            axis.bar(places + shift, indices.first, 0.36, color=color, label=source)
            axis.vlines(places + shift, 0, indices.total, color="k", lw=1.5)
        axis.set_title(plain(name), fontsize=9)
        axis.set_xticks(places, [plain(each) for each in parameters], rotation=30, ha="right")
        axis.set_ylim(0, 1)
        axis.grid(alpha=0.25, axis="y")
    axes[0].set_ylabel("Sobol index")
    handles = {
        label: handle
        for axis in axes
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        handles.values(), handles.keys(), loc="outside upper center", ncols=2, frameon=False
    )
    return figure


def _note(found: Mapping[str, Dependence]) -> str:
    fits = ", ".join(
        f"{plain(name)} {each.solved.fit:.2f} and {each.predicted.fit:.2f}"
        for name, each in found.items()
        if each.solved and each.predicted
    )
    return (
        "The Gaussian processes explain this share of the variance (R²) of designs left out of the"
        f" fit, solved and predicted: {fits}."
        if fits
        else ""
    )


def _arrays(found: Mapping[str, Dependence], parameters: Sequence[str]) -> dict[str, np.ndarray]:
    """Return (P,) first and total of each quantity and source, and the parameters' names."""
    arrays = {"parameters": np.array(parameters, dtype=str)}
    for name, each in found.items():
        for source in SOURCES:
            indices: Sensitivity | None = getattr(each, source)
            if indices is not None:
                arrays[f"{name}.{source}.first"] = np.array(indices.first)
                arrays[f"{name}.{source}.total"] = np.array(indices.total)
    return arrays
