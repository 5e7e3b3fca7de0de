"""Draw the strongest fields of several runs for one case, one run in each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from courant.analysis.case_scores import score_case
from courant.analysis.comparison import Comparison
from courant.analysis.scores import AnchorFields
from courant.prediction.surrogate import Surrogate, load
from courant.report.drawing import WIDTH, height_of
from courant.report.images.colour_maps import MAGNITUDES
from courant.report.panels.anchors.decomposition import mark_anchor
from simgen.publish.field_plots import Layer, draw_field, layer

COLUMNS = 6
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
        return np.argsort(-self.fields.energies, kind="stable")[:COLUMNS]


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
    found: Comparison, cases: Sequence[str] = (), dataset_url: str | None = None
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
