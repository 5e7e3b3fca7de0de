"""Show how the training went: losses, learning rate and throughput."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from courant.report.context import Context
from courant.report.drawing import MODEL_COLOR
from courant.report.panel import Cell, Column, Panel, PanelFigure, Table
from courant.runs.record import EpochRecord
from simgen.publish.dataset_figures import SPLIT_COLORS


def panel(context: Context) -> Panel | None:
    """Show loss curves and throughput; None for a run without records of its epochs."""
    records = context.records
    if not records:
        return None
    status = context.course.status
    caption = "The loss in standardised units, and the learning rate."
    if status is not None and status.best_epoch is not None:
        caption += (
            f" The report evaluates the weights of epoch {status.best_epoch}, which has the lowest"
            " validation loss."
        )
    rows = tuple((Cell(name), Cell(value)) for name, value in throughput(records))
    return Panel(
        "training",
        "Training",
        (
            PanelFigure(
                "loss_curves.png",
                draw(records),
                caption,
                look_for=(
                    "A validation loss that still falls at the end asks for more epochs; one that"
                    " rises while the training loss falls asks for more cases."
                ),
                score=_score(records),
            ),
        ),
        (Table((Column("throughput", is_number=False), Column("")), rows),),
        note=(
            "Floating-point operations count matrix products and attention, forward and backward,"
            " on the first batch. Peak memory is that of the first worker: the memory allocated on"
            " its GPU or, on a CPU, that of the whole process."
        ),
        arrays=_arrays(records),
    )


def _score(records: Sequence[EpochRecord]) -> str:
    known = [each.validation_nmae for each in records if each.validation_nmae is not None]
    line = f"{len(records)} epochs"
    return f"{line}, lowest validation NMAE {min(known):.3f}" if known else line


def draw(records: Sequence[EpochRecord]) -> Figure:
    """Draw training and validation loss on a log scale, the learning rate below."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    loss, rate = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    epochs = [record.epoch for record in records]
    losses = [record.train_loss for record in records]
    loss.plot(epochs, losses, color=MODEL_COLOR, label="training")
    validated = [record for record in records if record.validation_loss is not None]
    if validated:
        loss.plot(
            [record.epoch for record in validated],
            [record.validation_loss for record in validated],
            "o-",
            ms=3,
            color=SPLIT_COLORS["validation"],
            label="validation",
        )
    loss.set(ylabel="loss (standardised)", yscale="log")
    loss.grid(alpha=0.25, which="both")
    loss.legend(frameon=False)
    rate.plot(epochs, [record.learning_rate for record in records], color="#555555")
    rate.set(xlabel="epoch", ylabel="learning rate", ylim=(0, None))
    rate.grid(alpha=0.25)
    return figure


def throughput(records: Sequence[EpochRecord]) -> list[tuple[str, str]]:
    """Return names and values of the throughput, over all epochs that record it."""
    seconds = sum(record.seconds for record in records)
    samples = sum(record.samples_per_s * record.seconds for record in records)
    rows = [("samples per second", f"{samples / seconds:.3g}")] if seconds else []
    told = [record for record in records if record.data_wait_share is not None]
    spent = sum(record.seconds for record in told)
    if spent:
        waited = sum((record.data_wait_share or 0.0) * record.seconds for record in told)
        operations = sum((record.flops_per_s or 0.0) * record.seconds for record in told)
        peak = max(record.peak_memory_gb or 0.0 for record in told)
        rows += [
            ("share of the time spent waiting for data", f"{waited / spent:.1%}"),
            ("achieved floating-point operations", f"{operations / spent / 1e9:.3g} GFLOP/s"),
            ("peak memory", f"{peak:.2f} GB"),
        ]
    skipped = sum(record.skipped_batches for record in records)
    return [*rows, ("batches skipped, not finite", str(skipped))] if skipped else rows


def _arrays(records: Sequence[EpochRecord]) -> dict[str, np.ndarray]:
    """Return one number for each epoch, NaN where it was not validated."""
    names = (
        "epoch",
        "train_loss",
        "validation_loss",
        "validation_nmae",
        "learning_rate",
        "seconds",
    )
    return {name: np.array([getattr(record, name) for record in records], float) for name in names}
