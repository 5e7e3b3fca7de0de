"""One schedule from its first command to its last: interrupted, repeated until done, checked."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.chaos.attempt import Attempt, Job
from bench.chaos.invariants import check, is_complete
from bench.chaos.reference import References
from bench.chaos.schedule import Fault, Schedule
from bench.chaos.servers import Servers
from bench.chaos.site import Site
from bench.chaos.strikes import strike
from bench.chaos.watching import Watch, descendants
from simgen.errors import SimgenError
from simgen.provenance import source_revision

#: Attempts that a job may take beyond one for each fault.
SPARE_ATTEMPTS = 4


@dataclass
class Pursuit:
    """What became of a schedule."""

    schedule: Schedule
    struck: list[tuple[Fault, str]] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    last_lines: list[str] = field(default_factory=list)
    took_to_end_s: list[float | None] = field(default_factory=list)
    tracebacks: int = 0
    breaches: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "seed": self.schedule.seed,
            "store": self.schedule.store,
            "struck": [{"kind": f.kind, "at": str(f.moment), "what": w} for f, w in self.struck],
            "missed": self.missed,
            "codes": self.codes,
            "last_lines": self.last_lines,
            "took_to_end_s": self.took_to_end_s,
            "tracebacks": self.tracebacks,
            "breaches": self.breaches,
            "seconds": round(self.seconds, 1),
            "revision": source_revision(),
            "schedule": asdict(self.schedule),
        }


def pursue(schedule: Schedule, servers: Servers, references: References, folder: Path) -> Pursuit:
    """Run the schedule in a folder, which keeps what the commands printed."""
    began, pursuit = time.monotonic(), Pursuit(schedule)
    with Site(schedule, servers, folder) as site:
        flows = servers.unfinished_flows(site.server)
        watch, attempts = Watch(site.scratch), []
        try:
            attempts = _until_done(pursuit, site, watch, str(references.experiment))
            pursuit.breaches += check(site, watch, attempts, references, flows)
        except SimgenError as error:
            pursuit.breaches.append(f"unreadable: {error}")
        finally:
            _end_all(site)
    pursuit.seconds = time.monotonic() - began
    return pursuit


def _until_done(pursuit: Pursuit, site: Site, watch: Watch, experiment: str) -> list[Attempt]:
    ahead = list(pursuit.schedule.faults)
    attempts: list[Attempt] = []
    while True:
        trained = any(map(_has_trained, attempts))
        attempt = Attempt(Job(site, experiment), watch, trained)
        attempts.append(attempt)
        attempt.run(ahead, strike)
        ahead = ahead[len(attempt.struck) :]
        _note(pursuit, site, attempt, len(attempts))
        # Nobody repeats a command while its disk is known to be full.
        while site.tend():
            time.sleep(0.1)
        done = attempt.code == 0 and is_complete(site)
        most = len(pursuit.schedule.faults) + SPARE_ATTEMPTS
        if done or not attempt.in_time or len(attempts) >= most:
            pursuit.missed = [fault.kind for fault in ahead]
            return attempts


def _has_trained(attempt: Attempt) -> bool:
    return attempt.code == 0 or attempt.trained


def _note(pursuit: Pursuit, site: Site, attempt: Attempt, number: int) -> None:
    pursuit.struck += attempt.struck
    took = attempt.took_to_end_s
    pursuit.took_to_end_s.append(None if took is None else round(took, 1))
    for place, terminal in enumerate(attempt.terminals):
        text = terminal.printed
        (site.folder / f"attempt-{number}-{place}.txt").write_text(text)
        pursuit.codes.append(terminal.process.returncode)
        pursuit.last_lines.append((text.strip().splitlines() or [""])[-1].strip()[:250])
        pursuit.tracebacks += text.count("Traceback (most recent call last)")


def _end_all(site: Site) -> None:
    """Whatever breach it was, the next schedule does not meet what this one has left."""
    site.heal()
    for process in descendants(site.spared):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
