"""Damage one file of a small store, read all of it, and see: right data or one right line,
thousands of times.

python -m bench.damage.campaign --trials 5000 --seed 1 --out damage-out

A trial is made of its seed and number alone: `--only 1234` repeats one. Results are kept line by
line under --out, so that a campaign that was cut off goes on. Trials that are unreadable to the
reader run as nobody where the campaign runs as root, whom permissions do not bind.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.damage.kinds import KINDS, damaged
from bench.damage.reading import Observation, observe
from simgen.errors import SimgenError
from simgen.store.read import open_dataset
from simgen.store.verify import verify
from simgen.store.write import DatasetWriter
from tests.store.conftest import SCHEMA, make_cloud, make_result

HANG_S = 120
BATCH = 20
BAD = ("wrong data", "panic", "hang", "traceback", "several lines", "not named by verify")


@dataclass(frozen=True)
class Trial:
    """One damage and what came of it."""

    number: int
    kind: str
    file: str
    outcome: str
    line: str = ""


class _HangError(BaseException):
    pass


def make_store(folder: Path) -> str:
    """Two versions, three accepted cases and a rejected one; some chunks are objects, some lie in
    manifests.
    """
    url = str(folder / "cylinder-flow")
    if not (folder / "complete").exists():
        shutil.rmtree(url, ignore_errors=True)
        writer = DatasetWriter.open(url, SCHEMA)
        for number, points in ((0, 40), (1, 6)):
            _commit(writer, number, points)
        writer.publish("first")
        _commit(writer, 2, 6)
        fork = writer.fork()
        fork.write(make_result(3, "rejected", "Courant number is 7, limit 1.5"), None)
        writer.commit([fork])
        writer.publish("second")
        (folder / "complete").touch()
    return url


def _commit(writer: DatasetWriter, number: int, points: int) -> None:
    fork = writer.fork()
    fork.write(make_result(number), make_cloud(number, points))
    writer.commit([fork])


def run_trials(pristine: str, seed: int, numbers: Sequence[int]) -> list[Trial]:
    """These trials, on a copy of the store that is mended after each."""
    with tempfile.TemporaryDirectory(prefix="damage-") as folder:
        Path(folder).chmod(0o755)
        url = str(Path(folder) / "cylinder-flow")
        shutil.copytree(pristine, url)
        expected = observe(url)
        return [run_trial(url, seed, number, expected) for number in numbers]


def run_trial(url: str, seed: int, number: int, expected: Observation) -> Trial:
    chance = random.Random(f"{seed}:{number}")
    files = sorted(path for path in Path(url).rglob("*") if path.is_file())
    folder = chance.choice(sorted({path.relative_to(url).parts[0] for path in files}))
    file = chance.choice([path for path in files if path.relative_to(url).parts[0] == folder])
    kind = chance.choice(list(KINDS))
    with damaged(file, kind, chance):
        outcome, line = _outcome(url, expected)
    return Trial(number, kind, str(file.relative_to(url)), outcome, line)


def _outcome(url: str, expected: Observation) -> tuple[str, str]:
    signal.signal(signal.SIGALRM, _hang)
    signal.alarm(HANG_S)
    try:
        return _compared(url, expected)
    except _HangError:
        return "hang", ""
    except BaseException as error:
        kind = "panic" if type(error).__name__ == "PanicException" else "traceback"
        return kind, f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)


def _hang(*_: object) -> None:
    raise _HangError


def _compared(url: str, expected: Observation) -> tuple[str, str]:
    found = observe(url)
    for place, value in found.read.items():
        if expected.read[place] != value:
            return "wrong data", place
    for place, line in found.errors.items():
        if "\n" in line or url not in line:
            return "several lines", f"{place}: {line}"
    if not found.errors:
        return "right data", ""
    for version in sorted({place.split()[0] for place in found.errors}):
        if not _is_named(url, version):
            return "not named by verify", next(iter(found.errors))
    return "one line", next(iter(found.errors.values()))


def _is_named(url: str, version: str) -> bool:
    try:
        return bool(verify(open_dataset(url, None if version == "newest" else version)).findings)
    except SimgenError as error:
        return "\n" not in str(error)


def campaign(out: Path, seed: int, trials: int, workers: int) -> Iterator[Trial]:
    """All trials of a campaign, those of an earlier run of it first."""
    out.mkdir(parents=True, exist_ok=True)
    pristine = make_store(out)
    record = out / f"seed-{seed}.jsonl"
    done = (
        [Trial(**json.loads(line)) for line in record.read_text().splitlines()]
        if record.exists()
        else []
    )
    yield from done
    known = {trial.number for trial in done}
    open_ = [number for number in range(trials) if number not in known]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool, record.open("a") as file:
        batches = [open_[begin : begin + BATCH] for begin in range(0, len(open_), BATCH)]
        for future in as_completed(
            [pool.submit(run_trials, pristine, seed, batch) for batch in batches]
        ):
            for trial in future.result():
                file.write(f"{json.dumps(asdict(trial))}\n")
                yield trial
            file.flush()


def print_table(trials: Sequence[Trial]) -> None:
    """Outcomes by kind of damage."""
    outcomes = ("right data", "one line", *BAD)
    counts = Counter((trial.kind, trial.outcome) for trial in trials)
    table = Table("damage", "trials", *outcomes)
    for kind in KINDS:
        of_kind = [counts[kind, outcome] for outcome in outcomes]
        table.add_row(kind, str(sum(of_kind)), *map(str, of_kind))
    totals = [sum(counts[kind, outcome] for kind in KINDS) for outcome in outcomes]
    table.add_row("all", str(len(trials)), *map(str, totals))
    Console(width=160).print(table)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("damage-out"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", type=int, help="repeat this trial alone")
    given = parser.parse_args()
    if given.only is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        print(run_trials(make_store(given.out), given.seed, [given.only]))
        return 0
    trials = list(campaign(given.out, given.seed, given.trials, given.workers))
    print_table(trials)
    bad = [trial for trial in trials if trial.outcome in BAD]
    for trial in bad:
        print(trial, file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
