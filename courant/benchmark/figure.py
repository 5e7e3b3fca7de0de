"""Draw a benchmark's figure: error against processor time, every seed."""

from __future__ import annotations

import io

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from courant.benchmark.rows import Row, Table

COLORS = (
    *("#0b5fa5", "#d9822b", "#1a7f37", "#8250df", "#b3261e", "#00838f", "#6d4c41", "#5f6b76"),
    *("#c2185b", "#827717", "#1a1a1a", "#42a5f5"),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "p", "<", "h", ">")
REFERENCE = "#7a7a7a"
STYLES = ("--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))


def draw(table: Table) -> bytes:
    """Return a PNG: validation error while training, and test error over all that was spent."""
    figure = Figure(figsize=(11.5, 4.8), layout="constrained")
    during, after = figure.subplots(1, 2, sharey=True)
    for number, row in enumerate(row for row in table.models if row.errors is not None):
        color, marker = COLORS[number % len(COLORS)], MARKERS[number % len(MARKERS)]
        _during(during, row, color)
        _after(after, row, color, marker)
    for number, row in enumerate(table.references):
        if row.errors is not None:
            style = STYLES[number % len(STYLES)]
            after.axhline(
                row.errors.nmae.mean, color=REFERENCE, ls=style, lw=1.2, zorder=0, label=row.name
            )
    for axis, title, x in (
        (during, "validation error during training", "processor time of the training (s)"),
        (after, "test error of each seed", "processor time of search and training (s)"),
    ):
        axis.set(yscale="log", title=title, xlabel=x)
        axis.grid(alpha=0.25, which="both")
    during.set(xscale="log", ylabel="NMAE")
    # From zero on, with room for the whole of the last marker.
    after.set_xlim(0, 1.05 * after.get_xlim()[1])
    for scale in (during.xaxis, during.yaxis):
        low, high = scale.get_view_interval()
        # Over less than a decade the ticks at 1, 2 and 5 would be too few to tell the errors.
        scale.set_major_locator(LogLocator(subs=(1, 2, 5) if high > 10 * low else range(1, 10)))
        scale.set_major_formatter("{x:g}")
        scale.set_minor_formatter("")
    handles, labels = after.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=150)
    return picture.getvalue()


def _during(axis: Axes, row: Row, color: str) -> None:
    for course in row.courses:
        if course.validated:
            spent, errors = zip(*course.validated, strict=True)
            axis.plot(spent, errors, "-", marker=".", ms=3, lw=1.2, color=color, alpha=0.8)


def _after(axis: Axes, row: Row, color: str, marker: str) -> None:
    assert row.cost is not None
    for number, course in enumerate(row.courses):
        spent = row.cost.search_s + course.processor_s
        shown = row.name if not number else None
        axis.plot([spent], [course.test_nmae], marker, ms=6, color=color, alpha=0.85, label=shown)
