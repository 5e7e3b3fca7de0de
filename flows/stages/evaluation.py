"""Stage `evaluate`: a trained run -> its errors on a split, and the report."""

from __future__ import annotations

from dataclasses import dataclass

from courant.evaluation.record import read_evaluation
from courant.report.page import current_page, summary_line
from courant.runs.directory import RunDirectory
from courant.runs.record import check_trained, open_recorded, read_dataset_record
from flows.request_models import EvaluationRequest
from flows.settings import absolute, check_folder, load_settings


@dataclass(frozen=True)
class Report:
    """Hold the URL of the report, the run that it is of, and its summary."""

    url: str
    run: str
    verdict: str


class Measurement(EvaluationRequest):
    """Measure a run's errors, and write its report."""

    @property
    def place(self) -> str | None:
        """Return the URL of the dataset, if it is not where the run says."""
        return None if self.dataset is None else absolute(self.dataset)

    @property
    def url(self) -> str:
        """Return the URL of the run."""
        return absolute(self.run)

    @property
    def folder(self) -> str:
        """Return the URL of the report's folder."""
        if self.report:
            return absolute(self.report)
        name = self.url.rstrip("/").rsplit("/", 1)[-1]
        return f"{absolute(load_settings().reports).rstrip('/')}/{name}"

    def done(self) -> Report | None:
        """Return the report if it is of the run's present weights on this split."""
        run = RunDirectory(self.url)
        check_trained(run)
        evaluation = read_evaluation(run, self.split)
        page = evaluation and current_page(run, RunDirectory(self.folder), evaluation)
        return Report(page, self.url, summary_line(evaluation)) if evaluation and page else None

    def check(self) -> None:
        """Find the dataset of the training, and check that the evaluation can be kept."""
        run = RunDirectory(self.url)
        if read_evaluation(run, self.split) is None:
            run.check_writable()
        check_folder(self.folder)
        open_recorded(run.url, read_dataset_record(run), self.place)

    def execute(self) -> Report:
        """Measure errors by component, case and step, beside the references; draw the report."""
        from courant.evaluation.evaluate import evaluate
        from courant.report.report import write_report

        evaluation = evaluate(self.url, self.split, self.place)
        page = str(write_report(self.url, self.folder, self.place))
        return Report(page, self.url, summary_line(evaluation))
