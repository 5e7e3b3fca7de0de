"""Flow `evaluate`: a trained run -> its errors on the test split, and the report."""

from __future__ import annotations

import base64
import re

from prefect import flow, task

from courant.evaluation.evaluation import Evaluation, Split
from courant.runs.directory import RunDirectory
from flows.artifacts import page_link, show_image, show_markdown
from flows.cluster.process_logs import know_flow_run
from flows.stages.evaluation import Measurement, Report


@flow(name="evaluate", flow_run_name="evaluate {run}")
def evaluate(
    run: str, report: str | None = None, split: Split = "test", dataset: str | None = None
) -> Report:
    """Measure the run on the split beside its references, and write the report's folder.

    Args:
        run: The trained run: a folder or s3://bucket/prefix/run.
        report: The report's folder; one in COURANT_REPORTS where not given.
        split: The cases that errors are measured on.
        dataset: Where the dataset of its training lies by now, if it was moved.
    """
    know_flow_run()
    asked = Measurement(run, report, split, dataset)
    evaluation = measure(asked.url, split, asked.place)
    return draw(asked.url, asked.folder, evaluation, asked.place)


@task(name="evaluate-model", persist_result=False)
def measure(run: str, split: Split, dataset: str | None) -> Evaluation:
    """Errors by component, case and step, beside the references."""
    from courant.evaluation.evaluate import evaluate as evaluate_run

    return evaluate_run(run, split, dataset)


@task(name="write-report", persist_result=False)
def draw(run: str, out: str, evaluation: Evaluation, dataset: str | None) -> Report:
    """Draw the report's folder; show the figure of its errors in Prefect's UI."""
    from courant.report.report import main_figure, summary_line, write_report

    page, verdict = str(write_report(run, out, dataset)), summary_line(evaluation)
    # Prefect takes small letters, digits and dashes.
    key = re.sub(r"[^a-z0-9]+", "-", run.rsplit("/", 1)[-1].lower()).strip("-") or "run"
    text = f"## {key}\n\n{verdict}\n\nReport: {page_link(page)}\n"
    show_markdown(text, key=f"report-{key}", description=page)
    figure = RunDirectory(out).read_bytes(main_figure(evaluation))
    show_image(
        f"data:image/png;base64,{base64.b64encode(figure).decode()}",
        key=f"errors-{key}",
        description="Errors of the model beside the references",
    )
    return Report(page, run, verdict)
