"""A page as a reader uses it, panels, the verdict, and the index of a folder of reports."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from courant.evaluation.metrics import ALL
from courant.evaluation.record import (
    CaseErrors,
    EvaluatedDataset,
    Evaluation,
    MetricValues,
    QuantityScore,
    Timing,
)
from courant.report.page import (
    INPUTS,
    PAGE,
    SUMMARY,
    Cell,
    Panel,
    PanelTable,
    Picture,
    Summary,
    parent_index,
    render_page,
    summary_line,
    webp,
    write_index,
    write_panel,
)
from courant.report.report import main_figure
from courant.runs.directory import RunDirectory
from simgen.errors import InputError
from tests.serving.chromium import open_page

VALUES = ("9.1%", "12.5%", "–", "0.4%")
SHOWN = "document.querySelector('.player img:not([hidden])').alt"
ROWS = "[...document.querySelectorAll('tbody tr')].map(row => row.cells[0].textContent).join()"
GROUND = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture
def page_text(tmp_path: Path) -> str:
    """Of an animation and a sortable table."""
    frames = [webp(np.full((40, 120, 3), shade, np.uint8)) for shade in (0, 120, 240)]
    labels = ("step 1", "step 2", "step 3")
    animation = Picture("rollout", "Caption.", lambda: frames, "Look.", "Score", labels=labels)
    rows = [{"anchor": str(number), "share": value} for number, value in enumerate(VALUES)]
    panel = Panel("one", "One", [animation], [PanelTable(rows, sortable=True)])
    drawn: dict[str, Sequence[bytes]] = {}
    assert write_panel(RunDirectory(tmp_path / "page"), panel, drawn) == []
    return render_page("Run", [], "Verdict", [panel], drawn)


def test_animations_step_by_key_tables_sort_and_nothing_is_wider_than_a_phone(
    tmp_path: Path, page_text: str
) -> None:
    path = tmp_path / "index.html"
    path.write_text(page_text)
    with open_page(tmp_path / "chromium") as page:
        page.open(path.as_uri())
        assert page.see(SHOWN) == "step 1" == page.see("document.querySelector('output').value")
        page.see("document.querySelector('.player').focus()")
        for wanted in ("step 2", "step 3", "step 1"):
            page.press("ArrowRight")
            assert page.see(SHOWN) == wanted
        page.press("ArrowLeft")
        assert page.see(SHOWN) == "step 3"
        page.click(".controls button:nth-of-type(2)")
        page.wait_for(f"{SHOWN} !== 'step 3'")
        for clicks, order in enumerate(("0,1,2,3", "1,0,3,2", "2,3,0,1")):
            if clicks:
                page.click("th:nth-child(2)")
            assert page.see(ROWS) == order
        page.see("fetch('http://127.0.0.1:9/x').catch(() => document.title = 'refused')")
        page.wait_for("document.title === 'refused'")
        assert any("Content Security Policy" in each for each in page.errors)
        size = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        page.send("Emulation.setDeviceMetricsOverride", **size)
        assert page.see(WIDER) <= 0
        for setting, low, high in (("dark", 0, 150), ("light", 700, 765)):
            features = [{"name": "prefers-color-scheme", "value": setting}]
            page.send("Emulation.setEmulatedMedia", features=features)
            assert low <= sum(page.see(GROUND)) <= high, setting
        page.send("Emulation.setEmulatedMedia", media="print")
        assert page.see("getComputedStyle(document.querySelector('.controls')).display") == "none"


def test_without_scripts_the_last_picture_is_shown_and_no_control(page_text: str) -> None:
    body = page_text.partition("<body>")[2]
    frames = [part.partition(">")[0] for part in body.split("<img ")[1:]]
    assert ["hidden" in each for each in frames] == [True, True, False]
    assert '<div class="controls" hidden>' in body


@pytest.mark.parametrize("name", ["../x.png", "a/b.png", "a\\b.png", ".hidden", "", "a b.png"])
def test_a_name_that_is_no_plain_file_name_is_an_error(name: str) -> None:
    picture = Picture(name, "", list, "", "")
    for make in (
        lambda: Panel(name, "title"),
        lambda: Panel("a", "A", [picture]),
        lambda: Panel("a", "A", arrays={name: np.zeros(1)}),
    ):
        with pytest.raises(InputError, match="cannot name a file of the report"):
            make()


def test_every_frame_has_a_label_and_every_column_a_cell(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="1 frames with 0 labels"):
        panel = Panel("a", "A", [Picture("a", "", lambda: [b"RIFF"], "", "")])
        write_panel(RunDirectory(tmp_path), panel, {})
    with pytest.raises(ValueError, match=r"a row of \['b'\] in a table of \['a'\]"):
        PanelTable([{"a": "1"}, {"b": "1"}])


def test_markup_in_data_is_shown_and_not_obeyed() -> None:
    cells = (Cell("<script>1</script>", "bad"), "<b>1</b>")
    table = PanelTable([{"<i>case</i>": cell} for cell in cells])
    panel = Panel("cases", "Cases", tables=[table], note="1 < 2", code='ds["<b>"]')
    page = render_page("<b>", ["<u>"], "", [panel], {})
    for markup in ("<script>", "<i>", "<u>", "<b>"):
        assert markup not in page.partition("<body>")[2]
    assert '<span class="bad">&lt;script&gt;' in page


def evaluation(step_s: float | None = 1.0, **nmae: Sequence[float]) -> Evaluation:
    """Of one component and one case, from NMAE at each step by predictor."""
    names = {name: name.replace("_", " ") for name in nmae}
    overall = {
        names[name]: MetricValues(
            nmae=sum(values) / len(values), relative_l2=0.5, rae=0.8, maximum=0.9
        )
        for name, values in nmae.items()
    }
    steps = {names[name]: {ALL: tuple(v), "depth.h": tuple(v)} for name, v in nmae.items()}
    return Evaluation(
        run="run",
        fingerprint="0",
        date="2025-01-01",
        split="test",
        task="steady" if step_s is None else "transient",
        dataset=EvaluatedDataset(url="lake", version="v1", family="lake"),
        components=("depth.h",),
        step_s=step_s,
        num_windows=1,
        cases={"a": CaseErrors(windows=1, overall=overall, nmae=steps)},
        overall=overall,
        by_component={name: {"depth.h": score} for name, score in overall.items()},
        nmae=steps,
        relative_l2=steps,
        timing=Timing(
            prediction_s=1.0,
            prediction_total_s=1.0,
            prediction_processor_s=1.0,
            prediction_device="CPU",
            prediction_threads=1,
            solver_s=None,
            solver_host="unknown",
        ),
    )


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ([0.1, 0.1, 0.1, 0.1], "The model beats persistence at every rollout step."),
        ([0.9, 0.9, 0.9, 0.9], "It does not beat persistence at any rollout step yet."),
        ([0.3, 0.1, 0.1, 0.3], "It beats persistence at steps 2-3, and not yet at 1 and 4."),
        ([0.1, 0.3, 0.1, 0.1], "It beats persistence at steps 1 and 3-4, and not yet at 2."),
    ],
)
def test_the_verdict_names_the_steps_won_and_lost(model: list[float], expected: str) -> None:
    found = evaluation(model=model, persistence=[0.2] * 4, training_mean=[0.5] * 4)
    assert summary_line(found).endswith(expected)


def test_the_verdict_puts_first_where_the_model_is_worse_than_the_parameters_alone() -> None:
    lost, won = (
        QuantityScore(
            unit="m",
            meaning="",
            truth={},
            predicted={},
            error=error,
            rank_correlation=None,
            null_error=0.2,
        )
        for error in (0.3, 0.1)
    )
    found = evaluation(None, model=[0.9], nearest_design=[0.2], training_mean=[0.5])
    quantities = {"shaft_power": lost, "head": won}
    line = summary_line(found.model_copy(update={"quantities": quantities}))
    first, _, rest = line.partition(". ")
    assert "shaft power" in first and "head" not in first
    assert "350% above the nearest design's 0.200 and 80% above the training mean's 0.500" in rest
    assert rest.endswith("better than the nearest design on 0 of 1 cases.")
    assert main_figure(found) == "errors_by_case.png"


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
def test_a_report_whose_summary_is_damaged_is_still_listed(tmp_path: Path, damage: str) -> None:
    add_report(tmp_path, "old", 0.3)
    (tmp_path / "old" / SUMMARY).write_text(damage)
    page = Path(write_index(str(tmp_path))).read_text()
    assert 'href="old/index.html"' in page and "write it again" in page
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
    with pytest.raises(InputError, match="has no folder with a report"):
        write_index(str(tmp_path))
    assert not (tmp_path / PAGE).exists()
