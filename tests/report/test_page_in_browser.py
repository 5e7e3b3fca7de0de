"""The page of a report as a reader uses it: the animation, the sorted table, no network, paper."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from courant.report.drawing import webp
from courant.report.page import render_page
from courant.report.panel import Animation, Cell, Column, Panel, Table
from tests.serving.chromium import open_page

VALUES = ("9.1%", "12.5%", "–", "0.4%")
SHOWN = "document.querySelector('.player img:not([hidden])').alt"
ROWS = "[...document.querySelectorAll('tbody tr')].map(row => row.cells[0].textContent).join()"
GROUND = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def page_with_an_animation_and_a_table() -> str:
    frames = [webp(np.full((40, 120, 3), shade, np.uint8)) for shade in (0, 120, 240)]
    animation = Animation(
        "rollout", tuple(frames), ("step 1", "step 2", "step 3"), "Caption.", "Look.", "Score"
    )
    rows = [(Cell(str(number)), Cell(value)) for number, value in enumerate(VALUES)]
    table = Table((Column("anchor"), Column("share")), tuple(rows), sortable=True)
    panel = Panel("one", "One", tables=(table,), animations=(animation,))
    return render_page("Run", [], "Verdict", [panel], {})


def test_animations_step_by_key_tables_sort_and_nothing_is_wider_than_a_phone(
    tmp_path: Path,
) -> None:
    path = tmp_path / "index.html"
    path.write_text(page_with_an_animation_and_a_table())
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
        assert page.see(ROWS) == "0,1,2,3"
        page.click("th:nth-child(2)")
        assert page.see(ROWS) == "1,0,3,2"
        page.click("th:nth-child(2)")
        assert page.see(ROWS) == "2,3,0,1"
        page.see("fetch('http://127.0.0.1:9/x').catch(() => document.title = 'refused')")
        page.wait_for("document.title === 'refused'")
        assert any("Content Security Policy" in each for each in page.errors)
        page.send(
            "Emulation.setDeviceMetricsOverride",
            width=400,
            height=800,
            deviceScaleFactor=1,
            mobile=False,
        )
        assert page.see(WIDER) <= 0
        for setting, low, high in (("dark", 0, 150), ("light", 700, 765)):
            features = [{"name": "prefers-color-scheme", "value": setting}]
            page.send("Emulation.setEmulatedMedia", features=features)
            assert low <= sum(page.see(GROUND)) <= high, setting
        page.send("Emulation.setEmulatedMedia", media="print")
        assert page.see("getComputedStyle(document.querySelector('.controls')).display") == "none"


def test_without_scripts_the_last_picture_is_shown_and_no_control() -> None:
    page = page_with_an_animation_and_a_table().partition("<body>")[2]
    frames = [part.partition(">")[0] for part in page.split("<img ")[1:]]
    assert ["hidden" in each for each in frames] == [True, True, False]
    assert '<div class="controls" hidden>' in page
