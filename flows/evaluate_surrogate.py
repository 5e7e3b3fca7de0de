"""Flow `evaluate`: a trained run -> its errors on the test split, and the report."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from prefect import flow, task

from courant.evaluation.evaluation import Evaluation, Split
from courant.runs.directory import RunDirectory
from flows.artifacts import show_image, show_markdown
from flows.settings import absolute, load_settings


@dataclass(frozen=True)
class Report:
    """Where the report lies, and what it says of which run."""

    url: str
    run: str
    verdict: str


@flow(name="evaluate", flow_run_name="evaluate {run}")
def evaluate(run: str, report: str | None = None, split: Split = "test") -> Report:
    """Measure the run on the split beside its references, and write the report's folder."""
    run = absolute(run)
    evaluation = measure(run, split)
    out = absolute(report) if report else f"{absolute(load_settings().reports).rstrip('/')}/{run.rsplit('/', 1)[-1]}"
    return draw(run, out, evaluation)


@task(name="evaluate-model", persist_result=False)
def measure(run: str, split: Split) -> Evaluation:
    """Errors by component, case and step, beside the references."""
    from courant.evaluation.evaluate import evaluate as evaluate_run

    return evaluate_run(run, split=split)


@task(name="write-report", persist_result=False)
def draw(run: str, out: str, evaluation: Evaluation) -> Report:
    """The report's folder; the figure of its errors as an image in Prefect's UI."""
    from courant.report.report import main_figure, summary_line, write_report

    page, verdict = str(write_report(run, out)), summary_line(evaluation)
    key = run.rsplit("/", 1)[-1].lower().replace("_", "-").replace(".", "-")
    text = f"## {key}\n\n{verdict}\n\nReport: `{page}`\n"
    show_markdown(text, key=f"report-{key}", description=page)
    figure = RunDirectory(out).read_bytes(main_figure(evaluation))
    show_image(
        f"data:image/png;base64,{base64.b64encode(figure).decode()}",
        key=f"errors-{key}",
        description="Errors of the model beside the references",
    )
    return Report(page, run, verdict)
