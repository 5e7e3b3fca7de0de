"""The report of a trained run: one folder with index.html, its figures and their data.

Nothing is loaded from elsewhere.
"""

from __future__ import annotations

from courant.evaluation.evaluate import evaluate, read_evaluation
from courant.evaluation.evaluation import Evaluation
from courant.report.context import open_context
from courant.report.page import report_page, write_panel
from courant.report.panel import Panel
from courant.report.panels import MAIN_FIGURES, PANELS
from courant.report.verdict import summary_line
from courant.runs.directory import RunDirectory

__all__ = ["main_figure", "summary_line", "write_report"]

PAGE = "index.html"
INPUTS = "report.json"
GENERATOR = 4
"""Raised when the same inputs would give another report."""


def write_report(run_url: str, out: str) -> str:
    """Write the report's folder (a path or s3:// URL); returns the page's URL.

    Unchanged inputs are not drawn again.
    """
    run, folder = RunDirectory(run_url), RunDirectory(out)
    evaluation = read_evaluation(run) or evaluate(run_url)
    inputs = {"run": run.url, "fingerprint": evaluation.fingerprint, "generator": GENERATOR}
    page = f"{folder.url.rstrip('/')}/{PAGE}"
    if folder.exists(INPUTS) and folder.exists(PAGE) and folder.read_json(INPUTS) == inputs:
        return page
    context = open_context(run, evaluation)
    panels: list[Panel] = []
    for make in PANELS[evaluation.task]:
        panel = make(context)
        if panel is not None:
            write_panel(folder, panel)
            panels.append(panel)
    folder.write_bytes(PAGE, report_page(context, panels).encode())
    folder.write_json(INPUTS, inputs)
    return page


def main_figure(evaluation: Evaluation) -> str:
    """The report's file that says most about the errors."""
    return MAIN_FIGURES[evaluation.task]
