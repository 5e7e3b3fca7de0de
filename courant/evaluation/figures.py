"""The report's figures: each a function from data to a matplotlib Figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from courant.evaluation.metrics import ALL
from courant.evaluation.references import MODEL, NEAREST_DESIGN, PERSISTENCE, TRAINING_MEAN
from courant.training.record import EpochRecord
from simgen.dataset_figures import SPLIT_COLORS
from simgen.field_plots import Triangles, draw_field, layer, spanning, symmetric
from simgen.store.reader import StoredCase

COLORS = {MODEL: "#0b5fa5", PERSISTENCE: "#d9822b", NEAREST_DESIGN: "#d9822b", TRAINING_MEAN: "#7a7a7a"}
TOP_ANCHORS = 8
WIDTH = 13.5
"""Inches"""


def mesh(case: StoredCase) -> Figure:
    """The case's cell centres as a triangulation, and its boundary by patch kind."""
    triangles, boundary = layer(case), case.boundary
    across, up = triangles.axes
    figure = Figure(figsize=(12, float(np.clip(11.5 * triangles.aspect, 3.5, 8)) + 0.6), layout="constrained")
    axis = figure.subplots()
    axis.triplot(triangles.triangulation, lw=0.35, color="#8a8a8a")
    kinds, points = boundary.patch, boundary.points
    shown = np.ones(len(points), dtype=bool)
    if case.dataset.schema.dimension == 3:
        shown = np.abs(points[:, 3 - across - up] - triangles.position) <= np.median(np.cbrt(case.volumes))
    for number, kind in enumerate(case.patch_kinds):
        chosen = points[(kinds == number) & shown]
        axis.plot(chosen[:, across], chosen[:, up], ".", ms=4, label=f"{kind} ({(kinds == number).sum()} faces)")
    axis.set(aspect="equal", xlabel=f"{'xyz'[across]} (m)", ylabel=f"{'xyz'[up]} (m)")
    figure.legend(loc="outside upper center", ncols=len(case.patch_kinds), frameon=False, fontsize=9)
    return figure


def prediction(case: StoredCase, truth: np.ndarray, predicted: np.ndarray, channels: Sequence[Any]) -> Figure:
    """Truth, prediction and error (N, C) side by side, one row per component; truth and prediction share their scale."""
    triangles = layer(case)
    height = float(np.clip(3.9 * triangles.aspect + 0.2, 1.5, 5.0))
    figure = Figure(figsize=(WIDTH, height * len(channels) + 0.2), layout="constrained")
    axes = figure.subplots(len(channels), 3, squeeze=False)
    drawn = np.unique(triangles.cell)
    for row, channel in zip(range(len(channels)), channels, strict=True):
        values = truth[:, row]
        signed = values.min() < 0 < values.max() and abs(values.mean()) < 0.3 * np.abs(values).max()
        limits, cmap = (symmetric(values[drawn]), "RdBu_r") if signed else (spanning(values[drawn]), "viridis")
        error = predicted[:, row] - values
        panels = (
            ("truth", values, limits, cmap),
            ("prediction", predicted[:, row], limits, cmap),
            ("error", error, symmetric(error[drawn]), "PuOr_r"),
        )
        for axis, (title, shown, bounds, colors) in zip(axes[row], panels, strict=True):
            artist = draw_field(axis, triangles, shown, limits=bounds, cmap=colors)
            axis.set_title(f"{title}, {channel.field} {channel.component} ({channel.unit})", fontsize=9, loc="left")
            figure.colorbar(artist, ax=axis, shrink=0.85, pad=0.01).ax.tick_params(labelsize=7)
    return figure


def decomposition(
    triangles: Triangles, contributions: np.ndarray, anchors: np.ndarray, chosen: Sequence[int], unit: str
) -> Figure:
    """Magnitudes of contributions (L, M) at all M corners' cells, each of the `chosen` with its anchor; on one scale."""
    columns = TOP_ANCHORS // 2
    rows = -(-len(chosen) // columns)
    height = float(np.clip(2.9 * triangles.aspect + 0.3, 1.4, 4.0))
    figure = Figure(figsize=(WIDTH, height * rows + 0.2), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    limits = (0.0, float(np.quantile(contributions[list(chosen)][:, triangles.cell], 0.998)))
    for axis in axes[len(chosen) :]:
        axis.set_visible(False)
    for axis, anchor in zip(axes, chosen, strict=False):
        artist = draw_field(axis, triangles, contributions[anchor], limits=limits, cmap="magma_r")
        axis.plot(*anchors[anchor, list(triangles.axes)], "o", ms=6, mfc="none", mec="#1a7f37", mew=1.6)
        axis.set_title(f"anchor {anchor}", fontsize=9, loc="left")
    figure.colorbar(artist, ax=axes.tolist(), label=f"|contribution| ({unit})", shrink=0.7, pad=0.01)
    return figure


def largest(contributions: np.ndarray) -> list[int]:
    """The anchors of the largest contributions (L, M), by their norm over all points."""
    return [int(anchor) for anchor in np.argsort(-np.linalg.norm(contributions, axis=1))[:TOP_ANCHORS]]


def error_growth(evaluation: dict[str, Any]) -> Figure:
    """NMAE against rollout time for model and references: all components together, and each."""
    names = list(evaluation["nmae"][MODEL])
    figure = Figure(figsize=(4.2 * len(names), 3.4), layout="constrained")
    axes = figure.subplots(1, len(names), squeeze=False)[0]
    time = evaluation["step_s"] * np.arange(1, len(evaluation["nmae"][MODEL][ALL]) + 1)
    for axis, name in zip(axes, names, strict=True):
        for predictor, by_name in evaluation["nmae"].items():
            axis.plot(time, by_name[name], "o-", ms=4, color=COLORS[predictor], label=predictor)
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
    loss.set(ylabel="loss (standardised)", yscale="log")
    loss.grid(alpha=0.25, which="both")
    loss.legend(frameon=False)
    rate.plot([record.epoch for record in records], [record.learning_rate for record in records], color="#555555")
    rate.set(xlabel="epoch", ylabel="learning rate", ylim=(0, None))
    rate.grid(alpha=0.25)
    return figure
