"""kill -9 of a solver, of a Ray worker and of the driver while 24 cylinder cases are generated, and
what was lost by it.

A first version of some cases is published, then all are asked for: a solver is killed, a worker,
and with half of the cases on record the driver. The same command again has to finish the work. What
is checked is a table; the study fails where a line of it does.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.validation.interrupted_run import InterruptedRun
from bench.validation.report import publish
from simgen.errors import SimgenError
from simgen.store.read import Dataset, open_dataset
from simgen.store.verify import verify
from tests.end_to_end.interrupting import done_cases

CASES, FIRST, END_S = 24, 4, 150


def main(out: Path, short: bool) -> None:
    cases, first = (8, 2) if short else (CASES, FIRST)
    folder = out / "interruptions"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    began = time.monotonic()
    with InterruptedRun(folder, "--set", f"end_time={END_S}") as run:
        run.finish(first)
        content = _content(open_dataset(run.url, "v1"))
        run.kill_one_after_the_other(cases)
        damaged = len(verify(open_dataset(run.url, "v1")).findings)
        on_record = set(done_cases(run.url))
        told_before = len(run.told)
        run.finish(cases)
    seconds = time.monotonic() - began
    failed = {case for case, status in run.told[:told_before] if status == "failed"}
    solved_again = {case for case, _ in run.told[told_before:]} & on_record - failed
    needless = [case for case, starts in run.starts.items() if starts > 1 + run.interrupted[case]]
    v1, v2 = open_dataset(run.url, "v1"), open_dataset(run.url, "v2")
    rows = [
        _line("cases on record when the driver was killed", len(on_record), len(on_record) < cases),
        _line("of them failed: the killed solver's", len(failed), len(failed) == 1),
        _line("damage found in v1 directly after the kills", damaged, damaged == 0),
        _line("accepted cases in v2, in the end", len(v2), len(v2) == cases),
        _line(
            "cases in v2 that are not accepted", len(v2.design) - len(v2), len(v2.design) == cases
        ),
        _line("solved cases that were solved again", len(solved_again), not solved_again),
        _line(
            "solver runs, interrupted ones included",
            run.starts.total(),
            run.starts.total() >= cases,
        ),
        _line(
            "solver runs that a kill ended", run.interrupted.total(), run.interrupted.total() >= 3
        ),
        _line(
            "cases with more solver runs than one and their interrupted ones",
            len(needless),
            not needless,
        ),
        *(_verified(version) for version in (v1, v2)),
        _line(
            "v1: snapshot, splits and every array's bytes are as they were",
            "",
            _content(v1) == content,
        ),
        _line(
            "v1's cases are in the same split in v2",
            "",
            all(v1[case].split == v2[case].split for case in v1.cases()),
        ),
    ]
    publish(out, "interruptions", rows, cases=cases, seconds=seconds)
    if not all(row["holds"] == "yes" for row in rows):
        raise SimgenError(
            f"an interrupted generation lost or repeated work; its dataset is kept at {run.url}"
        )


def _line(what: str, found: object, holds: bool) -> dict[str, Any]:
    return {"checked": what, "found": found, "holds": "yes" if holds else "NO"}


def _verified(dataset: Dataset) -> dict[str, Any]:
    found = verify(dataset)
    what = (
        f"{dataset.version}: findings of verify over {found.num_cases} cases, {found.num_chunks}"
        " chunks"
    )
    return _line(what, len(found.findings), not found.findings)


def _content(dataset: Dataset) -> str:
    """A hash over the version's snapshot, its splits and the bytes of all arrays."""
    digest = hashlib.sha256(dataset.snapshot_id.encode())
    for case in dataset:
        digest.update(f"{case.id} {case.split}".encode())
        for name, values in sorted(case.read().items()):
            digest.update(name.encode() + np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()
