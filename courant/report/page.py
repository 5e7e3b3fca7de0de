"""Panels of a report, its page with the files beside it, and the index of several reports.

A panel is titled pictures and tables with the arrays behind them. Page, PNG files, arrays and
index are made from panels here and nowhere else. A page loads nothing from elsewhere: its pictures
are in it. This module needs neither torch nor matplotlib to find that a report is up to date.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import jinja2
import numpy as np
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field

from courant.evaluation.metrics import ALL
from courant.evaluation.record import DMD, MODEL, PERSISTENCE, POD_GP, POD_RBF, Evaluation
from courant.runs.directory import RunDirectory
from courant.runs.record import BANDS, METRICS, MONITOR
from courant.sweeps.sweep import TABLE, sweep_of
from simgen.design_space import with_unit
from simgen.errors import InputError, StoreError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from courant.data.normalisation import Channel

PAGE, INPUTS, SUMMARY = "index.html", "report.json", "summary.json"
GENERATOR = 17
"""Raise this when the same inputs would give another report"""


@dataclass(frozen=True)
class Picture:
    """A figure or an animation: what it shows, what to see in it, what it is drawn from."""

    name: str
    """The file in the report's folder, such as `parity.png`"""
    caption: str
    draw: Callable[[], Figure | Sequence[bytes]]
    """Returns the figure; of an animation the frames, WebP files of one size"""
    look_for: str
    """One sentence: what to see"""
    score: str
    """The number that the picture stands for, such as `NMAE 0.12`"""
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Those that the caption names"""
    labels: Sequence[str] = ()
    """Below each frame; of animations only"""

    @property
    def alt(self) -> str:
        """Text shown in place of the picture."""
        return plain(self.name.rpartition(".")[0])


@dataclass(frozen=True)
class Cell:
    """A cell of a table that is more than text."""

    text: str
    mark: Literal["", "good", "bad"] = ""
    """Whether it is in the model's favour or against it"""
    panel: str = ""
    """Name of a panel that the text leads to"""
    picture: bytes | None = None
    """A small PNG beside the text"""

    @classmethod
    def judged(cls, text: str, is_good: bool | None) -> Cell:
        """Return a cell that is marked unless it is neither good nor bad."""
        return cls(text, "" if is_good is None else "good" if is_good else "bad")


@dataclass(frozen=True)
class PanelTable:
    """A table whose rows have the same columns."""

    rows: Sequence[Mapping[str, str | Cell]]
    """Cells by the names of their columns"""
    words: Collection[str] = ()
    """Columns without numbers, which are left-aligned"""
    sortable: bool = False
    """Whether a click on a column's head sorts the rows by it"""

    def __post_init__(self) -> None:
        for row in self.rows:
            if list(row) != self.columns:
                raise ValueError(f"a row of {list(row)} in a table of {self.columns}")

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns, in order."""
        return list(self.rows[0]) if self.rows else []


@dataclass(frozen=True)
class Panel:
    """One part of the page."""

    name: str
    title: str
    pictures: Sequence[Picture] = ()
    tables: Sequence[PanelTable] = ()
    note: str = ""
    code: str = ""
    """Lines to paste"""
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Further ones than those of its pictures"""

    def __post_init__(self) -> None:
        for name in (self.name, *(each.name for each in self.pictures), *self.all_arrays):
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
                raise InputError(
                    f"{name!r} cannot name a file of the report: only letters, digits, '.', '_'"
                    " and '-'"
                )

    @property
    def all_arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of the pictures and the further ones."""
        found: dict[str, np.ndarray] = {}
        for picture in self.pictures:
            found |= picture.arrays
        return found | dict(self.arrays)

    @property
    def data(self) -> str | None:
        """The file of the arrays, beside the page; None where there are none."""
        return f"{self.name}.npz" if self.all_arrays else None


def plain(name: str) -> str:
    """`mean drag` for `mean_drag`"""
    return name.replace("_", " ")


def component_name(name: str) -> str:
    """`velocity x` for `velocity.x`, `all components` for all."""
    return "all components" if name == ALL else plain(name).replace(".", " ")


def channel_label(channel: Channel) -> str:
    """`velocity x (m/s)`"""
    return with_unit(component_name(channel.name), channel.unit)


def count(number: int, noun: str) -> str:
    """`1 case`, `2 cases`"""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def number(value: object) -> str:
    """Format three digits of a number; a missing one is empty."""
    if isinstance(value, float | int):
        return f"{value:.3g}"
    return "" if value is None else str(value)


def listed(words: Sequence[str]) -> str:
    """`a, b and c`"""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def reference(name: str) -> str:
    """`the training mean`, `persistence`"""
    return name if name in (PERSISTENCE, DMD, POD_GP, POD_RBF) else f"the {name}"


def summary_line(evaluation: Evaluation) -> str:
    """Compare the model's error with each reference's, and name where it beats the first of them.

    Quantities that the null predicts better come before all.
    """
    ours, first = evaluation.overall[MODEL].nmae, evaluation.references[0]
    lost = [plain(name) for name, each in evaluation.quantities.items() if each.null_wins]
    nulls = (
        f"A regression on the design parameters alone predicts {listed(lost)} better than the model"
        " does. "
        if lost
        else ""
    )
    beside = []
    for name in evaluation.references:
        theirs = evaluation.overall[name].nmae
        if not theirs:
            beside.append(f"where {reference(name)} makes no error")
            continue
        share = ours / theirs - 1
        side = "below" if share < 0 else "above"
        beside.append(f"{abs(share):.0%} {side} {reference(name)}'s {theirs:.3f}")
    line = (
        f"{nulls}NMAE {ours:.3f} on the {evaluation.split} split, {listed(beside)}. Over the"
        f" variation of the fields (RAE) the error is {evaluation.overall[MODEL]['rae']:.3f}. "
    )
    if evaluation.step_s is None:
        cases = evaluation.cases.values()
        won = sum(case.overall[MODEL].nmae < case.overall[first].nmae for case in cases)
        return f"{line}The model is better than {reference(first)} on {won} of {len(cases)} cases."
    beats = dict(enumerate(evaluation.beats(first), start=1))
    if all(beats.values()):
        return f"{line}The model beats {reference(first)} at every rollout step."
    if not any(beats.values()):
        return f"{line}It does not beat {reference(first)} at any rollout step yet."
    better, worse = ([step for step in beats if beats[step] is is_won] for is_won in (True, False))
    return (
        f"{line}It beats {reference(first)} at steps {_ranges(better)}, and not yet at"
        f" {_ranges(worse)}."
    )


def _ranges(steps: Sequence[int]) -> str:
    """Format [1, 2, 3, 7] as `1-3 and 7`."""
    gaps = [at for at, (a, b) in enumerate(pairwise(steps), start=1) if b != a + 1]
    runs = [steps[begin:end] for begin, end in pairwise([0, *gaps, len(steps)])]
    return listed([f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs])


QUALITY = 88
"""Of WebP: no difference is seen, and the page of all panels is a third as large as with PNG"""
SCROLLED_ROWS = 16
"""Longer tables scroll"""


def data_url(picture: bytes) -> str:
    """Return a PNG or WebP file as a URL that needs no server."""
    kind = {b"\x89PNG": "image/png", b"RIFF": "image/webp"}[picture[:4]]
    return f"data:{kind};base64,{base64.b64encode(picture).decode()}"


def webp(pixels: np.ndarray) -> bytes:
    """Return pixels (Y, X, 3) of 8 bits as a WebP file, the top row first."""
    return _encoded(Image.fromarray(pixels[..., :3]), "WEBP", quality=QUALITY, method=4)


def webp_of(picture: bytes, width: int | None = None) -> bytes:
    """Return a picture's file as WebP, not transparent; scaled down to a width in pixels."""
    with Image.open(io.BytesIO(picture)) as opened:
        image = opened.convert("RGB")
    if width is not None and image.width > width:
        image = image.resize((width, max(1, round(image.height * width / image.width))))
    return _encoded(image, "WEBP", quality=QUALITY, method=4)


def small_png(pixels: np.ndarray) -> bytes:
    """Return pixels (Y, X, 3) of 8 bits as a PNG of at most 32 colours: for icons in tables."""
    return _encoded(Image.fromarray(pixels[..., :3]).quantize(32), "PNG", optimize=True)


def _encoded(image: Image.Image, kind: str, **options: int) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=kind, **options)
    return buffer.getvalue()


Drawn = dict[str, Sequence[bytes]]
"""By the name of a picture: the WebP files of it, several of an animation"""


def write_panel(folder: RunDirectory, panel: Panel, drawn: Drawn) -> list[str]:
    """Draw pictures into `drawn`, write them and the arrays; return the names of the files."""
    # Here, because a report that is up to date needs no matplotlib.
    from simgen.publish.figures import png_bytes

    files = []
    for picture in panel.pictures:
        figure = picture.draw()
        if isinstance(figure, Sequence):
            if len(figure) != len(picture.labels):
                raise ValueError(f"{len(figure)} frames with {len(picture.labels)} labels")
            drawn[picture.name] = figure
            continue
        png = png_bytes(figure)
        folder.write_bytes(picture.name, png)
        drawn[picture.name] = [webp_of(png)]
        files.append(picture.name)
    if panel.data is not None:
        folder.write_arrays(panel.data, panel.all_arrays)
        files.append(panel.data)
    return files


def write_page(
    folder: RunDirectory,
    title: str,
    meta: Sequence[str],
    verdict: str,
    panels: Sequence[Panel],
    keys: Mapping[str, str] | None = None,
) -> tuple[list[str], Drawn]:
    """Write index.html and the files beside it; return their names, and the pictures."""
    drawn: Drawn = {}
    files = [file for panel in panels for file in write_panel(folder, panel, drawn)]
    page = render_page(title, meta, verdict, panels, drawn, keys)
    folder.write_bytes(PAGE, page.encode())
    return files, drawn


def render_page(
    title: str,
    meta: Sequence[str],
    verdict: str,
    panels: Sequence[Panel],
    drawn: Drawn,
    keys: Mapping[str, str] | None = None,
) -> str:
    """Render index.html with its pictures, and `keys`, the numbers at its head, all escaped."""
    return _template("page.html.j2").render(
        title=title,
        meta=meta,
        verdict=verdict,
        keys=keys or {},
        panels=panels,
        drawn=drawn,
        scrolled_rows=SCROLLED_ROWS,
        embedded=data_url,
    )


def _template(name: str) -> jinja2.Template:
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("courant.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return templates.get_template(name)


def current_page(run: RunDirectory, folder: RunDirectory, evaluation: Evaluation) -> str | None:
    """Return the URL of the page in `folder` if it is of this evaluation and no file is missing."""
    found = folder.read_json(INPUTS) if folder.exists(INPUTS) else None
    if not isinstance(found, dict):
        return None
    files = found.pop("files", None)
    if not isinstance(files, list) or found != _inputs(run, evaluation):
        return None
    return page_url(folder) if {PAGE, *map(str, files)} <= set(folder.names()) else None


def keep_inputs(
    run: RunDirectory, folder: RunDirectory, evaluation: Evaluation, files: Iterable[str]
) -> None:
    """Write what the report in `folder` was made from, once all of it is written."""
    folder.write_json(INPUTS, {**_inputs(run, evaluation), "files": sorted(files)})


def page_url(folder: RunDirectory) -> str:
    """Return the URL of the page in a folder."""
    return f"{folder.url.rstrip('/')}/{PAGE}"


def _inputs(run: RunDirectory, evaluation: Evaluation) -> dict[str, Any]:
    made = {"run": run.url, "fingerprint": evaluation.fingerprint, "generator": GENERATOR}
    read = [(run, name) for name in (BANDS, MONITOR, METRICS) if run.exists(name)]
    if (sweep := sweep_of(run)) is not None:
        read.append((sweep, TABLE))  # what the search for settings took
    digests = {name: hashlib.sha256(of.read_bytes(name)).hexdigest()[:16] for of, name in read}
    return made | digests


MARK = "courant index of reports"
"""In the index page, so that no other page is ever written over"""
THUMBNAIL_WIDTH = 320


class Summary(BaseModel):
    """What the index shows of a report."""

    model_config = ConfigDict(extra="forbid")

    run: str
    family: str
    experiment: str
    dataset: str
    """The name of the version"""
    split: str
    verdict: str
    nmae: float
    reference: str
    """The best of the references"""
    reference_nmae: float
    written: datetime
    thumbnail: str = Field(pattern=r"^data:image/(png|webp);base64,[A-Za-z0-9+/=]+$")


def write_index(reports: str) -> str:
    """Write index.html over the reports in the folders of `reports`; return its URL.

    Two writers at once leave a complete page: each looks again after it has written, and writes
    again if reports have come or gone meanwhile. InputError where there is no report, or where
    index.html is another page.
    """
    folder = RunDirectory(reports)
    _check_own(folder)
    found = _entries(folder)
    if not found:
        raise InputError(f"{folder.url} has no folder with a report; name the folder of reports")
    while True:
        page = _template("index.html.j2").render(
            entries=found, mark=MARK, place=folder.url.rsplit("/", 1)[-1]
        )
        folder.write_bytes(PAGE, page.encode())
        if (now := _entries(folder)) == found or not now:
            return page_url(folder)
        found = now


def parent_index(run: RunDirectory, folder: RunDirectory) -> str | None:
    """Return the folder whose index lists a report; None where a report is on its own.

    Reports that lie together are in folders with the names of their runs.
    """
    parent, _, name = folder.url.rstrip("/").rpartition("/")
    is_of_reports = name == run.url.rstrip("/").rsplit("/", 1)[-1] and folder.url != run.url
    if not is_of_reports or not parent or parent.endswith(":/"):
        return None
    try:
        _check_own(RunDirectory(parent))
    except InputError:
        return None
    return parent


def _check_own(folder: RunDirectory) -> None:
    """Raise InputError where index.html is not an index of reports."""
    if folder.exists(PAGE) and MARK.encode() not in folder.read_bytes(PAGE):
        raise InputError(f"{folder.url}/{PAGE} is another page; move it, or name another folder")


def _entries(folder: RunDirectory) -> list[tuple[str, Summary | None]]:
    """Return folders and summaries, of each family the lowest error first, None last."""
    found: dict[str, Summary | None] = {}
    for name in folder.names():
        if folder.exists(f"{name}/{INPUTS}") and folder.exists(f"{name}/{PAGE}"):
            try:
                record = folder.read_record(f"{name}/{SUMMARY}", Summary, "write the report again")
            except StoreError:
                record = None
            found[name] = record
    ranks = {
        name: (each is None, each.family if each else "", each.nmae if each else 0.0, name)
        for name, each in found.items()
    }
    return [(name, found[name]) for name in sorted(found, key=ranks.__getitem__)]
