"""Run schedules one after the other, with the servers that they share: OUT ROW SEED...

Without seeds it makes the undisturbed run, where there is none yet.
"""

from __future__ import annotations

import shutil
import signal
import sys
from pathlib import Path

from rich.console import Console

from bench.chaos import results
from bench.chaos.attempt import Attempt, Job
from bench.chaos.pursuit import Pursuit, pursue
from bench.chaos.reference import References, read_result
from bench.chaos.schedule import Schedule, draw
from bench.chaos.servers import Servers
from bench.chaos.site import Site
from bench.chaos.watching import Watch, adopt_orphans
from simgen.provenance import source_revision

#: At the undisturbed run.
ATTEMPTS = 4

screen = Console(width=160)


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


def _run(schedule: Schedule, servers: Servers, references: References, out: Path) -> bool:
    """Put a schedule on record; False where it could not be run, which says nothing of the job."""
    folder = out / "work" / str(schedule.seed)
    try:
        pursuit = pursue(schedule, servers, references, folder)
    except (AssertionError, OSError, RuntimeError) as error:
        trouble = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        screen.print(f"seed {schedule.seed} could not be run: {trouble}", highlight=False)
        return False
    results.append(out, pursuit.to_json())
    kept = out / "kept" / str(schedule.seed)
    shutil.rmtree(kept, ignore_errors=True)
    if pursuit.breaches:
        kept.parent.mkdir(exist_ok=True)
        folder.rename(kept)
    else:
        shutil.rmtree(folder)
    _tell(pursuit)
    return True


def _tell(pursuit: Pursuit) -> None:
    schedule = pursuit.schedule
    struck = "; ".join(f"{fault.kind} ({fault.moment}): {what}" for fault, what in pursuit.struck)
    missed = f"; missed: {', '.join(pursuit.missed)}" if pursuit.missed else ""
    outcome = "BROKEN" if pursuit.breaches else "held"
    screen.print(
        f"seed {schedule.seed} {schedule.store} {outcome} in {pursuit.seconds:.0f} s, "
        f"exit codes {pursuit.codes}: {struck}{missed}",
        soft_wrap=True, highlight=False,
    )  # fmt: skip
    for breach in pursuit.breaches:
        screen.print(f"  {breach}", soft_wrap=True, highlight=False)


def _make_reference(references: References, servers: Servers, out: Path) -> None:
    """One job without any fault."""
    references.write_experiment()
    folder = out / "work" / "undisturbed"
    with Site(Schedule(0, "local", "none", False, ()), servers, folder) as site:
        for _ in range(ATTEMPTS):
            attempt = Attempt(Job(site, str(references.experiment)), Watch(site.scratch), False)
            attempt.run((), lambda attempt, fault: None)
            if attempt.code == 0:
                break
        else:
            raise SystemExit(f"the undisturbed run failed:\n{attempt.first.printed}")
        references.write(read_result(site.base))
    shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
