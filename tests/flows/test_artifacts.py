"""Bars in Prefect's UI: for whom can see them, and no more requests than there is progress."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from flows import artifacts
from flows.settings import OWN_PREFECT
from simgen.case import Progress
from simgen.cases import get_family

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
