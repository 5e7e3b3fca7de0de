"""Run schedules one after the other, with the servers that they share: OUT ROW SEED...

A schedule runs from its first command to its last: interrupted, repeated until done, checked, and
on record as a line of JSON. Without seeds the undisturbed run is made, where there is none yet.
"""

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from filelock import FileLock
from rich.console import Console

from bench.chaos.attempt import Attempt, Watch, adopt_orphans, descendants, strike
from bench.chaos.check import References, check, is_complete, read_result
from bench.chaos.schedule import KINDS, Schedule, draw, unavailable
from bench.chaos.site import Servers, Site
from simgen.errors import SimgenError
from simgen.provenance import source_revision

RECORDS = "schedules.jsonl"
HEADER = ("fault", "what is done", "strikes", "schedules", "commands repeated", "outcome")
#: Attempts that a job may take beyond one for each fault.
SPARE_ATTEMPTS = 4
Record = dict[str, Any]

screen = Console(width=160)


def append(out: Path, record: Record) -> None:
    """One more line, whole or not there at all, whoever else appends."""
    with FileLock(out / f"{RECORDS}.lock"), (out / RECORDS).open("a") as file:
        file.write(json.dumps(record) + "\n")


def read(out: Path) -> dict[int, Record]:
    """By seed; a schedule that was run again counts as it ended last."""
    file = out / RECORDS
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    records = [json.loads(line) for line in lines if line.endswith("\n")]
    return {record["seed"]: record for record in records}


def rows(records: Sequence[Record]) -> Iterator[tuple[str, ...]]:
    """A row a kind: what it is, strikes, schedules, attempts that ended early, breaches."""
    for kind in KINDS.values():
        strikes = [sum(one["kind"] == kind.name for one in each["struck"]) for each in records]
        of = [each for each, num in zip(records, strikes, strict=True) if num]
        broken = sum(bool(record["breaches"]) for record in of)
        repeats = sum(len(record["codes"]) - 1 for record in of)
        missing = unavailable(kind)
        outcome = f"{broken} broke an invariant" if broken else "all held"
        if not of:
            outcome = f"not run: {missing}" if missing else "not run"
        yield (kind.name, kind.what, str(sum(strikes)), str(len(of)), str(repeats), outcome)


def summary(records: Sequence[Record]) -> str:
    """Schedules, strikes and breaches in words."""
    strikes = [one["kind"] for record in records for one in record["struck"]]
    struck = sum(bool(record["struck"]) for record in records)
    breaches = Counter(line.partition(":")[0] for record in records for line in record["breaches"])
    found = ", ".join(f"{count} {what}" for what, count in breaches.items()) or "none"
    return (
        f"{struck} schedules with {len(strikes)} strikes of {len(set(strikes))} kinds"
        f" ({len(records) - struck} more in which none landed); breaches: {found}"
    )


def pursue(schedule: Schedule, servers: Servers, references: References, folder: Path) -> Record:
    """Run the schedule in a folder, which keeps what the commands printed."""
    began = time.monotonic()
    attempts: list[Attempt] = []
    breaches: list[str] = []
    with Site(schedule, servers, folder) as site:
        flows = servers.unfinished_flows(schedule.server)
        watch = Watch(site.scratch)
        try:
            _until_done(attempts, site, watch, str(references.experiment))
            breaches = check(site, watch, attempts, references, flows)
        except SimgenError as error:
            breaches = [f"unreadable: {error}"]
        finally:
            # Whatever breach it was, the next schedule does not meet what this one has left.
            site.heal()
            for process in descendants(site.spared):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
    struck = [each for attempt in attempts for each in attempt.struck]
    printed = [terminal.printed for attempt in attempts for terminal in attempt.terminals]
    return {
        "seed": schedule.seed,
        "store": schedule.store,
        "struck": [{"kind": f.kind, "at": str(f.moment), "what": what} for f, what in struck],
        "missed": [fault.kind for fault in schedule.faults[len(struck) :]],
        "codes": [t.process.returncode for attempt in attempts for t in attempt.terminals],
        "last_lines": [(text.strip().splitlines() or [""])[-1].strip()[:250] for text in printed],
        "took_to_end_s": [attempt.took_to_end_s for attempt in attempts],
        "tracebacks": sum(text.count("Traceback (most recent call last)") for text in printed),
        "breaches": breaches,
        "seconds": round(time.monotonic() - began, 1),
        "revision": source_revision(),
        "schedule": asdict(schedule),
    }


def _until_done(attempts: list[Attempt], site: Site, watch: Watch, experiment: str) -> None:
    """Start the command again and again; attempts are added as they begin."""
    ahead = list(site.schedule.faults)
    most = len(ahead) + SPARE_ATTEMPTS
    while len(attempts) < most:
        trained = any(attempt.code == 0 or attempt.trained for attempt in attempts)
        attempt = Attempt(site, experiment, watch, trained)
        attempts.append(attempt)
        attempt.run(ahead, strike)
        ahead = ahead[len(attempt.struck) :]
        for place, terminal in enumerate(attempt.terminals):
            file = site.folder / f"attempt-{len(attempts)}-{place}.txt"
            file.write_text(terminal.printed)
        # Nobody repeats a command while its disk is known to be full.
        while site.tend():
            time.sleep(0.1)
        if not attempt.in_time or (attempt.code == 0 and is_complete(site)):
            return


def _run(schedule: Schedule, servers: Servers, references: References, out: Path) -> bool:
    """Put a schedule on record; False where it could not be run, which is no verdict on the job."""
    folder = out / "work" / str(schedule.seed)
    try:
        record = pursue(schedule, servers, references, folder)
    except (AssertionError, OSError, RuntimeError) as error:
        trouble = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        screen.print(f"seed {schedule.seed} could not be run: {trouble}", highlight=False)
        return False
    append(out, record)
    kept = out / "kept" / str(schedule.seed)
    shutil.rmtree(kept, ignore_errors=True)
    if record["breaches"]:
        kept.parent.mkdir(exist_ok=True)
        folder.rename(kept)
    else:
        shutil.rmtree(folder)
    struck = "; ".join(f"{one['kind']} ({one['at']}): {one['what']}" for one in record["struck"])
    missed = f"; missed: {', '.join(record['missed'])}" if record["missed"] else ""
    outcome = "BROKEN" if record["breaches"] else "held"
    line = f"seed {schedule.seed} {schedule.store} {outcome} in {record['seconds']:.0f} s"
    for text in (f"{line}, exit codes {record['codes']}: {struck}{missed}", *record["breaches"]):
        screen.print(text, soft_wrap=True, highlight=False)
    return True


def _make_reference(references: References, servers: Servers, out: Path) -> None:
    """One job without any fault."""
    folder = out / "work" / "undisturbed"
    with Site(Schedule(0, "local", "none", False, ()), servers, folder) as site:
        for _ in range(SPARE_ATTEMPTS):
            watch = Watch(site.scratch)
            attempt = Attempt(site, str(references.experiment), watch, False)
            attempt.run((), lambda attempt, fault: None)
            if attempt.code == 0:
                break
        else:
            raise SystemExit(f"the undisturbed run failed:\n{attempt.first.printed}")
        references.write(read_result(site.base))
    shutil.rmtree(folder)


def main() -> int:
    out, row, seeds = Path(sys.argv[1]), int(sys.argv[2]), [int(seed) for seed in sys.argv[3:]]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    adopt_orphans()
    # What a newer source gives may well be something else.
    references = References(out / f"undisturbed-{source_revision()}")
    with Servers(out / f"row-{row}") as servers:
        if not references.file.exists():
            _make_reference(references, servers, out)
        ran = [_run(draw(seed), servers, references, out) for seed in seeds]
    return int(not all(ran))


if __name__ == "__main__":
    sys.exit(main())
