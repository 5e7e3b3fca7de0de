"""The explorer's page in a browser, used as a person uses it."""

import threading
from collections.abc import Iterator, Mapping

import numpy as np
import pytest

import courant
from bench.synthetic_cases import publish_cases
from courant.serving.explorer import Explored
from courant.serving.http_app import Solve, Solving
from courant.serving.predictions import Limits
from simgen.case import CaseResult
from simgen.store.schema import Schema
from tests.serving.chromium import Page, open_page
from tests.serving.explored_server import answers_of_shares, serving_explored
from tests.world import FAMILY, SETTINGS, SPACE, duct, trained_on_pipes

pytestmark = [
    pytest.mark.openfoam,
    pytest.mark.filterwarnings("ignore:.*outside the training domain"),
]
PICTURE = "document.getElementById('picture').toDataURL()"
DIFFERENCE = PICTURE.replace("picture", "difference")
VERDICT = "for trends.\nThe mean error is 1%.\nIt is slow.\nIn case abc (test) the NMAE is 80%."
COLOURS = (
    "(() => { const one = document.getElementById('picture');"
    " const seen = one.getContext('2d').getImageData(0, 0, one.width, one.height).data;"
    " return new Set(new Uint32Array(seen.buffer)).size; })()"
)


def of(name: str) -> str:
    """An element of the page in JavaScript."""
    return f"document.getElementById('{name}')"


def text(page: Page, name: str) -> str:
    return str(page.see(f"{of(name)}.innerText"))


def wait_for_text(page: Page, name: str, part: str) -> None:
    page.wait_for(f"{of(name)}?.innerText.includes({part!r})")


class Quick:
    """A solver whose case is in the dataset when it is looked at once it may be."""

    def __init__(self, url: str) -> None:
        self._url, self.may_end = url, threading.Event()
        self.designs: list[Mapping[str, float]] = []

    def begin(self, parameters: Mapping[str, float]) -> Solve:
        self.designs.append(parameters)
        return Solve(id="one", state="Scheduled", ended=False, url="http://ui/one", reason="")

    def look(self, solve: str) -> Solve:
        if not self.may_end.is_set():
            return Solve(id=solve, state="Running", ended=False, url="http://ui/one", reason="")
        point, figures = FAMILY.point(self.designs[-1], SETTINGS), {"branch1_share": 0.4321}
        result = CaseResult(point, "accepted", provenance={"figures": figures})
        cloud = duct(60, SPACE.sample(1, "grid")[0], seed=9)
        publish_cases(self._url, Schema.of(FAMILY), [(result, cloud)])
        return Solve(id=solve, state="Completed", ended=True, url="http://ui/one", reason="")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Quick]]:
    """A run of its own: its dataset grows."""
    folder = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        surrogate = courant.load(trained_on_pipes(folder), device="cpu")
        url = surrogate.open_dataset().url
        patch.setattr(surrogate, "answers", answers_of_shares())
        solving = Solving(
            solver := Quick(url), commands={"solve": "courant generate"}, verdict=VERDICT
        )
        with serving_explored(Explored(surrogate, Limits(), url), solving) as address:
            yield f"{address}/explorer#{solving.token}", solver


@pytest.fixture(scope="module")
def open_site(site: tuple[str, Quick], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with open_page(tmp_path_factory.mktemp("chromium")) as page:
        page.open(site[0])
        yield page


@pytest.fixture
def page(open_site: Page) -> Page:
    settled(open_site)
    return open_site


def settled(page: Page) -> None:
    """Wait until the last move has been answered, with its neighbours."""
    # A slider may be on its way through many designs: the status of one of them is not the end.
    wait_for_text(page, "status", "in all")
    page.wait_for(f"{of('picture')}.ariaBusy === 'false'")
    page.wait_for("document.querySelectorAll('#nearest button').length > 0")
    page.wait_for(f"{of('curves')}.ariaBusy !== 'true'")


def show(page: Page, view: str) -> None:
    """Choose the section or the surface."""
    page.see(f"{of('view')}.value = '{view}'")
    page.see(f"{of('view')}.dispatchEvent(new Event('change'))")
    boundary = f"{of('plane')}.innerText.startsWith('The boundary')"
    page.wait_for(boundary if view == "surface" else f"!{boundary}")
    settled(page)


def test_a_slider_moved_by_keys_shows_the_field_and_the_quantities_of_another_design(
    page: Page, site: tuple[str, Quick]
) -> None:
    assert text(page, "title") == "Branched-pipe: pipes"
    assert "branch1 share" in text(page, "quantities")
    assert "Not predicted: pressure loss" in text(page, "missing")
    before, slider = page.see(PICTURE), of("p-inlet_velocity")
    value = page.see(f"{slider}.value")
    page.see(f"{slider}.focus()")
    page.press("ArrowRight")
    page.wait_for(f"{PICTURE} !== {before!r}")
    assert float(page.see(f"{slider}.value")) > float(value)
    settled(page)
    assert int(page.see(COLOURS)) > 20
    command = page.see(f"{of('command')}.textContent")
    assert "inlet_velocity\\n" in command and ",6.57\\n' > design.csv\ncourant gen" in command
    # The address is a link to the design: a page that is opened by it shows the same.
    drawn, link = text(page, "range"), str(page.see(f"{of('link')}.href"))
    assert "#" not in link, "without the token"
    page.open(link)
    settled(page)
    assert text(page, "range") == drawn and float(page.see(f"{slider}.value")) == 6.57
    wrong = "&speed=1&b=1&step=0&channel=7&beside=xx&position=9&window=1&view=inside&anchors=no"
    page.open(link.replace("6.57", "90") + wrong)
    settled(page)
    wait_for_text(page, "status", "inlet velocity = 90 is not from")
    named = (
        "it has no speed|b = 1 is no design: write b=|step = 0 is|channel = 7; there|beside = xx;"
    )
    for each in f"{named}|position = 9 m is|window = 1 is|view = inside|anchors = no is".split("|"):
        assert each in text(page, "status")
    page.errors.clear()  # the place of the plane is the server's to judge
    page.open(link + "&beside=b&b=aperture=21")
    settled(page)
    assert text(page, "second-name") == "B: aperture 21 mm"
    page.open(site[0].replace("/explorer", "/"))  # which leads to the page
    settled(page)
    # What the quantity depends on: of each parameter a curve, with its band.
    page.wait_for("document.querySelectorAll('#curves polyline').length === 5")
    assert "over aperture (mm)" in text(page, "curves")
    points = "document.querySelector('#curves figure:nth-child(2) {}').points"
    assert page.see(f"{points.format('polyline')}.length") == 41
    assert page.see(f"{points.format('.band')}.length") == 82


def test_a_number_is_typed_beside_its_slider(page: Page) -> None:
    def enter(value: str) -> None:
        page.see(f"{of('n-inlet_velocity')}.value = ''; {of('n-inlet_velocity')}.focus()")
        page.send("Input.insertText", text=value)
        page.press("Enter")

    slide = "aperture.value = 25; aperture.dispatchEvent(new Event('input'))"
    named = slide.replace("aperture", of("p-aperture"))
    assert page.see(f"{named}; document.querySelector('main').className") == "stale", "at once"
    enter("6.1234")
    wait_for_text(page, "nearest", "6.12")
    settled(page)
    assert page.see("new URLSearchParams(location.search).get('inlet_velocity')") == "6.1234"
    address = page.see("location.search")
    enter("90")
    wait_for_text(page, "status", "inlet velocity: write a number from 3 to 10 m/s.")
    assert page.see("location.search") == address
    page.click("#middle")
    settled(page)
    assert page.see(f"{of('n-inlet_velocity')}.value") == "6.5"
    # Of a server that has stopped the page says so, and the picture of another design is pale.
    page.see("window.fetch = () => Promise.reject(new TypeError())")
    enter("7")
    wait_for_text(page, "status", "the server does not answer: start courant explore again")
    page.wait_for("document.querySelector('main').className.includes('stale')")
    page.send("Page.reload")


def choose(page: Page, name: str, option: str) -> None:
    page.see(f"{of(name)}.value = {option!r}")
    page.see(f"{of(name)}.dispatchEvent(new Event('change'))")
    settled(page)


def test_a_click_in_the_field_names_the_anchors_that_made_the_value(page: Page) -> None:
    assert "choose a component" in text(page, "place")
    choose(page, "channel", "1")
    ticks = text(page, "ticks").split()
    steps = np.diff([float(each) for each in ticks])
    assert 2 < len(ticks) < 9 and np.allclose(steps, steps[0]), "equally far apart"
    assert float(f"{steps[0]:.1e}"[:3]) in (1, 2, 2.5, 5), "round"
    assert "In this picture from" in text(page, "range")
    x, y, width, height = page.box("#picture")
    place = {"x": x + width / 2, "y": y + height / 2}
    page.send("Input.dispatchMouseEvent", type="mouseMoved", **place)
    wait_for_text(page, "readout", "m/s")
    page.click("#picture")
    page.wait_for("document.querySelectorAll('#contributions th').length > 3")
    shown = text(page, "contributions")
    assert "the offset" in shown and "anchor " in shown and "all other anchors" in shown
    first = text(page, "place")
    drawn = page.see(PICTURE)
    page.click("#arrows")
    assert page.see(PICTURE) != drawn and "arrows=1" in page.see("location.search")
    page.see(f"{of('picture')}.focus()")
    page.press("ArrowRight")
    page.wait_for(f"{of('place')}.innerText !== {first!r}")
    assert "is the sum of" in text(page, "place")


def window(page: Page) -> list[float]:
    settled(page)
    asked = page.see("new URLSearchParams(location.search).get('window')")
    return [float(each) for each in asked.split()]


def test_the_wheel_enlarges_a_drag_moves_and_a_double_click_shows_all_again(
    page: Page, site: tuple[str, Quick]
) -> None:
    x, y, width, height = page.box("#picture")
    at = {"x": x + 0.25 * width, "y": y + 0.5 * height}
    page.send("Input.dispatchMouseEvent", type="mouseWheel", deltaX=0, deltaY=-800, **at)
    page.wait_for("location.search.includes('window')")
    left, right, low, high = window(page)
    drawn, place = page.see(PICTURE), text(page, "place")
    mouse = {"type": "mousePressed", "button": "left", "clickCount": 1}
    page.send("Input.dispatchMouseEvent", **mouse, **at)
    for share in (0.3, 0.4):
        moved = {"x": x + share * width, "y": at["y"]}
        held = {"type": "mouseMoved", "button": "left", "buttons": 1}
        page.send("Input.dispatchMouseEvent", **held, **moved)
    page.send("Input.dispatchMouseEvent", **{**mouse, "type": "mouseReleased"}, **moved)
    page.wait_for(f"!location.search.includes('window={left:.5g}')")
    moved_left, moved_right, *_ = window(page)
    # The place under the pointer stays there: a distance of the picture's inner width.
    size = right - left
    shift, near = 0.15 * size * width / (width - 56), 0.01 * size
    assert [moved_left, moved_right] == pytest.approx([left - shift, right - shift], abs=near)
    assert page.see(PICTURE) != drawn and text(page, "place") == place, "no click"
    page.open(str(page.see(f"{of('link')}.href")))
    assert window(page) == [moved_left, moved_right, low, high], "the link shows the same"
    for count in (1, 2):
        for kind in ("mousePressed", "mouseReleased"):
            press = {**mouse, "type": kind, "clickCount": count}
            page.send("Input.dispatchMouseEvent", **press, **at)
    page.wait_for("location.search.includes('window=all')")
    page.open(site[0])
    settled(page)


def test_a_solved_neighbour_sets_the_sliders_and_stands_beside_its_prediction(page: Page) -> None:
    assert "solver" not in text(page, "quantities")
    rows = int(page.see("document.querySelectorAll('#nearest tr').length"))
    assert rows == 2 + 5 and "predicted here" in text(page, "nearest")
    page.click("#nearest button")
    wait_for_text(page, "quantities", "solver")
    assert "this design" in text(page, "nearest")
    choose(page, "beside", "solver")
    assert text(page, "difference-name") == "error: prediction - solver"
    page.click("#keep")
    settled(page)
    page.click("#middle")
    settled(page)
    assert "aperture" in text(page, "second-name")
    heads, shares = text(page, "quantities").split("\n", 1)
    assert heads.split() == ["A", "B", "A", "−", "B"] and shares.count("±\xa0") == 3
    assert "of no use: wider than designs differ, ± 0.65" in shares
    assert "in these fields" not in shares
    assert "These fields give no branch1 share" in text(page, "missing")
    page.wait_for("document.querySelector('#caution:not(.later)')?.innerText.includes('error')")
    assert all(each in text(page, "range") for each in ("A from ", "; B from ", "; A − B from "))
    # A saved picture says in itself what it shows.
    page.see(
        "window.saved = []; CanvasRenderingContext2D.prototype.fillText = (x) => saved.push(x);"
        "HTMLAnchorElement.prototype.click = function () { saved.push(this.download); };"
        f"{of('png')}.click()"
    )
    page.click("#vtu")
    page.wait_for("String(saved.at(-1)).endsWith('.vtu')")
    written = " ".join(map(str, page.see("saved")))
    shown = (": pipes", "aperture 28.5 mm", "y = ", "A − B", "(m/s)", " branched-pipe-", "B from")
    assert all(each in written for each in shown), written
    worst = "The mean error is 1%. In case abc (test) the NMAE is 80%."
    assert worst in text(page, "verdict") and worst in written.replace("  ", " ")
    assert "slow" not in written and "their error here is not known" in written
    before = page.see(DIFFERENCE)
    page.click("#nearest tr:nth-child(4) button:nth-child(2)")
    page.wait_for(f"{DIFFERENCE} !== {before!r}")
    settled(page)
    choose(page, "beside", "")
    page.wait_for(f"!{of('nearest')}.innerText.includes('nothing')")


def test_a_design_is_solved_from_the_page_however_often_it_is_loaded(
    page: Page, site: tuple[str, Quick]
) -> None:
    page.click("#design summary")
    page.click("#solve")
    wait_for_text(page, "solve-state", "is running")
    page.send("Page.reload")
    page.wait_for(f"{of('solve-state')}?.innerText === ''")
    settled(page)
    page.click("#design summary")
    wait_for_text(page, "solve-state", "is running")
    site[1].may_end.set()
    wait_for_text(page, "solve-state", "Solved")
    wait_for_text(page, "quantities", "0.4321")
    assert "since" in text(page, "nearest")
    assert [design["inlet_velocity"] for design in site[1].designs] == [6.5]
    assert page.see("document.querySelector('#solve-run a').href") == "http://ui/one"


def test_a_finger_moves_a_slider_chooses_a_place_and_turns_the_surface(page: Page) -> None:
    show(page, "surface")
    assert page.see(f"{of('colouring')}.value") == "own"
    x, y, width, height = page.box("#picture")
    read = set()
    for share in np.linspace(0.2, 0.8, 13):
        place = {"x": x + share * width, "y": y + 0.5 * height}
        page.send("Input.dispatchMouseEvent", type="mouseMoved", **place)
        read.add(text(page, "readout")[-25:])
    assert any(each.endswith("m/s in the cells behind") for each in read)
    show(page, "section")
    assert page.see(f"{of('colouring')}.value") == "all"
    page.send("Emulation.setTouchEmulationEnabled", enabled=True)
    before = float(page.see(f"{of('p-aperture')}.value"))
    x, y, width, height = page.box("#p-aperture")
    page.touch((x + 0.5 * width, y + 0.5 * height), (x + 0.8 * width, y + 0.5 * height))
    page.wait_for(f"Number({of('p-aperture')}.value) > {before}")
    settled(page)
    show(page, "surface")
    turned = page.see(PICTURE)
    x, y, width, height = page.box("#picture")
    page.touch(*((x + share * width, y + 0.5 * height) for share in (0.3, 0.4, 0.6)))
    page.wait_for(f"{PICTURE} !== {turned!r}")
    show(page, "section")
    page.click("#nearer")
    page.wait_for("location.search.includes('window')")
    left, right, *_ = window(page)
    page.touch_two("#picture", 0.1, 0.3)
    page.wait_for(f"!location.search.includes('window={left:.5g}')")
    closer = window(page)
    assert closer[1] - closer[0] == pytest.approx((right - left) / 3, rel=0.05)
    assert page.errors == [], "nothing that was loaded or drawn has failed"
