"""Damage one file of a small store, read all of it, and compare: right data or one right line,
thousands of times.

python -m bench.damage --trials 5000 --seed 1 --out damage-out

A trial is made of its seed and number alone: `--only 1234` repeats one. Results are kept line by
line under --out, so that a campaign that was cut off goes on. Trials that are unreadable to the
reader run as nobody where the campaign runs as root, whom permissions do not bind.
"""

import argparse
import contextlib
import hashlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

import simgen
from bench.report import show
from simgen.errors import SimgenError
from simgen.store.read import StoredCase, open_dataset
from simgen.store.verify import verify
from simgen.store.versions import open_repository
from simgen.store.write import DatasetWriter
from tests.store.conftest import SCHEMA, make_cloud, make_result


def flip(path: Path, position: float = 0.5) -> None:
    """Invert one bit at a relative position."""
    content = bytearray(path.read_bytes())
    content[min(len(content) - 1, int(position * len(content)))] ^= 1
    path.write_bytes(content)


def objects(url: str, kind: str) -> list[Path]:
    """The repository's files of a kind: chunks, manifests, snapshots."""
    return sorted(path for path in (Path(url) / kind).rglob("*") if path.is_file())


def snapshot_of(url: str, version: str) -> Path:
    return Path(url) / "snapshots" / open_repository(url).lookup_tag(version)


NOBODY = 65534
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


def _flip_bits(path: Path, chance: random.Random, number: int = 1) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(number):
        position = chance.randrange(8 * len(content))
        content[position // 8] ^= 1 << position % 8
    path.write_bytes(content)


def _zero_block(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    begin = chance.randrange(len(content))
    end = min(len(content), begin + chance.randint(1, 64))
    content[begin:end] = bytes(end - begin)
    path.write_bytes(content)


def _another_file(path: Path, chance: random.Random) -> None:
    """The content of another object of its kind: valid, and at the wrong place."""
    folder = path.parent.parent if path.name == "ref.json" else path.parent
    path.write_bytes(
        chance.choice(sorted(other for other in folder.rglob("*") if other.is_file())).read_bytes()
    )


def _replace(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


KINDS: dict[str, Callable[[Path, random.Random], None]] = {
    "one bit flipped": _flip_bits,
    "several bits flipped": lambda path, chance: _flip_bits(path, chance, chance.randint(2, 16)),
    "truncated": lambda path, chance: os.truncate(path, chance.randrange(path.stat().st_size)),
    "a block of zeros": _zero_block,
    "another object's content": _another_file,
    "emptied": lambda path, _: path.open("wb").close(),
    "deleted": lambda path, _: path.unlink(),
    "a directory": lambda path, _: _replace(path, Path.mkdir),
    "a link to nothing": lambda path, _: _replace(path, lambda at: at.symlink_to("nowhere")),
    "a link to itself": lambda path, _: _replace(path, lambda at: at.symlink_to(at.name)),
    "unreadable": lambda path, _: path.chmod(0),
}


@contextlib.contextmanager
def damaged(path: Path, kind: str, chance: random.Random) -> Iterator[None]:
    """The file damaged; reading as nobody where that is what makes it unreadable."""
    content, mode = path.read_bytes(), path.stat().st_mode
    KINDS[kind](path, chance)
    as_nobody = kind == "unreadable" and os.geteuid() == 0
    if as_nobody:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if as_nobody:
            os.seteuid(0)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        path.write_bytes(content)
        path.chmod(mode)


@dataclass
class Observation:
    """All that a reader gets of a dataset, by place, such as `v1 case b0159c13a91f read`."""

    read: dict[str, str] = field(default_factory=dict)
    """Digests"""
    errors: dict[str, str] = field(default_factory=dict)

    def note(self, place: str, read: Callable[[], object]) -> None:
        try:
            content = json.dumps(read(), default=_plain, sort_keys=True).encode()
            self.read[place] = hashlib.blake2b(content, digest_size=16).hexdigest()
        except SimgenError as error:
            self.errors[place] = str(error)


def _plain(value: object) -> object:
    array = np.asarray(value)
    content = np.ascontiguousarray(array).tobytes()
    return [str(array.dtype), array.shape, hashlib.blake2b(content).hexdigest()]


def observe(url: str) -> Observation:
    """Read all of the first and the newest version, in every way that there is."""
    seen = Observation()
    for name in ("v1", "newest"):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                opened = simgen.open_dataset(url, None if name == "newest" else name)
        except SimgenError as error:
            seen.errors[f"{name} open"] = str(error)
            continue

        def tables(of: simgen.Dataset = opened) -> list[object]:
            info = [of.version, str(of.schema), of.info.message, of.info.metadata["author"]]
            return [*info, of.design.to_json(), of.statistics]

        seen.note(f"{name} tables", tables)
        for case in opened.design.index:
            _observe_case(seen, f"{name} case {case}", opened[case])
    return seen


def _observe_case(seen: Observation, place: str, case: StoredCase) -> None:
    ways: dict[str, Callable[[], object]] = {
        "record": lambda: [case.parameters, case.status, case.reason, case.split],
        "details": lambda: [case.gates, case.log_tail, case.provenance],
    }
    if case.status == "accepted":
        ways |= {
            "read": case.read,
            "window": lambda: [case["velocity"][1:2], case.boundary["velocity"].oindex[[0, 2]]],
            "views": lambda: [case.points, case.direction, case.boundary.normals, case.time],
            "xarray": lambda: {
                str(name): [each.dims, each.attrs, each.values]
                for name, each in case.to_xarray().items()
            },
        }
    for name, read in ways.items():
        seen.note(f"{place} {name}", read)


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
        try:
            named = bool(
                verify(open_dataset(url, None if version == "newest" else version)).findings
            )
        except SimgenError as error:
            named = "\n" not in str(error)
        if not named:
            return "not named by verify", next(iter(found.errors))
    return "one line", next(iter(found.errors.values()))


def campaign(out: Path, seed: int, trials: int, workers: int) -> Iterator[Trial]:
    """All trials of a campaign, those of an earlier run of it first."""
    out.mkdir(parents=True, exist_ok=True)
    pristine, record = make_store(out), out / f"seed-{seed}.jsonl"
    record.touch()
    done = [Trial(**json.loads(line)) for line in record.read_text().splitlines()]
    yield from done
    left = sorted(set(range(trials)) - {trial.number for trial in done})
    batches = [left[begin : begin + BATCH] for begin in range(0, len(left), BATCH)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool, record.open("a") as file:
        running = [pool.submit(run_trials, pristine, seed, batch) for batch in batches]
        for future in as_completed(running):
            for trial in future.result():
                file.write(f"{json.dumps(asdict(trial))}\n")
                yield trial
            file.flush()


def print_table(trials: Sequence[Trial]) -> None:
    """Outcomes by kind of damage."""
    rows = []
    for kind in (*KINDS, "all"):
        of_kind = [trial for trial in trials if kind in (trial.kind, "all")]
        counts = Counter(trial.outcome for trial in of_kind)
        outcomes = {name: counts[name] for name in ("right data", "one line", *BAD)}
        rows.append({"damage": kind, "trials": len(of_kind), **outcomes})
    show(rows)


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
