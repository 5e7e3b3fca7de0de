"""A page as a reader uses it, the verdict, and the index of a folder of reports."""

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from courant.evaluation.record import Evaluation
from courant.prediction.answers import REGRESSION
from courant.prediction.bands import GridError
from courant.report import page as pages
from courant.report.verdict import judge, times
from courant.runs.directory import RunDirectory
from simgen.errors import InputError
from tests.serving.chromium import open_page

LEAD = pages.Lead("", "Verdict")
VALUES = ("9.1%", "12.5%", "–", "0.4%")
SHOWN = "document.querySelector('.player .picture:not([hidden])').dataset.label"
ROWS = "[...document.querySelectorAll('tbody tr')].map(row => row.cells[0].textContent).join()"
GROUND = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


class Errors(dict[str, float]):
    """Of one predictor, by metric."""

    nmae = property(lambda self: self["nmae"])


@pytest.fixture
def page_path(tmp_path: Path) -> Path:
    """Of an animation and a sortable table."""
    shades = [np.full((40, 120, 3), shade, np.uint8) for shade in (0, 120, 240)]
    frames = [[pages.webp(Image.fromarray(each))] for each in shades]
    labels = ("step 1", "step 2", "step 3")
    animation = pages.Picture("rollout", "Caption.", frames, "Look.", "Score", labels, 1, "end")
    rows = [{"anchor": str(number), "share": value} for number, value in enumerate(VALUES)]
    panel = pages.Panel("one", "One", [animation], [pages.PanelTable(rows, sortable=True)])
    pages.write_page(RunDirectory(tmp_path), "Run", [], LEAD, {"": [panel]})
    return tmp_path / pages.PAGE


def test_animations_step_by_key_tables_sort_and_nothing_is_wider_than_a_phone(
    tmp_path: Path, page_path: Path
) -> None:
    with open_page(tmp_path / "chromium") as page:
        page.open(page_path.as_uri())
        assert page.see(SHOWN) == "step 2" == page.see("document.querySelector('output').value")
        assert page.see("document.querySelector('.slider i').textContent") == "end"
        page.see("document.querySelector('.player').focus()")
        for wanted in ("step 3", "step 1", "step 2"):
            page.press("ArrowRight")
            assert page.see(SHOWN) == wanted
        page.click(".controls button:nth-of-type(2)")
        page.wait_for(f"{SHOWN} !== 'step 2'")
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


def test_without_scripts_the_first_picture_is_shown_and_no_control(page_path: Path) -> None:
    body = page_path.read_text().partition("<body>")[2]
    frames = [part.partition(">")[0] for part in body.split("data-label=")[1:]]
    assert ["hidden" in each for each in frames] == [True, False, True]
    assert '<div class="controls" hidden>' in body


def test_markup_in_data_is_shown_and_not_obeyed(tmp_path: Path) -> None:
    cells = (pages.Cell("<script>1</script>", "bad"), "<b>1</b>")
    table = pages.PanelTable([{"<i>case</i>": cell} for cell in cells])
    panel = pages.Panel("cases", "Cases", tables=[table], note="1 < 2, `<b>`", code='ds["<b>"]')
    pages.write_page(RunDirectory(tmp_path), "<b>", ["<u>"], LEAD, {"<u>": [panel]})
    body = (tmp_path / pages.PAGE).read_text().partition("<body>")[2]
    for markup in ("<script>", "<i>", "<u>", "<b>"):
        assert markup not in body
    assert '<span class="bad">&lt;script&gt;' in body
    assert "<code>&lt;b&gt;</code>" in body and "`" not in body


def judged(nmae: float, rae: float, cases: int = 3, **quantities: tuple[float, bool]) -> Any:
    """An evaluation beside a reference of 0.2; by quantity the error, and whether it is lost."""
    errors = {"model": nmae, "persistence": 0.4, "POD + GP": 0.2}
    overall = {name: Errors(nmae=value, rae=rae) for name, value in errors.items()}
    return SimpleNamespace(
        split="test",
        components=("u.x", "p.p"),
        cases={f"case{n}": SimpleNamespace(overall=overall) for n in range(cases)},
        outlier="",
        split_of=lambda case: "validation",
        beyond=(),
        by_component={name: {} for name in errors},
        better_fields="POD + GP" * (nmae > 1),
        overall=overall,
        references=tuple(errors)[1:],
        quantities={
            name: SimpleNamespace(
                error=error,
                null_error=0.04 if lost else 0.2,
                source="fields",
                band=0.3,
                spread=None,
                constant=False,
            )
            for name, (error, lost) in quantities.items()
        },
    )


@pytest.mark.parametrize(
    ("found", "word", "reason"),
    [
        (judged(2.4, 0.3), "for trends", "30.0%"),
        (judged(0.2, 0.1), "not usable", "parameters) is about as good"),
        (judged(0.25, 0.1), "not usable", "parameters), without a network, is 1.2 times smaller"),
        (judged(0.4, 0.6), "not usable", "smaller, 20.0%; the fields' error is 60.0%"),
        (judged(0.05, 0.3), "for trends", "30.0%"),
        (judged(0.15, 0.1), "for trends", "0.75 times the error of POD + GP"),
        (judged(0.05, 0.1, shaft_power=(0.05, True)), "for trends", "shaft power better"),
        (judged(0.05, 0.1, head=(0.12, False)), "for trends", "head is wrong by 12%"),
        (judged(0.05, 0.1, drag=(0.12, False)), "usable", "10.0%"),
        (judged(0.05, 0.1, cases=2), "unproven", ""),
        (judged(0.05, 0.1, head=(0.1, False)), "usable", "10.0%"),
    ],
)
def test_a_model_is_judged_by_references_variation_quantities_and_the_mesh(
    found: Any, word: str, reason: str
) -> None:
    # The mesh lets drag be wrong by more than the model is.
    grid = {"drag": GridError(order=1, low=-0.15, high=0.0, num_designs=5, sizes=(5, 7))}
    verdict = judge(found, grid)
    assert verdict.word == word and reason in "; ".join(verdict.reasons), verdict


def test_quantities_without_the_fields_can_be_used_where_they_are_close() -> None:
    found = judged(0.4, 0.6, head=(0.05, False), drag=(0.2, False))
    for each in found.quantities.values():
        each.source = REGRESSION
    alone = "By a regression on the parameters, head can"
    assert judge(found, {}).besides == f" {alone} be used within its band."
    found.quantities["head"].band = 1.5
    wide = "Bands that are too wide to be of use: head (± {}"
    assert judge(found, {}).vague == [f"{wide.format('150%')})."]
    assert judge(found, {}).besides == " None of the quantities can be used."
    for each in found.quantities.values():
        each.band, each.spread = 0.3, 0.25
    differ = ", designs differ by ± 25%)"
    both = f"{wide.format('30%')}{differ} and drag (± 30%{differ}."
    assert judge(found, {}).vague == [both] and str(judge(found, {})).endswith(f"\n{both}")
    found.quantities["head"].constant = True
    assert judge(found, {}).vague[0] == "The regression found no trend in head: it gives its mean."
    found.quantities["head"].constant, found.quantities["head"].spread = False, 0.4
    found.cases = {"case0": found.cases["case0"]}
    assert f"\n{alone} perhaps be used within its band.\n" in str(judge(found, {}))


def test_a_case_that_is_far_off_is_named_and_no_model_is_usable_there() -> None:
    found = judged(0.05, 0.1)
    assert judge(found, {}).word == "usable" and not judge(found, {}).outlier
    case = SimpleNamespace(design="speed 2 m/s", overall={"model": Errors(nmae=0.4, rae=0.6)})
    case.nmae = {"model": {"u.x": (0.1, 0.3), "p.p": (0.6, 0.6)}}
    outlier: Any = Evaluation.outlier
    found.unseen = {"near": SimpleNamespace(overall={"model": Errors(nmae=0.09)})}
    assert not outlier.fget(found)
    found.unseen["far"] = case
    found.outlier = outlier.fget(found)
    where = "in case far (validation, speed 2 m/s), not trained on either, the NMAE is 40.0%"
    assert judge(found, {}).outlier == f"{where}, that of p 60.0%"
    assert judge(found, {}).word == "for trends" and where[1:] in str(judge(found, {}))


def test_an_error_is_so_many_times_the_best_references() -> None:
    measured = judge(judged(0.1, 0.1, cases=1), {}).measured
    error = "On 1 test case, which proves little, the mean error is 10.0% of the mean value (NMAE)"
    assert measured.startswith(f"{error}, 0.5 times that of POD + GP")
    given = judge(judged(2.4, 0.6, cases=2), {})
    assert str(given).startswith("fields by POD + GP (modes, regressed on the parameters): not us")
    assert "2 test cases, which prove little," in str(given)
    assert given.measured.endswith(
        "error is 20.0% of the mean value (NMAE), 12 times smaller than the network's"
    )
    (alone := judged(0.1, 0.1, cases=1)).beyond = ("case",)
    assert "1 test case, beyond the designs of the training, which proves" in str(judge(alone, {}))
    better = judged(0.05, 0.1, head=(0.05, False))
    others, mean = ("POD + GP",), {"u.x": Errors(nmae=0.15)}
    better.references = others
    better.by_component["model"] = {"u.x": Errors(nmae=0.2)}
    better.by_component["POD + GP"] = {"u.x": Errors(nmae=0.1)}
    better.quantities["head"].source, better.quantities["head"].band = REGRESSION, 0.04
    found = judge(better, {})
    ahead = "better in u x (NMAE 0.1 against the network's 0.2)"
    assert found.word == "for trends" and ahead in found.worst[0]
    assert "head is off by more than its band" in found.reasons
    # The worst is said first.
    better.references, better.by_component["training mean"] = (*others, "training mean"), mean
    better.overall["training mean"] = Errors(nmae=0.3)
    _, first, second, *_ = str(judge(better, {})).splitlines()
    below = "The network is worse than the training mean in u x (NMAE 0.15 against the network's"
    assert first == f"{below} 0.2)." and ahead in second
    better.by_component["POD + GP"], better.references = {"u.x": Errors(nmae=0.18)}, others
    assert not judge(better, {}).worst and "against" in judge(better, {}).reasons[-1]
    assert times(0.5449) == "0.54 times" and times(1162.0) == "1200 times"


DOT = "data:image/png;base64,AAAA"


def add_report(reports: Path, name: str, nmae: float, **changes: str) -> None:
    """The files of a report that the index reads."""
    summary = pages.Summary(
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
    for file, text in (
        (pages.PAGE, "page"),
        (pages.INPUTS, "{}"),
        (pages.SUMMARY, summary.model_dump_json()),
    ):
        (folder / file).write_text(text)


def test_reports_are_listed_by_family_with_the_best_first_and_damaged_ones_last(
    tmp_path: Path,
) -> None:
    add_report(tmp_path, "damaged", 0.05)
    add_report(tmp_path, "elsewhere", 0.05)
    add_report(tmp_path, "worse", 0.3)
    add_report(tmp_path, "better", 0.1)
    add_report(tmp_path, "pipe", 0.4, family="branched-pipe")
    (tmp_path / "no-report").mkdir()
    (tmp_path / "damaged" / pages.SUMMARY).write_text("{")
    (tmp_path / "elsewhere" / pages.SUMMARY).write_text('{"thumbnail": "https://far-away"}')
    page = Path(pages.write_index(str(tmp_path))).read_text()
    names = ("pipe", "better", "worse", "damaged", "elsewhere")
    places = [page.index(f'href="{name}/index.html"') for name in names]
    assert places == sorted(places) and "no-report" not in page and "far-away" not in page
    assert page.count(DOT) == 3 and "v3, test split" in page and ">5 reports." in page
    assert f">Reports in {tmp_path.parent.name}/{tmp_path.name}<" in page and "0.200" in page
    assert "<b>low" not in page and "&lt;b&gt;low" in page
    assert '<span class="good">0.100' in page and '<span class="bad">0.300' in page


def test_another_page_is_never_written_over(tmp_path: Path) -> None:
    add_report(tmp_path, "one", 0.3)
    (tmp_path / pages.PAGE).write_text("my own page")
    with pytest.raises(InputError, match="another page"):
        pages.write_index(str(tmp_path))
    assert (tmp_path / pages.PAGE).read_text() == "my own page"
    run = RunDirectory("/runs/one")
    assert pages.parent_index(run, RunDirectory(tmp_path / "one")) is None
    (tmp_path / pages.PAGE).unlink()
    assert pages.parent_index(run, RunDirectory(tmp_path / "one")) == str(tmp_path)
    pages.write_index(str(tmp_path))
    assert pages.write_index(str(tmp_path)), "its own page it does write over"
    assert pages.parent_index(run, RunDirectory(tmp_path / "other-name")) is None
    assert pages.parent_index(run, RunDirectory(tmp_path / "one-train"), "train") == str(tmp_path)
    assert pages.parent_index(run, run) is None, "among runs an index of reports has no place"
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has no folder with a report"):
        pages.write_index(str(tmp_path / "empty"))
