"""List the reports of a folder on one page, which is written anew whenever a report is.

Each report keeps a summary of itself; the index page is made from those summaries alone. Two
writers at once leave a complete page: each looks again after it has written, and writes again if
reports have come or gone meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict, Field

from courant.evaluation.record import MODEL
from courant.report.context import Context
from courant.report.current import INPUTS, PAGE
from courant.report.drawing import data_url, webp_of_png
from courant.report.page import template
from courant.report.verdict import summary_line
from courant.runs.directory import RunDirectory
from simgen.errors import InputError, StoreError

SUMMARY = "summary.json"
MARK = "courant index of reports"
"""In the page, so that no other page is ever written over"""
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


@dataclass(frozen=True)
class Entry:
    """A report of the folder; one of an older release has no summary."""

    folder: str
    summary: Summary | None


def keep_summary(folder: RunDirectory, context: Context, thumbnail: bytes) -> None:
    """Write the summary of a report; `thumbnail` is a PNG of any size."""
    evaluation = context.evaluation
    best = min(evaluation.references, key=lambda name: evaluation.overall[name].nmae)
    summary = Summary(
        run=context.run.url,
        family=context.dataset.schema.family,
        experiment=context.surrogate.experiment.name,
        dataset=context.dataset.version,
        split=evaluation.split,
        verdict=summary_line(evaluation),
        nmae=evaluation.overall[MODEL].nmae,
        reference=best,
        reference_nmae=evaluation.overall[best].nmae,
        written=datetime.now(UTC),
        thumbnail=data_url(webp_of_png(thumbnail, THUMBNAIL_WIDTH)),
    )
    folder.write_bytes(SUMMARY, summary.model_dump_json(indent=2).encode())


def write_index(reports: str) -> str:
    """Write index.html over the reports in the folders of `reports`; return its URL.

    InputError where there is no report, or where index.html is another page.
    """
    folder = RunDirectory(reports)
    _check_own(folder)
    found = _entries(folder)
    if not found:
        raise InputError(f"{folder.url} has no folder with a report; name the folder of reports")
    while True:
        page = template("index.html.j2").render(
            entries=found, mark=MARK, place=folder.url.rsplit("/", 1)[-1]
        )
        folder.write_bytes(PAGE, page.encode())
        if (now := _entries(folder)) == found or not now:
            return f"{folder.url.rstrip('/')}/{PAGE}"
        found = now


def parent_index(run: RunDirectory, folder: RunDirectory) -> str | None:
    """Return the folder whose index lists a report; None where a report stands alone.

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


def _entries(folder: RunDirectory) -> list[Entry]:
    """Return the reports, the one with the lowest error of each family first."""
    found = []
    for name in folder.names():
        if folder.exists(f"{name}/{INPUTS}") and folder.exists(f"{name}/{PAGE}"):
            found.append(Entry(name, _summary(folder, name)))
    return sorted(found, key=_order)


def _order(entry: Entry) -> tuple[bool, str, float, str]:
    each = entry.summary
    if each is None:
        return (True, "", 0.0, entry.folder)
    return (False, each.family, each.nmae, entry.folder)


def _summary(folder: RunDirectory, name: str) -> Summary | None:
    try:
        return folder.read_record(f"{name}/{SUMMARY}", Summary, "write the report again")
    except StoreError:
        return None
