"""`make chaos`: seeded schedules of faults, each held against an undisturbed run.

    python -m bench.chaos --seeds 1-100 --out chaos-out      goes on where it was cut off
    python -m bench.chaos --replay 17                        one schedule again

Ends with exit code 1 where an invariant broke. Of a schedule that broke one, everything is kept
under OUT/kept/<seed>.
"""

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.chaos.row import HEADER, read, rows, summary
from bench.chaos.schedule import KINDS, Schedule, draw, unavailable
from tests.end_to_end.conftest import ROOT

screen = Console(width=160)


def main() -> int:
    arguments = _parse()
    out: Path = arguments.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    seeds = [arguments.replay] if arguments.replay else _seeds(arguments.seeds)
    schedules = [draw(seed) for seed in seeds]
    wanted = [one for one in schedules if _wanted(one, arguments.kinds)]
    for kind in KINDS.values():
        if (missing := unavailable(kind)) is not None:
            screen.print(f"not on this machine: {kind.name}, which {missing}")
    done = {} if arguments.replay else read(out)
    ahead = [one.seed for one in wanted if one.seed not in done]
    screen.print(f"{len(wanted)} schedules, {len(wanted) - len(ahead)} of them on record")
    broken = _run_rows(ahead, out, arguments.rows)
    named = {one.seed for one in wanted}
    records = [record for seed, record in sorted(read(out).items()) if seed in named]
    if not records:
        return 1
    table = Table(*HEADER, box=None, header_style="bold")
    lines = [HEADER, ("---",) * len(HEADER), *rows(records)]
    for line in lines[2:]:
        table.add_row(*line)
    screen.print(table)
    for record in records:
        for breach in record["breaches"]:
            screen.print(f"seed {record['seed']}: {breach}", soft_wrap=True, highlight=False)
    screen.print(summary(records), soft_wrap=True)
    (out / "table.md").write_text("".join(f"| {' | '.join(line)} |\n" for line in lines))
    complete = len(records) == len(wanted)
    return int(broken or not complete or any(record["breaches"] for record in records))


def _run_rows(seeds: list[int], out: Path, num_rows: int) -> bool:
    """Rows of schedules beside each other, each in a process of its own; whether one ended ill."""
    if not seeds:
        return False
    command = [sys.executable, "-m", "bench.chaos.row", str(out)]
    # The undisturbed run comes first, and alone.
    if subprocess.run([*command, "0"], cwd=ROOT).returncode:
        return True
    rows = [
        subprocess.Popen([*command, str(row), *map(str, seeds[row::num_rows])], cwd=ROOT)
        for row in range(min(num_rows, len(seeds)))
    ]
    try:
        return max(row.wait() for row in rows) != 0
    except KeyboardInterrupt:
        # They are interrupted as well, and put their servers away.
        for row in rows:
            row.wait()
        raise


def _wanted(schedule: Schedule, kinds: list[str] | None) -> bool:
    """Whether it can run here, and leads with one of the kinds that were asked for."""
    struck = {fault.kind for fault in schedule.faults}
    if any(unavailable(KINDS[kind]) for kind in struck):
        return False
    return not kinds or bool(struck & set(kinds))


def _seeds(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.chaos", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seeds", default="1-100", help="such as 1-100 or 3,17; default 1-100")
    parser.add_argument("--replay", type=int, help="run this seed, whatever is on record")
    parser.add_argument("--kinds", nargs="*", choices=list(KINDS), help="only schedules with these")
    parser.add_argument("--out", type=Path, default=Path("chaos-out"), help="folder of the records")
    parser.add_argument(
        "--rows", type=int, default=max(1, (os.cpu_count() or 1) // 1), help="schedules at once"
    )
    return parser.parse_args()


if __name__ == "__main__":
    # As Ctrl-C: the rows put their servers away first.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
