"""The dataset store: reading beside other formats, write amplification, growth with the number of
cases. Bars are beside the figures.

A first read is one of a case that was not touched since the contender was opened, with the
operating system's page cache dropped; a read again has both. Rates are decoded bytes over seconds,
median over cases and rounds; contenders take turns. Write amplification is what an appended tenth
of the cases adds on disk, over what these cases hold. Growth is that of opening, listing and
committing, to 10,000 tiny cases through the real writer.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import s3fs
import zarr
from rich.progress import Progress
from zarr.abc.store import Store
from zarr.core.sync import sync
from zarr.storage import FsspecStore, LocalStore

import simgen
from bench.report import plot, publish, show
from bench.synthetic_cases import (
    REAL_FACES,
    REAL_POINTS,
    REAL_SNAPSHOTS,
    SCHEMA,
    publish_cases,
    synthetic_cloud,
    synthetic_result,
    write_cases,
)
from simgen.store.read import LocalCache, StoredCase
from simgen.store.write import DatasetWriter
from tests.conftest import BUCKET, KEYS, SeaweedFS

SNAPSHOTS, WINDOW = 580, slice(100, 111)
"""Of the cases that are read (16 MB of fields), and a window of them"""
FIELD, STEADY_POINTS, SCATTERED = "velocity", 300_000, 16_384
CASES, ROUNDS = 4, 5
COLUMNS = ("whole, first", "whole, again", "11 snapshots", "16k points")
Rates = dict[str, dict[str, float]]
SIZES, SHORT_SIZES = (100, 1000, 3000, 10000), (100, 300)
TINY, REAL = (40, 12, 6), (REAL_POINTS, REAL_FACES, REAL_SNAPSHOTS)
BATCH, WORKERS, PER_FORK = 100, 2, 50
AMPLIFICATION_BAR = 1.1
GROWTH_BARS = {"open, s": 1.0, "list designs, s": 2.0, f"commit {BATCH} more, s": 5.0}


def main(out: Path, short: bool) -> None:
    """Print the tables, write store.json and store-scale.png."""
    with tempfile.TemporaryDirectory(prefix="bench-store-") as name:
        folder = Path(name)
        local = _local(folder / "local", 1 if short else ROUNDS)
        s3 = _s3(folder / "s3", 1 if short else ROUNDS)
        writes = _writes(folder, *((10, 1) if short else (50, 5)))
        growth = _growth(str(folder / "scale"), SHORT_SIZES if short else SIZES)
    named = {**local, **{f"S3 on loopback: {name}": of for name, of in s3.items()}}
    rates = [
        {"MB/s": name, **{column: of.get(column, "") for column in COLUMNS}}
        for name, of in named.items()
    ]
    first, again = COLUMNS[:2]
    stored, stored_s3 = (of["dataset store"][first] for of in (local, s3))
    cached = local["local cache"][again] / local["numpy memmap"][again]
    ratios = [
        ("first reads, store / plain zarr", stored / local["plain zarr"][first], 0.8),
        ("second epoch, cache / memmap", cached, 0.9),
        ("S3 first reads, store / zarr over s3fs", stored_s3 / s3["zarr over s3fs"][first], 2.0),
    ]
    compared = [{"": name, "ratio": ratio, "bar": bar} for name, ratio, bar in ratios]
    show(rates)
    show(compared)
    show(writes, "An appended tenth of the cases")
    publish(
        out,
        "store",
        growth,
        "Growth with the number of cases",
        bars=GROWTH_BARS,
        rates=rates,
        ratios=compared,
        writes=writes,
    )
    cases = [row["cases"] for row in growth]
    lines = {
        f"{n} (bar {bar:g} s)": (cases, [r[n] for r in growth]) for n, bar in GROWTH_BARS.items()
    }
    plot(out / "store-scale.png", [{"lines": lines, "xlabel": "cases", "ylabel": "seconds"}], 1)


class Opened(NamedTuple):
    """Cases 0, 1, ... and steady, opened anew: nothing is remembered from before."""

    array: Callable[[str, str], Any]
    """By case and name, something whose slices are read when they are taken"""
    whole: Callable[[str], Mapping[str, np.ndarray]]
    """By case, every array of it in memory"""


Contender = Callable[[], Opened]


@dataclass
class Originals:
    """The dataset whose arrays every contender keeps."""

    transient_url: str
    steady_url: str

    @classmethod
    def write(cls, base: str) -> Originals:
        sizes = (REAL_POINTS, REAL_FACES, SNAPSHOTS)
        cases = ((synthetic_result(n, SNAPSHOTS), synthetic_cloud(*sizes, n)) for n in range(CASES))
        publish_cases(f"{base}/transient", SCHEMA, cases)
        cloud = synthetic_cloud(STEADY_POINTS, 10_000, 1)
        assert cloud.boundary is not None
        boundary, fields = (
            {name: values[0] for name, values in of.fields.items()}
            for of in (cloud.boundary, cloud)
        )
        faces = replace(cloud.boundary, fields=boundary)
        steady = replace(cloud, time=None, fields=fields, boundary=faces)
        schema = replace(SCHEMA, transient=False)
        publish_cases(f"{base}/steady", schema, [(synthetic_result(0, 1), steady)])
        return cls(f"{base}/transient", f"{base}/steady")

    def cases(self) -> dict[str, StoredCase]:
        """Open the dataset anew."""
        transient = simgen.open_dataset(self.transient_url)
        steady = simgen.open_dataset(self.steady_url)[0]
        return {**{str(number): case for number, case in enumerate(transient)}, "steady": steady}

    def store(self) -> Opened:
        """The dataset store itself."""
        cases = self.cases()
        return Opened(lambda case, name: cases[case][name], lambda case: cases[case].read())

    def cached(self, folder: Path) -> Contender:
        """The store behind its local cache, once that is filled."""

        def opened() -> Opened:
            cases, cache = self.cases(), LocalCache(folder, 1 << 32)

            def whole(case: str) -> dict[str, np.ndarray]:
                cached = cache.arrays(cases[case], *cases[case].arrays())
                return {name: np.array(values) for name, values in cached.items()}

            return Opened(lambda case, name: cache.arrays(cases[case], name)[name], whole)

        for case in self.cases():
            opened().whole(case)
        return opened

    def copied(self, keep: Callable[[str, Any], object], read: Callable[[], Any]) -> Contender:
        """Keep every array under the path `case/name`; `read()[path]` has it."""
        names: dict[str, list[str]] = {}
        for case, stored in self.cases().items():
            names[case] = list(stored.arrays())
            for name in names[case]:
                keep(f"{case}/{name}", stored[name])

        def opened() -> Opened:
            arrays = read()

            def array(case: str, name: str) -> Any:
                return arrays[f"{case}/{name}"]

            return Opened(
                array, lambda case: {name: np.array(array(case, name)[...]) for name in names[case]}
            )

        return opened

    def zarr(self, store: Store) -> Contender:
        """A plain Zarr v3 store, in the chunks and codecs of the dataset store."""
        root = zarr.open_group(store, mode="w")

        def keep(path: str, array: zarr.Array) -> None:
            like = {"chunks": array.chunks, "compressors": array.compressors}
            copy = root.create_array(path, shape=array.shape, dtype=array.dtype, **like)
            copy[...] = array[...]

        return self.copied(keep, lambda: zarr.open_group(store, mode="r"))

    def hdf5(self, path: Path) -> Contender:
        """One HDF5 file, in the chunks of the store, without compression."""
        with h5py.File(path, "w") as file:
            return self.copied(
                lambda name, array: file.create_dataset(name, data=array[...], chunks=array.chunks),
                lambda: h5py.File(path),
            )

    def memmap(self, folder: Path) -> Contender:
        """A .npy file for each array."""

        def keep(path: str, array: zarr.Array) -> None:
            file = folder / f"{path}.npy"
            file.parent.mkdir(parents=True, exist_ok=True)
            np.save(file, array[...])

        class Files(dict[str, np.ndarray]):
            def __missing__(self, path: str) -> np.ndarray:
                self[path] = np.load(folder / f"{path}.npy", mmap_mode="r")
                return self[path]

        return self.copied(keep, Files)


def _local(folder: Path, rounds: int) -> Rates:
    kept = Originals.write(str(folder / "store"))
    contenders = {
        "numpy memmap": kept.memmap(folder / "npy"),
        "h5py, uncompressed": kept.hdf5(folder / "arrays.h5"),
        "plain zarr": kept.zarr(LocalStore(folder / "plain")),
        "dataset store": kept.store,
        "local cache": kept.cached(folder / "cache"),
    }
    return _race(contenders, rounds, lambda: _drop_page_cache(folder))


def _s3(folder: Path, rounds: int) -> Rates:
    folder.mkdir(parents=True)
    server = SeaweedFS(folder)
    running = server.start()
    # s3fs closes the client that waited for the server on whatever event loop collects it: not on
    # zarr's
    gc.collect()
    os.environ.update(running.environment)
    try:
        kept = Originals.write(f"{running.url}/store")
        plain = s3fs.S3FileSystem(
            asynchronous=True,
            endpoint_url=running.endpoint,
            key=KEYS["AWS_ACCESS_KEY_ID"],
            secret=KEYS["AWS_SECRET_ACCESS_KEY"],
        )
        store = FsspecStore(plain, path=f"{BUCKET}/plain")
        contenders = {"zarr over s3fs": kept.zarr(store), "dataset store": kept.store}
        rates = _race(contenders, rounds, lambda: None)
        sync(plain._s3.close())
    finally:
        server.stop()
    return rates


def _race(contenders: Mapping[str, Contender], rounds: int, forget: Callable[[], None]) -> Rates:
    taken = {name: defaultdict[str, list[float]](list) for name in contenders}
    for _ in range(rounds):
        for name, open_anew in contenders.items():
            opened = open_anew()
            forget()
            for what, rate in _read(opened):
                taken[name][what].append(rate)
    return {
        name: {what: statistics.median(values) for what, values in of.items()}
        for name, of in taken.items()
    }


def _read(opened: Opened) -> Iterator[tuple[str, float]]:
    """One round: MB/s of each kind of read."""
    cases = [str(number) for number in range(CASES)]
    for case in cases:
        yield "whole, first", _rate(lambda: opened.whole(case).values())  # noqa: B023
    for case in cases:
        yield "whole, again", _rate(lambda: opened.whole(case).values())  # noqa: B023
        yield "11 snapshots", _rate(lambda: [np.array(opened.array(case, FIELD)[WINDOW])])  # noqa: B023
    chosen = np.random.default_rng(0).choice(STEADY_POINTS, SCATTERED, replace=False)
    for _ in cases:
        array = opened.array("steady", FIELD)
        # All of it is read where it comes in chunks: 16k rows touch each of them.
        whole = array if isinstance(array, np.ndarray) else None
        yield (
            "16k points",
            _rate(lambda: [(np.asarray(array[...]) if whole is None else whole)[chosen]]),  # noqa: B023
        )


def _rate(read: Callable[[], Iterable[np.ndarray]]) -> float:
    began = time.perf_counter()
    arrays = read()
    taken = time.perf_counter() - began
    return _megabytes(arrays) / taken


def _megabytes(arrays: Iterable[np.ndarray]) -> float:
    return sum(values.nbytes for values in arrays) / 1e6


def _drop_page_cache(folder: Path) -> None:
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def _writes(folder: Path, num_cases: int, appended: int) -> list[dict[str, Any]]:
    """Append to a dataset of real-size cases, in one commit and in one commit for each case."""
    rows = []
    for name, per_commit in (("one commit", appended), ("a commit for each case", 1)):
        url = str(folder / f"amplification-{per_commit}")
        writer = DatasetWriter.open(url, SCHEMA)

        def append(numbers: range, per_commit: int, writer: DatasetWriter = writer) -> None:
            for begin in range(0, len(numbers), per_commit):
                some = numbers[begin : begin + per_commit]
                writer.commit([write_cases(writer.fork(), some, REAL)])
            writer.publish()

        def stored(url: str = url) -> int:
            return sum(path.stat().st_size for path in Path(url).rglob("*") if path.is_file())

        append(range(num_cases), num_cases)
        before = stored()
        append(range(num_cases, num_cases + appended), per_commit)
        added, dataset = stored() - before, simgen.open_dataset(url)
        store = dataset._root.store
        chunks = sum(
            sync(store.getsize_prefix(f"cases/{case}/{path}"))
            for case in dataset.cases()[-appended:]
            for path in dataset[case].arrays()
        )
        rows.append(
            {
                f"{appended} cases to {num_cases}": name,
                "added, MB": added / 1e6,
                "the cases' chunks, MB": chunks / 1e6,
                "amplification": added / chunks,
                "bar": AMPLIFICATION_BAR,
            }
        )
    return rows


def _growth(url: str, sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Grow a dataset; at each size publish, open it and list its designs, and commit some more."""
    rows: list[dict[str, Any]] = []
    written = 0
    spawn = multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(WORKERS, mp_context=spawn) as workers,
        Progress(transient=True) as progress,
    ):
        bar = progress.add_task("writing cases", total=sizes[-1])
        for size in sizes:
            while written < size:
                count = min(5 * BATCH, size - written)
                _commit(url, workers, range(written, written + count))
                written += count
                progress.update(bar, completed=written)
            began = time.perf_counter()
            DatasetWriter.open(url, SCHEMA).publish()
            published = time.perf_counter() - began
            opened, listed = [], []
            for _ in range(3):
                began = time.perf_counter()
                dataset = simgen.open_dataset(url)
                opened.append(time.perf_counter() - began)
                began = time.perf_counter()
                assert len(dataset.design) == len(dataset)
                listed.append(time.perf_counter() - began)
            took = _commit(url, workers, range(written, written + BATCH))
            written += BATCH
            largest = max(path.stat().st_size for path in Path(url, "snapshots").iterdir())
            figures = (statistics.median(opened), statistics.median(listed), took)
            rows.append(
                {
                    "cases": size,
                    **dict(zip(GROWTH_BARS, figures, strict=True)),
                    "publish, s": published,
                    "snapshot, MB": largest / 1e6,
                }
            )
    return rows


def _commit(url: str, workers: ProcessPoolExecutor, numbers: range) -> float:
    """Write cases in worker processes, then commit them all at once; seconds of the commit."""
    writer = DatasetWriter.open(url, SCHEMA)
    parts = [numbers[begin : begin + PER_FORK] for begin in range(0, len(numbers), PER_FORK)]
    forks = workers.map(write_cases, [writer.fork() for _ in parts], parts, [TINY] * len(parts))
    written = list(forks)
    began = time.perf_counter()
    writer.commit(written)
    return time.perf_counter() - began
