"""The report's figures: each a function from data to a matplotlib Figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from courant.evaluation.evaluate import MODEL
from courant.evaluation.metrics import ALL
from courant.evaluation.references import PERSISTENCE, TRAINING_MEAN
from courant.surrogate import CaseDecomposition
from courant.training.record import EpochRecord
from simgen.dataset_figures import SPLIT_COLORS
from simgen.field_plots import draw_field, spanning, symmetric, triangulate
from simgen.store.reader import StoredCase

COLORS = {MODEL: "#0b5fa5", PERSISTENCE: "#d9822b", TRAINING_MEAN: "#7a7a7a"}
TOP_ANCHORS = 8


def mesh(case: StoredCase) -> Figure:
    """The case's cell centres as a triangulation, and its boundary by patch kind."""
    figure = Figure(figsize=(12, 4.4), layout="constrained")
    axis = figure.subplots()
    axis.triplot(triangulate(case).triangulation, lw=0.35, color="#8a8a8a")
    boundary = case.boundary
    kinds, points = boundary.patch, boundary.points
    for number, kind in enumerate(case.patch_kinds):
        chosen = points[kinds == number]
        axis.plot(chosen[:, 0], chosen[:, 1], ".", ms=4, label=f"{kind} ({len(chosen)} faces)")
    axis.set(aspect="equal", xlabel="x (m)", ylabel="y (m)")
    figure.legend(loc="outside upper center", ncols=len(case.patch_kinds), frameon=False, fontsize=9)
    return figure


def prediction(case: StoredCase, truth: np.ndarray, predicted: np.ndarray, channels: Sequence[Any]) -> Figure:
    """Truth, prediction and error (N, C) side by side, one row per component; truth and prediction share their scale."""
    triangles = triangulate(case)
    figure = Figure(figsize=(13.5, 1.5 * len(channels) + 0.2), layout="constrained")
    axes = figure.subplots(len(channels), 3, squeeze=False)
    for row, channel in zip(range(len(channels)), channels, strict=True):
        values = truth[:, row]
        signed = values.min() < 0 < values.max() and abs(values.mean()) < 0.3 * np.abs(values).max()
        limits, cmap = (symmetric(values), "RdBu_r") if signed else (spanning(values), "viridis")
        error = predicted[:, row] - values
        panels = (
            ("truth", values, limits, cmap),
            ("prediction", predicted[:, row], limits, cmap),
            ("error", error, symmetric(error), "PuOr_r"),
        )
        for axis, (title, shown, bounds, colors) in zip(axes[row], panels, strict=True):
            artist = draw_field(axis, triangles, shown, limits=bounds, cmap=colors)
            axis.set_title(f"{title}, {channel.field} {channel.component}", fontsize=9, loc="left")
            figure.colorbar(artist, ax=axis, shrink=0.85, pad=0.01).ax.tick_params(labelsize=7)
    return figure


def decomposition(case: StoredCase, parts: CaseDecomposition, step: int = -1) -> Figure:
    """The contributions of largest norm at one step, each with its anchor; magnitudes, on one scale."""
    contributions = np.linalg.norm(parts.contributions[step], axis=-1)  # (L, N)
    top = np.argsort(-np.linalg.norm(contributions, axis=1))[:TOP_ANCHORS]
    triangles = triangulate(case)
    figure = Figure(figsize=(13.5, 3.0), layout="constrained")
    axes = figure.subplots(2, TOP_ANCHORS // 2).ravel()
    limits = (0.0, float(np.quantile(contributions[top], 0.998)))
    for axis, anchor in zip(axes, top, strict=False):
        artist = draw_field(axis, triangles, contributions[anchor], limits=limits, cmap="magma_r")
        axis.plot(*parts.anchors[anchor, :2], "o", ms=6, mfc="none", mec="#1a7f37", mew=1.6)
        axis.set_title(f"anchor {anchor}", fontsize=9, loc="left")
    figure.colorbar(artist, ax=axes.tolist(), label="|contribution| (m/s)", shrink=0.7, pad=0.01)
    return figure


def error_growth(evaluation: dict[str, Any]) -> Figure:
    """NMAE against rollout time for model and references: all components together, and each."""
    names = list(evaluation["nmae"][MODEL])
    figure = Figure(figsize=(4.2 * len(names), 3.4), layout="constrained")
    axes = figure.subplots(1, len(names), squeeze=False)[0]
    time = evaluation["step_s"] * np.arange(1, len(evaluation["nmae"][MODEL][ALL]) + 1)
    for axis, name in zip(axes, names, strict=True):
        for predictor, color in COLORS.items():
            axis.plot(time, evaluation["nmae"][predictor][name], "o-", ms=4, color=color, label=predictor)
        title = "all components" if name == ALL else name.replace(".", " ")
        axis.set(xlabel="time since the initial snapshot (s)", ylabel="NMAE", title=title, ylim=(0, None))
        axis.grid(alpha=0.25)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
    return figure


def loss_curves(records: Sequence[EpochRecord]) -> Figure:
    """Training and validation loss on a log scale, the learning rate below."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    loss, rate = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    loss.plot(
        [record.epoch for record in records],
        [record.train_loss for record in records],
        color=COLORS[MODEL],
        label="training",
    )
    validated = [record for record in records if record.validation_loss is not None]
    if validated:
        loss.plot(
            [record.epoch for record in validated], [record.validation_loss for record in validated], "o-", ms=3,
            color=SPLIT_COLORS["validation"], label="validation",
        )  # fmt: skip
    loss.set(ylabel="loss (standardised L2)", yscale="log")
    loss.grid(alpha=0.25, which="both")
    loss.legend(frameon=False)
    rate.plot([record.epoch for record in records], [record.learning_rate for record in records], color="#555555")
    rate.set(xlabel="epoch", ylabel="learning rate", ylim=(0, None))
    rate.grid(alpha=0.25)
    return figure
