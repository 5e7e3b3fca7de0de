"""The index of a folder of reports: what it lists, and that it is whole under two writers."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from courant.report import index
from courant.report.current import INPUTS, PAGE
from courant.report.index import SUMMARY, Summary, parent_index, write_index
from courant.runs.directory import RunDirectory
from simgen.errors import InputError

DOT = "data:image/png;base64,AAAA"


def add_report(reports: Path, name: str, nmae: float, **changes: str) -> None:
    """The files of a report that the index reads."""
    summary = Summary(
        run=f"/runs/{name}",
        family="cylinder-flow",
        experiment="demo",
        dataset="v3",
        split="test",
        verdict="NMAE <b>low</b>",
        nmae=nmae,
        reference="persistence",
        reference_nmae=0.2,
        written=datetime(2026, 1, 2, tzinfo=UTC),
        thumbnail=DOT,
    ).model_copy(update=changes)
    folder = reports / name
    folder.mkdir(parents=True)
    for file, text in ((PAGE, "page"), (INPUTS, "{}"), (SUMMARY, summary.model_dump_json())):
        (folder / file).write_text(text)


def test_reports_are_listed_by_family_with_the_best_first_and_markup_is_shown(
    tmp_path: Path,
) -> None:
    add_report(tmp_path, "worse", 0.3)
    add_report(tmp_path, "better", 0.1)
    add_report(tmp_path, "pipe", 0.4, family="branched-pipe")
    (tmp_path / "no-report").mkdir()
    page = Path(write_index(str(tmp_path))).read_text()
    places = [page.index(f'href="{name}/index.html"') for name in ("pipe", "better", "worse")]
    assert places == sorted(places) and "no-report" not in page
    assert page.count(DOT) == 3 and "v3, test split" in page and "0.200" in page
    assert "<b>low" not in page and "&lt;b&gt;low" in page
    assert '<span class="good">0.100' in page and '<span class="bad">0.300' in page


@pytest.mark.parametrize("damage", ["", "{", '{"thumbnail": "https://elsewhere"}'])
def test_a_report_without_a_summary_is_still_listed(tmp_path: Path, damage: str) -> None:
    add_report(tmp_path, "old", 0.3)
    (tmp_path / "old" / SUMMARY).write_text(damage)
    page = Path(write_index(str(tmp_path))).read_text()
    assert 'href="old/index.html"' in page and "Written by an older release" in page
    assert "elsewhere" not in page


def test_a_report_that_comes_while_the_index_is_written_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other writer has listed and written before this one replaces its page."""
    add_report(tmp_path, "first", 0.3)
    write, times = RunDirectory.write_bytes, []

    def late(folder: RunDirectory, name: str, content: bytes) -> None:
        if not times:
            add_report(tmp_path, "second", 0.2)
        times.append(name)
        write(folder, name, content)

    monkeypatch.setattr(RunDirectory, "write_bytes", late)
    page = Path(write_index(str(tmp_path))).read_text()
    assert "first/index.html" in page and "second/index.html" in page
    assert times == [PAGE, PAGE]


def test_another_page_is_never_written_over(tmp_path: Path) -> None:
    add_report(tmp_path, "one", 0.3)
    (tmp_path / PAGE).write_text("my own page")
    with pytest.raises(InputError, match="is another page"):
        write_index(str(tmp_path))
    assert (tmp_path / PAGE).read_text() == "my own page"
    run = RunDirectory("/runs/one")
    assert parent_index(run, RunDirectory(tmp_path / "one")) is None
    (tmp_path / PAGE).unlink()
    assert parent_index(run, RunDirectory(tmp_path / "one")) == str(tmp_path)
    write_index(str(tmp_path))
    assert write_index(str(tmp_path)), "its own page it does write over"


def test_only_reports_that_lie_together_have_an_index(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "runs/demo-1")
    assert parent_index(run, RunDirectory(tmp_path / "report")) is None
    assert parent_index(run, run) is None, "among runs an index of reports has no place"
    assert parent_index(run, RunDirectory(tmp_path / "reports/demo-1")) == str(tmp_path / "reports")


def test_a_folder_without_reports_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no folder with a report"):
        write_index(str(tmp_path))
    assert not (tmp_path / index.PAGE).exists()
