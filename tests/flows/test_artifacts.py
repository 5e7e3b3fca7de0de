"""Bars in Prefect's UI: for whom can see them, and no more requests than there is progress."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pandas as pd
import pytest

from courant.runs.directory import RunDirectory
from flows import artifacts, evaluate_surrogate, generate_dataset
from flows.settings import OWN_PREFECT
from simgen.case import Progress
from simgen.cases import get_family
from tests.report.test_verdict import evaluation

FAMILY = get_family("cylinder-flow")
POINT = FAMILY.point(FAMILY.design_space.sample(1, "sobol", 1)[0], FAMILY.settings("trial"))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What Prefect's server is asked for."""
    requests: list[Any] = []

    def create(progress: float, **named: Any) -> UUID:
        requests.append("new")
        return UUID(int=1)

    shown = SimpleNamespace(
        create_progress_artifact=create,
        update_progress_artifact=lambda _, percent: requests.append(percent),
    )
    monkeypatch.setattr(artifacts, "artifacts", shown)
    monkeypatch.setattr(artifacts, "get_run_logger", lambda: SimpleNamespace(info=print))
    monkeypatch.setattr(artifacts, "LOG_INTERVAL_S", 0.0)
    monkeypatch.delenv(OWN_PREFECT, raising=False)
    return requests


def solve(directory: Path) -> None:
    """Report a case at its half and at the solver's end, and what became of it."""
    directory.mkdir(exist_ok=True)
    report = artifacts.CaseReport(POINT, directory)
    for fraction in (0.5, 1.0):
        report(Progress(POINT.id, "solving", fraction, f"{fraction:.0%}"))
    report.ended("accepted")


def test_a_case_has_a_bar_that_is_full_once(asked: list[Any], tmp_path: Path) -> None:
    solve(tmp_path / "case")
    assert asked == ["new", 50.0, 100.0]


def test_a_server_without_pages_is_asked_for_no_bar(
    asked: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OWN_PREFECT, "1")
    solve(tmp_path / "case")
    assert asked == []


@pytest.mark.parametrize(
    ("url", "link"),
    [
        ("/a folder/index.html", "[`/a folder/index.html`](file:///a%20folder/index.html) on "),
        ("https://host/r/index.html", "[https://host/r/index.html](https://host/r/index.html)"),
        (
            "s3://bucket/report/index.html",
            "`s3://bucket/report/index.html`; to open it:"
            " `aws s3 cp --recursive s3://bucket/report page`, then `page/index.html`",
        ),
    ],
)
def test_a_page_is_linked_or_said_how_to_open(url: str, link: str) -> None:
    assert artifacts.page_link(url).startswith(link)


def test_the_report_is_a_link_beside_its_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = evaluation(model=[0.1], persistence=[0.2], training_mean=[0.5])
    folder, page = RunDirectory(tmp_path), tmp_path / "index.html"

    def write_report(run: str, out: str, dataset: str | None) -> Path:
        folder.write_bytes("error_growth.png", b"a picture")
        return page

    shown: dict[str, str] = {}
    monkeypatch.setattr("courant.report.report.write_report", write_report)
    for name in ("show_markdown", "show_image"):
        monkeypatch.setattr(
            evaluate_surrogate, name, lambda text, key, description: shown.update({key: text})
        )
    report = evaluate_surrogate.draw.fn("/runs/demo-1a2b", folder.url, found, None)
    assert report.url == str(page)
    assert f"Report: [`{page}`]({page.as_uri()}) on " in shown["report-demo-1a2b"]
    assert "NMAE 0.100 on the test split" in shown["report-demo-1a2b"]
    assert shown["errors-demo-1a2b"] == "data:image/png;base64,YSBwaWN0dXJl"


def test_a_large_dataset_shows_the_cases_without_a_solution_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(generate_dataset, "MOST_SHOWN", 4)
    states = ["accepted", "accepted", "rejected", "accepted", "failed", "accepted"]
    design = pd.DataFrame({"status": states}, index=list("abcdef"))
    assert list(generate_dataset.shown_cases(design).index) == ["a", "b", "c", "e"]
    assert list(generate_dataset.shown_cases(design[:3]).index) == ["a", "b", "c"]
