"""List the panels of each kind of problem, in order: the only place where reports differ by kind.

A panel is one function `(Context) -> Panel | None` in a file of its own; None where it does not
apply, such as the decomposition of a model that has none. A further analysis is one more file and
its name in the tuples below.
"""

from __future__ import annotations

from collections.abc import Callable

from courant.experiment import Kind
from courant.report.context import Context
from courant.report.panel import Panel
from courant.report.panels import (
    cases,
    designs,
    errors,
    errors_by_case,
    errors_over_rollout,
    ledger,
    parity,
    prediction,
    quantities,
    sensitivity,
    stages,
    training,
    use,
)
from courant.report.panels.anchors import (
    anchor_scores,
    anchor_table,
    component_fields,
    decomposition,
    error_addresses,
    maps,
    sections,
)
from courant.report.panels.dynamics import frequencies, monitor
from courant.report.panels.pictures import rollout, streamlines, surface

MakePanel = Callable[[Context], Panel | None]

_DATA_AND_TRAINING = (designs.panel, cases.panel, training.panel, stages.panel, ledger.panel)

PANELS: dict[Kind, tuple[MakePanel, ...]] = {
    "transient": (
        prediction.panel,
        rollout.panel,
        streamlines.panel,
        surface.panel,
        errors_over_rollout.panel,
        monitor.panel,
        errors.panel,
        errors_by_case.panel,
        decomposition.panel,
        component_fields.panel,
        sections.panel,
        maps.panel,
        anchor_table.panel,
        anchor_scores.panel,
        error_addresses.panel,
        frequencies.panel,
        quantities.panel,
        sensitivity.panel,
        *_DATA_AND_TRAINING,
        use.rollout_panel,
    ),
    "steady": (
        prediction.panel,
        streamlines.panel,
        surface.panel,
        errors.panel,
        errors_by_case.panel,
        quantities.panel,
        sensitivity.panel,
        parity.panel,
        decomposition.panel,
        component_fields.panel,
        sections.panel,
        maps.panel,
        anchor_table.panel,
        anchor_scores.panel,
        error_addresses.panel,
        *_DATA_AND_TRAINING,
        use.field_panel,
    ),
}

MAIN_FIGURES: dict[Kind, str] = {
    "transient": errors_over_rollout.FIGURE,
    "steady": errors_by_case.FIGURE,
}
"""The file of the most telling figure of the errors"""
