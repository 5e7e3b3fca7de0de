"""Write the report of a trained run: index.html with all its pictures, and the arrays beside it.

A panel is one function `(Context) -> Panel | None`; None where it does not apply, such as the
decomposition of a model that has none. A further one is a function in the file of its subject, and
its name in `PANELS`, the only place where reports differ by kind of problem. The page loads nothing
from elsewhere; its figures lie beside it as PNG files too.
"""

from __future__ import annotations

from collections.abc import Callable

from courant.evaluation.evaluate import evaluate
from courant.evaluation.record import Evaluation, read_evaluation
from courant.experiment import Kind
from courant.report.anchors import (
    addresses_panel,
    anchor_scores_panel,
    anchor_table_panel,
    component_panel,
    decomposition_panel,
    maps_panel,
    section_panel,
)
from courant.report.context import Context, open_context
from courant.report.current import PAGE, current_page, keep_inputs, page_url
from courant.report.data_and_training import (
    cases_panel,
    designs_panel,
    field_use_panel,
    rollout_use_panel,
    stages_panel,
    training_panel,
)
from courant.report.dynamics import frequencies_panel, monitor_panel
from courant.report.errors import (
    CASE_FIGURE,
    GROWTH_FIGURE,
    case_panel,
    errors_panel,
    growth_panel,
    parity_panel,
)
from courant.report.fields import prediction_panel, rollout_panel, streamlines_panel, surface_panel
from courant.report.index import SUMMARY, keep_summary, parent_index, write_index
from courant.report.page import guide, report_page, write_panel
from courant.report.panel import Panel
from courant.report.trust import ledger_panel, quantities_panel, sensitivity_panel
from courant.report.verdict import summary_line
from courant.runs.directory import RunDirectory

MakePanel = Callable[[Context], Panel | None]

_DATA_AND_TRAINING = (designs_panel, cases_panel, training_panel, stages_panel, ledger_panel)

PANELS: dict[Kind, tuple[MakePanel, ...]] = {
    "transient": (
        prediction_panel,
        rollout_panel,
        streamlines_panel,
        surface_panel,
        growth_panel,
        monitor_panel,
        errors_panel,
        case_panel,
        decomposition_panel,
        component_panel,
        section_panel,
        maps_panel,
        anchor_table_panel,
        anchor_scores_panel,
        addresses_panel,
        frequencies_panel,
        quantities_panel,
        sensitivity_panel,
        *_DATA_AND_TRAINING,
        rollout_use_panel,
    ),
    "steady": (
        prediction_panel,
        streamlines_panel,
        surface_panel,
        errors_panel,
        case_panel,
        quantities_panel,
        sensitivity_panel,
        parity_panel,
        decomposition_panel,
        component_panel,
        section_panel,
        maps_panel,
        anchor_table_panel,
        anchor_scores_panel,
        addresses_panel,
        *_DATA_AND_TRAINING,
        field_use_panel,
    ),
}

MAIN_FIGURES: dict[Kind, str] = {"transient": GROWTH_FIGURE, "steady": CASE_FIGURE}
"""The file of the most telling figure of the errors"""


__all__ = ["main_figure", "summary_line", "write_report"]


def write_report(run_url: str, out: str, dataset_url: str | None = None) -> str:
    """Write the report's folder (a path or s3:// URL); returns the page's URL.

    `dataset_url` is where the dataset lies by now, if it was moved. Unchanged inputs are not drawn
    again. Where reports lie together, each in a folder with its run's name, their index is written
    anew.
    """
    run, folder = RunDirectory(run_url), RunDirectory(out)
    evaluation = read_evaluation(run) or evaluate(run_url, dataset_url=dataset_url)
    page = current_page(run, folder, evaluation)
    if page is not None:
        return page
    context = open_context(run, evaluation, dataset_url)
    made = (make(context) for make in PANELS[evaluation.task])
    panels = [panel for panel in made if panel is not None]
    drawn: dict[str, bytes] = {}
    files = [file for panel in panels for file in write_panel(folder, panel, drawn)]
    page_text = report_page(context, [guide(context, panels), *panels], drawn)
    folder.write_bytes(PAGE, page_text.encode())
    keep_summary(folder, context, next(iter(drawn.values())))
    keep_inputs(run, folder, evaluation, [*files, SUMMARY])
    if (parent := parent_index(run, folder)) is not None:
        write_index(parent)
    return page_url(folder)


def main_figure(evaluation: Evaluation) -> str:
    """Return the report's file with the most telling figure of the errors."""
    return MAIN_FIGURES[evaluation.task]
