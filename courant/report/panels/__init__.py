"""The panels of each kind of problem, in order: the one place where reports differ by kind.

A panel is one function `(Context) -> Panel | None` in a file of its own; None where it does not
apply, such as the decomposition of a model that has none. A further analysis is one more file and
its name in the tuples below.
"""

from __future__ import annotations

from collections.abc import Callable

from courant.problems.problem import Kind
from courant.report.context import Context
from courant.report.panel import Panel
from courant.report.panels import (
    cases,
    decomposition,
    designs,
    errors,
    errors_by_case,
    errors_over_rollout,
    parity,
    prediction,
    stages,
    training,
    use,
)

MakePanel = Callable[[Context], Panel | None]

_DATA_AND_TRAINING = (designs.panel, cases.panel, training.panel, stages.panel)

PANELS: dict[Kind, tuple[MakePanel, ...]] = {
    "transient": (
        prediction.panel,
        errors_over_rollout.panel,
        errors.panel,
        errors_by_case.panel,
        decomposition.panel,
        *_DATA_AND_TRAINING,
        use.rollout_panel,
    ),
    "steady": (
        prediction.panel,
        errors.panel,
        errors_by_case.panel,
        parity.panel,
        decomposition.panel,
        *_DATA_AND_TRAINING,
        use.field_panel,
    ),
}

MAIN_FIGURES: dict[Kind, str] = {
    "transient": errors_over_rollout.FIGURE,
    "steady": errors_by_case.FIGURE,
}
"""The file of the figure that says most about the errors."""
