"""Panels of a report, its page with the files beside it, and the index of several reports.

A panel is titled pictures and tables with the arrays behind them. A page loads nothing from
elsewhere: its pictures are in it. This module needs neither torch nor matplotlib to find that a
report is up to date.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

import jinja2
import numpy as np
from markupsafe import Markup, escape
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field

from courant.evaluation.metrics import ALL
from courant.evaluation.record import DMD, MODEL, MODES, PERSISTENCE, Evaluation
from courant.runs.directory import RunDirectory
from courant.runs.record import ANSWERS, BANDS, METRICS, MONITOR
from courant.sweeps.sweep import TABLE, sweep_of
from simgen.design_space import with_unit
from simgen.errors import InputError, StoreError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from courant.data.normalisation import Channel

PAGE, INPUTS, SUMMARY = "index.html", "report.json", "summary.json"
GENERATOR = 47  # Raise this when the same inputs would give another report


@dataclass(frozen=True)
class Picture:
    """A figure or an animation, and what to see in it."""

    name: str  # The file in the report's folder, such as `error_growth.png`
    caption: str
    figure: Figure | Sequence[Sequence[bytes]]  # Of an animation the panes of each frame
    look_for: str  # One sentence: what to see
    score: str  # The number that the picture stands for, such as `NMAE 0.12`
    labels: Sequence[str] = ()  # Below each frame; of animations only
    opens_at: int = -1  # The frame that is shown first
    mark: str = ""  # What the slider's mark there means
    columns: int = 0  # Pictures side by side in it; 0: as many as the figure's axes
    panes: bool = False  # Whether its maps are shown one by one, on a phone one above the other


@dataclass(frozen=True)
class Cell:
    """A cell of a table that is more than text."""

    text: str
    mark: Literal["", "good", "bad"] = ""  # Whether it is in the model's favour or against it
    picture: str = ""  # The data URL of a small picture beside the text
    link: str = ""  # The address that picture and text lead to

    @classmethod
    def judged(cls, text: str, is_good: bool | None) -> Cell:
        """Return a cell that is marked unless it is neither good nor bad."""
        return cls(text, "" if is_good is None else "good" if is_good else "bad")


Row = Mapping[str, str | Cell]  # Cells by the names of their columns


@dataclass(frozen=True)
class PanelTable:
    """A table; a row without one of the columns has an empty cell there."""

    rows: Sequence[Row]
    words: Collection[str] = ()  # Columns without numbers, which are left-aligned
    sortable: bool = False  # Whether a click on a column's head sorts the rows by it

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns, in order."""
        return list(dict.fromkeys(column for row in self.rows for column in row))


@dataclass(frozen=True)
class Panel:
    """One part of the page."""

    name: str
    title: str
    pictures: Sequence[Picture] = ()
    tables: Sequence[PanelTable] = ()
    note: str = ""
    code: str = ""  # Lines to paste
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Those that it is drawn from, written to `<name>.npz`"""


def plain(name: str) -> str:
    """`mean drag` for `mean_drag`"""
    return name.replace("_", " ")


def component_name(name: str) -> str:
    """`velocity x` for `velocity.x`, `s` for `s.s`, `all components` for all."""
    words = "all components" if name == ALL else plain(name).replace(".", " ")
    return " ".join(dict.fromkeys(words.split()))


def channel_label(channel: Channel) -> str:
    """`velocity x (m/s)`"""
    return with_unit(component_name(channel.name), channel.unit)


def count(number: int, noun: str) -> str:
    """`1 case`, `2 cases`"""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def number(value: float | None, digits: int = 3) -> str:
    """Format some digits of a number, as 1070, 2e+07 or 2.1e-07; a missing one is empty."""
    text = "" if value is None else f"{value:.{digits}g}"
    return f"{float(text):.0f}" if "e+0" in text and text[-1] < "6" else text


def percent(error: float | None) -> str:
    """`3.1%`; `none` where there is no error."""
    return "none" if error is None else f"{error:.1%}" if error >= 1e-3 or not error else "< 0.1%"


def listed(words: Sequence[str]) -> str:
    """`a, b and c`"""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


KINDS = {DMD: "a linear model in time", PERSISTENCE: "nothing changes"}
KINDS |= dict.fromkeys(MODES, "modes, regressed on the parameters")


def reference(name: str) -> str:
    """`the network`, `the training mean`, `DMD (a linear model in time)`"""
    return f"{called(name)} ({KINDS[name]})" if name in KINDS else called(name)


def called(name: str) -> str:
    """`the network`, `the training mean`, `DMD`"""
    return name if name in KINDS else f"the {'network' if name == MODEL else name}"


def data_url(picture: bytes) -> str:
    """Return a PNG or WebP file as a URL that needs no server."""
    kind = {b"\x89PNG": "image/png", b"RIFF": "image/webp"}[picture[:4]]
    return f"data:{kind};base64,{base64.b64encode(picture).decode()}"


def webp(picture: bytes | Image.Image, width: int = 10_000) -> bytes:
    """Return a picture, or its file, as a WebP file, scaled down to a width in pixels."""
    image = Image.open(io.BytesIO(picture)) if isinstance(picture, bytes) else picture
    image.thumbnail((width, 10 * width))
    buffer = io.BytesIO()
    # No difference is seen, and the page of all panels is a third as large as with PNG.
    image.save(buffer, format="WEBP", quality=88, method=4)
    return buffer.getvalue()


TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("courant.report"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
INSIDE = "Inside the model"  # The section of a page that is closed at first


@dataclass(frozen=True)
class Lead:
    """The first screen of a page: what is decided by, and a picture."""

    word: str
    reason: str
    points: Sequence[str] = ()  # What the reason rests on
    keys: Mapping[str, str] = field(default_factory=dict)  # Values by their names
    table: PanelTable | None = None
    note: str = ""  # Below the table
    why: str = ""  # What to do next
    command: str = ""  # Lines to paste for it
    panel: Panel | None = None  # Of one picture
    whose: str = ""  # "POD + GP ", where these are given in place of the network's
    about: str = ""  # what goes in and comes out


Drawn = dict[str, Sequence[Sequence[bytes]]]
"""By the name of a picture: the WebP files of each frame's panes"""


def write_page(
    folder: RunDirectory,
    title: str,
    meta: Sequence[str],
    lead: Lead,
    sections: Mapping[str, Sequence[Panel]],
    mark: str = "courant",
) -> Drawn:
    """Write index.html, its pictures and arrays; return the pictures.

    `sections` are panels by the section's title. Markup in any text is escaped; what is between
    backticks is code. A page with a `mark` is known by it.
    """
    # Here, because a report that is up to date needs no matplotlib.
    from courant.report.drawing import cut_panes
    from simgen.publish.figures import DPI, png_bytes

    drawn: Drawn = {}
    panels = [each for of in sections.values() for each in of]
    for panel in [*filter(None, [lead.panel]), *panels]:
        for picture in panel.pictures:
            if isinstance(picture.figure, Sequence):
                drawn[picture.name] = picture.figure
                continue
            png = png_bytes(picture.figure, picture.figure.dpi if picture.panes else DPI)
            image, buffer = Image.open(io.BytesIO(png)).convert("RGBA"), io.BytesIO()
            # The file is on white, for what shows no page behind it.
            Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).save(buffer, "PNG")
            folder.write_bytes(picture.name, buffer.getvalue())
            panes = cut_panes(picture.figure, image) if picture.panes else [image]
            drawn[picture.name] = [[webp(each) for each in panes]]
        if panel.arrays:
            folder.write_arrays(f"{panel.name}.npz", panel.arrays)
    page = TEMPLATES.get_template("page.html.j2").render(
        title=title,
        mark=mark,
        meta=meta,
        lead=lead,
        sections={name: of for name, of in sections.items() if of},
        inside=INSIDE,
        drawn=drawn,
        embedded=data_url,
        width=lambda pane, columns: columns * Image.open(io.BytesIO(pane)).width,  # in pixels
        columns=_columns,
        coded=_coded,
        cases=[
            row["case"] for of in panels for each in of.tables for row in each.rows if "case" in row
        ],
    )
    folder.write_bytes(PAGE, page.encode())
    return drawn


def _columns(picture: Picture) -> int:
    """Return how many pictures are side by side in one, such as maps of a grid."""
    places = [] if isinstance(picture.figure, Sequence) else picture.figure.axes[:1]
    grids = [each.get_subplotspec() for each in places]
    return picture.columns or max((each.get_gridspec().ncols for each in grids if each), default=1)


def _coded(text: str, cases: Collection[str] = ()) -> Markup:
    """Escape text, with what is between backticks as code, and links to the rows of cases."""
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    names = "|".join(re.escape(str(escape(name))) for name in cases)
    linked = r'\1 <a href="#\2">\2</a>'
    return Markup(re.sub(rf"\b(case) ({names})(?!\S)", linked, text, flags=re.I) if cases else text)


def current_page(run: RunDirectory, folder: RunDirectory, evaluation: Evaluation) -> str | None:
    """Return the URL of the page in `folder` if it is of this evaluation."""
    is_there = folder.exists(PAGE) and folder.exists(INPUTS)
    is_of_it = is_there and folder.read_json(INPUTS) == inputs_of(run, evaluation)
    return page_url(folder) if is_of_it else None


def page_url(folder: RunDirectory) -> str:
    return f"{folder.url.rstrip('/')}/{PAGE}"


def inputs_of(run: RunDirectory, evaluation: Evaluation) -> dict[str, Any]:
    """Return what a report is made from, as `INPUTS` has it."""
    made = {"run": run.url, "fingerprint": evaluation.fingerprint, "generator": GENERATOR}
    read = [(run, name) for name in (ANSWERS, BANDS, MONITOR, METRICS) if run.exists(name)]
    if (sweep := sweep_of(run)) is not None:
        read.append((sweep, TABLE))  # what the search for settings took
    return made | {of: hashlib.sha256(at.read_bytes(of)).hexdigest()[:16] for at, of in read}


MARK = "courant index of reports"  # In the index page, so that no other page is ever written over


class Summary(BaseModel):
    """What the index shows of a report."""

    model_config = ConfigDict(extra="forbid")

    family: str
    experiment: str
    dataset: str
    split: str
    verdict: str
    nmae: float
    reference: str  # The best of them
    reference_nmae: float
    written: datetime
    thumbnail: str = Field(pattern=r"^data:image/(png|webp);base64,[A-Za-z0-9+/=]+$")


def write_index(reports: str) -> str:
    """Write index.html over the reports in the folders of `reports`; return its URL.

    InputError where there is no report, or where index.html is another page.
    """
    folder = RunDirectory(reports)
    if not _is_index(folder):
        raise InputError(f"{folder.url}/{PAGE} is another page; move it, or name another folder")
    if not (found := _entries(folder)):
        raise InputError(f"{folder.url} has no folder with a report; name the folder of reports")
    rows = list[Row]()
    for name, each in found:
        run = Cell(name, picture=each.thumbnail if each else "", link=f"{quote(name)}/{PAGE}")
        if each is None:
            rows.append({"run": run, "in words": "Its summary cannot be read: write it again."})
            continue
        row: Row = {
            "run": run,
            "experiment": each.experiment,
            "family": each.family,
            "dataset": f"{each.dataset}, {each.split} split",
            "NMAE": Cell.judged(f"{each.nmae:.3f}", each.nmae < 0.9 * each.reference_nmae),
            "best reference": f"{each.reference_nmae:.3f}, {each.reference}",
            "in words": each.verdict,
            "written (UTC)": f"{each.written:%Y-%m-%d %H:%M}",
        }
        rows.append(row)
    table = PanelTable(rows, {*rows[0]} - {"NMAE", "best reference"}, sortable=True)
    note = (
        "NMAE is the sum of absolute errors over the sum of absolute values; the best reference is"
        " the most accurate prediction without a network. A click on a column's head sorts."
    )
    panel = Panel("reports", "By family, the lowest error first", tables=[table], note=note)
    title = f"Reports in {'/'.join(folder.url.split('/')[-2:])}"
    meta = [f"{count(len(found), 'report')}."]
    write_page(folder, title, meta, Lead("", ""), {"": [panel]}, MARK)
    return page_url(folder)


def parent_index(run: RunDirectory, folder: RunDirectory, split: str = "test") -> str | None:
    """Return the folder whose index lists a report; None where a report is on its own.

    Reports that lie together are in folders with the names of their runs, or of run and split.
    """
    parent, _, name = folder.url.rstrip("/").rpartition("/")
    own = run.url.rstrip("/").rsplit("/", 1)[-1]
    is_of_reports = name in (own, f"{own}-{split}") and folder.url != run.url
    is_in_a_folder = bool(parent) and not parent.endswith(":/")
    return parent if is_of_reports and is_in_a_folder and _is_index(RunDirectory(parent)) else None


def _is_index(folder: RunDirectory) -> bool:
    """Return whether index.html is an index of reports, or not there."""
    return not folder.exists(PAGE) or MARK.encode() in folder.read_bytes(PAGE)


def _entries(folder: RunDirectory) -> list[tuple[str, Summary | None]]:
    """Return folders and summaries, of each family the lowest error first, damaged ones last."""
    found: list[tuple[str, Summary | None]] = []
    for name in folder.names():
        if folder.exists(f"{name}/{INPUTS}") and folder.exists(f"{name}/{PAGE}"):
            try:
                record = folder.read_record(f"{name}/{SUMMARY}", Summary, "write the report again")
            except StoreError:
                record = None
            found.append((name, record))
    found.sort(key=lambda of: (0, of[1].family, of[1].nmae) if of[1] else (1, "", 0.0))
    return found
