"""Tell from the inputs that a report keeps whether it has to be written again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from courant.evaluation.record import Evaluation
from courant.runs.directory import RunDirectory
from courant.runs.record import BANDS, METRICS, MONITOR
from courant.sweeps.sweep import TABLE, sweep_of

PAGE = "index.html"
INPUTS = "report.json"
GENERATOR = 15
"""Raise this when the same inputs would give another report"""


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
    """Write down what the report in `folder` was made from, once all of it is written."""
    folder.write_json(INPUTS, {**_inputs(run, evaluation), "files": sorted(files)})


def page_url(folder: RunDirectory) -> str:
    """Return the URL of the report's page."""
    return f"{folder.url.rstrip('/')}/{PAGE}"


def _inputs(run: RunDirectory, evaluation: Evaluation) -> dict[str, Any]:
    made = {"run": run.url, "fingerprint": evaluation.fingerprint, "generator": GENERATOR}
    for name in (BANDS, MONITOR, METRICS):
        if run.exists(name):
            made[name] = _digest(run, name)
    if (sweep := sweep_of(run)) is not None:
        made[TABLE] = _digest(sweep, TABLE)  # what the search for settings took
    return made


def _digest(folder: RunDirectory, name: str) -> str:
    return hashlib.sha256(folder.read_bytes(name)).hexdigest()[:16]
