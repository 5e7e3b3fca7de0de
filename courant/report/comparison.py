"""Figures of several runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from courant.analysis.case_scores import score_case
from courant.analysis.comparison import RunComparison
from courant.analysis.scores import SCORES, AnchorFields
from courant.prediction.surrogate import Surrogate, load
from courant.report.anchors import mark_anchor
from courant.report.drawing import MAGNITUDES, PALETTE, WIDTH, height_of
from simgen.publish.field_plots import Layer, draw_field, layer

COMPARISON_COLUMNS = 4


def draw_comparison(found: RunComparison) -> Figure:
    """Draw a bar for each row, with its interval, and the aim as a line where a score has one."""
    shown = [each for each in SCORES if each.key in found.keys]
    rows = -(-len(shown) // COMPARISON_COLUMNS)
    height = 0.75 + 0.3 * len(found.rows)
    figure = Figure(figsize=(WIDTH, height * rows + 0.3), layout="constrained")
    grid = figure.subplots(rows, COMPARISON_COLUMNS, squeeze=False)
    places = np.arange(len(found.rows))[::-1]
    for axis in grid.ravel()[len(shown) :]:
        axis.set_visible(False)
    for number, (axis, score) in enumerate(zip(grid.ravel(), shown, strict=False)):
        intervals = [row.scores.get(score.key) for row in found.rows]
        means = [np.nan if each is None else each.mean for each in intervals]
        widths = [0.0 if each is None else each.half_width or 0.0 for each in intervals]
        colors = [PALETTE[row % len(PALETTE)] for row in range(len(means))]
        axis.barh(places, means, xerr=widths, color=colors, height=0.7, ecolor="#333333")
        # Rows without the score keep their place.
        axis.set_ylim(-0.6, len(places) - 0.4)
        if score.aim is not None:
            axis.axvline(score.aim, color="#1a7f37", ls="--", lw=1)
        labels = [row.label for row in found.rows] if number % COMPARISON_COLUMNS == 0 else []
        axis.set_yticks(places if labels else [], labels, fontsize=8)
        good = "" if score.good == "neither" else f"\n({score.good} is good)"
        axis.set_title(f"{score.name}{good}", fontsize=8, loc="left")
        axis.tick_params(axis="x", labelsize=7)
        axis.spines[["top", "right"]].set_visible(False)
    return figure


RUN_FIELDS_COLUMNS = 6
LABEL = 0.25
"""inches, for the name of a row"""


@dataclass(frozen=True)
class RunFields:
    """The fields of a row's first run."""

    label: str
    fields: AnchorFields

    @property
    def strongest(self) -> np.ndarray:
        """Return the numbers of the strongest anchors, in order."""
        return np.argsort(-self.fields.energies, kind="stable")[:RUN_FIELDS_COLUMNS]


@dataclass(frozen=True)
class FieldsOfRuns:
    """The fields of several runs in the prediction of one case."""

    case: str
    plane: Layer
    rows: tuple[RunFields, ...]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return points, and of each row anchors, magnitudes and places of the strongest."""
        found: dict[str, np.ndarray] = {"points": self.rows[0].fields.points}
        for number, row in enumerate(self.rows):
            found[f"label_{number}"] = np.array(row.label)
            found[f"anchors_{number}"] = row.strongest
            found[f"magnitudes_{number}"] = row.fields.magnitudes[row.strongest]
            if row.fields.anchors is not None:
                found[f"places_{number}"] = row.fields.anchors[row.strongest]
        return found


def fields_of_runs(
    found: RunComparison, cases: Sequence[str] = (), dataset_url: str | None = None
) -> FieldsOfRuns | None:
    """Take the first run of each row apart for the first case (none: of the test split).

    None where no run decomposes its predictions. Rows whose runs do not are left out.
    """
    loaded = [(row.label, load(row.runs[0])) for row in found.rows]
    chosen = [(label, each) for label, each in loaded if each.decomposes]
    if not chosen:
        return None
    name = cases[0] if cases else _common_case([each for _, each in chosen], dataset_url)
    rows = []
    for label, surrogate in chosen:
        case = surrogate.open_dataset(dataset_url)[name]
        rows.append(RunFields(label, score_case(surrogate, case).fields))
    return FieldsOfRuns(name, layer(case), tuple(rows))


def _common_case(surrogates: Sequence[Surrogate], dataset_url: str | None) -> str:
    first, *others = [each.open_dataset(dataset_url).cases("test") for each in surrogates]
    return next(case for case in first if all(case in cases for cases in others))


def draw_run_fields(found: FieldsOfRuns) -> Figure:
    """Draw the magnitudes of the strongest fields, a row's on one scale, with their anchors."""
    plane = found.plane
    columns = max(len(row.strongest) for row in found.rows)
    height = height_of(plane.aspect, WIDTH / columns, 1.0, 3.2) + 0.35
    height += LABEL
    figure = Figure(figsize=(WIDTH, height * len(found.rows)), layout="constrained")
    parts = figure.subfigures(len(found.rows), 1, squeeze=False)[:, 0]
    for part, row in zip(parts, found.rows, strict=True):
        part.suptitle(row.label, fontsize=9, x=0.005, ha="left")
        axes = part.subplots(1, columns, squeeze=False)[0]
        fields, energies = row.fields, row.fields.energies
        shown = fields.magnitudes[row.strongest]
        limits = (0.0, float(np.quantile(shown[:, plane.cell], 0.998)) or 1.0)
        for axis in axes[len(shown) :]:
            axis.set_visible(False)
        for axis, anchor, values in zip(axes, row.strongest.tolist(), shown, strict=False):
            draw_field(axis, plane, values, limits=limits, cmap=MAGNITUDES)
            if fields.anchors is not None:
                mark_anchor(axis, fields.anchors[anchor, list(plane.axes)])
            share = energies[anchor] / (float(energies.sum()) or 1.0)
            axis.set_title(f"anchor {anchor}, {share:.0%} of the energy", fontsize=7, loc="left")
    return figure
