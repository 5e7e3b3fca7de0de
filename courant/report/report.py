"""Write the report of a trained run: index.html with all its pictures, and the arrays beside it.

The page loads nothing from elsewhere, not even from its folder; its figures lie there as PNG files
too.
"""

from __future__ import annotations

from courant.evaluation.evaluate import evaluate
from courant.evaluation.evaluation import Evaluation
from courant.evaluation.record import read_evaluation
from courant.report.context import open_context
from courant.report.current import PAGE, current_page, keep_inputs, page_url
from courant.report.guide import guide
from courant.report.index import SUMMARY, keep_summary, parent_index, write_index
from courant.report.page import report_page, write_panel
from courant.report.panels import MAIN_FIGURES, PANELS
from courant.report.verdict import summary_line
from courant.runs.directory import RunDirectory

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
