"""Finished schedules on record, a JSON line each, and the tables that are made of them."""

from __future__ import annotations

import fcntl
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.table import Table

from bench.chaos.kinds import KINDS, unavailable

RECORDS = "schedules.jsonl"


def append(out: Path, record: dict[str, Any]) -> None:
    """One more line, whole or not there at all, whoever else appends."""
    with (out / RECORDS).open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps(record).encode() + b"\n")


def read(out: Path) -> dict[int, dict[str, Any]]:
    """By seed; a schedule that was run again counts as it ended last."""
    file = out / RECORDS
    if not file.exists():
        return {}
    lines = [line for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]
    records = [json.loads(line) for line in lines]
    return {record["seed"]: record for record in records}


def rows(records: Iterable[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """A row a kind: what it is, strikes, schedules, attempts that ended early, breaches."""
    records = list(records)
    for kind in KINDS.values():
        of = [record for record in records if _strikes(record, kind.name)]
        strikes = sum(_strikes(record, kind.name) for record in of)
        broken = sum(bool(record["breaches"]) for record in of)
        repeats = sum(len(record["codes"]) - 1 for record in of)
        missing = unavailable(kind)
        outcome = f"{broken} broke an invariant" if broken else "all held"
        if not of:
            outcome = f"not run: {missing}" if missing else "not run"
        counts = (str(strikes), str(len(of)), str(repeats))
        yield (kind.name, kind.what, *counts, outcome)


def _strikes(record: dict[str, Any], kind: str) -> int:
    return sum(struck["kind"] == kind for struck in record["struck"])


HEADER = ("fault", "what is done", "strikes", "schedules", "commands repeated", "outcome")


def table(records: Iterable[dict[str, Any]]) -> Table:
    """For the screen."""
    made = Table(*HEADER, box=None, header_style="bold")
    for row in rows(records):
        made.add_row(*row)
    return made


def markdown(records: Iterable[dict[str, Any]]) -> str:
    """For the documentation."""
    lines = [HEADER, ("---",) * len(HEADER), *rows(records)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def summary(records: Iterable[dict[str, Any]]) -> str:
    """Schedules, strikes and breaches in words."""
    records = list(records)
    struck = [record for record in records if record["struck"]]
    strikes = sum(len(record["struck"]) for record in records)
    kinds = {one["kind"] for record in records for one in record["struck"]}
    breaches = Counter(line.partition(":")[0] for record in records for line in record["breaches"])
    told = ", ".join(f"{count} {what}" for what, count in breaches.items()) or "none"
    return (
        f"{len(struck)} schedules with {strikes} strikes of {len(kinds)} kinds"
        f" ({len(records) - len(struck)} more in which none landed); breaches: {told}"
    )
