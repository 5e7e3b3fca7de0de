"""Reading speeds beside other ways to keep the same arrays, on a local disk and on S3.

A first read is one of a case that was not touched since the contender was opened, with the
operating system's page cache dropped; a read again has both. Rates are decoded bytes over seconds,
median over cases and rounds; contenders take turns.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import botocore.session
import numpy as np
import s3fs
from botocore.config import Config
from rich.console import Console
from rich.table import Table
from zarr.core.sync import sync
from zarr.storage import FsspecStore, LocalStore

from bench.store_compressors import SNAPSHOTS, WINDOW, measure_compressors
from bench.store_contenders import (
    FIELD,
    STEADY_POINTS,
    CacheContender,
    Contender,
    Hdf5Contender,
    MemmapContender,
    StoreContender,
    Stores,
    ZarrContender,
    layouts,
)
from bench.synthetic_cases import REAL_FACES, REAL_POINTS
from tests.conftest import BUCKET, KEYS, SeaweedFS

SCATTERED = 16_384
CASES, ROUNDS = 4, 5
CONNECTIONS = 16
BARS = {
    "first reads, store / plain zarr": 0.8,
    "second epoch, cache / memmap": 0.9,
    "S3 first reads, store / zarr over s3fs": 2.0,
    "S3 first reads, store / parallel GET": 0.7,
}
Rates = dict[str, dict[str, float]]


def measure_reads(folder: Path, short: bool) -> dict[str, Any]:
    """Write, read, print the tables; the record."""
    rounds = 1 if short else ROUNDS
    compressors = measure_compressors(folder)
    local = _local(folder / "local", rounds)
    s3 = _s3(folder / "s3", rounds)
    ratios = {
        "first reads, store / plain zarr": (
            local["dataset store"]["whole, first"] / local["plain zarr"]["whole, first"]
        ),
        "second epoch, cache / memmap": (
            local["local cache"]["whole, again"] / local["numpy memmap"]["whole, again"]
        ),
        "S3 first reads, store / zarr over s3fs": (
            s3["dataset store"]["whole, first"] / s3["zarr over s3fs"]["whole, first"]
        ),
        "S3 first reads, store / parallel GET": (
            s3["dataset store"]["whole, first"] / s3["parallel GET"]["whole, first"]
        ),
    }
    table = Table("", "ratio", "bar")
    for name, ratio in ratios.items():
        table.add_row(name, f"{ratio:.2f}", f"{BARS[name]:.2f}")
    Console().print(table)
    return {
        "local_MB_s": local,
        "s3_MB_s": s3,
        "compressors": compressors,
        "ratios": ratios,
        "bars": BARS,
    }


def _local(folder: Path, rounds: int) -> Rates:
    stores = Stores.write(str(folder / "store"), CASES, (REAL_POINTS, REAL_FACES, SNAPSHOTS))
    arrays, like = stores.arrays(), layouts(stores)
    contenders: list[Contender] = [
        MemmapContender(arrays, folder / "npy"),
        Hdf5Contender(arrays, like, folder / "arrays.h5"),
        ZarrContender("plain zarr", arrays, like, LocalStore(folder / "plain")),
        StoreContender(stores),
        CacheContender(stores, folder / "cache"),
    ]
    rates = _race(contenders, rounds, lambda: _drop_page_cache(folder))
    _print(f"Local disk, MB/s ({_megabytes(arrays['0'].values()):.1f} MB a case)", rates)
    return rates


def _s3(folder: Path, rounds: int) -> Rates:
    folder.mkdir(parents=True)
    server = SeaweedFS(folder)
    running = server.start()
    # s3fs closes the client that waited for the server on whatever event loop collects it: not on
    # zarr's
    gc.collect()
    os.environ.update(running.environment)
    try:
        stores = Stores.write(f"{running.url}/store", CASES, (REAL_POINTS, REAL_FACES, SNAPSHOTS))
        arrays = stores.arrays()
        plain = s3fs.S3FileSystem(
            asynchronous=True,
            endpoint_url=running.endpoint,
            key=KEYS["AWS_ACCESS_KEY_ID"],
            secret=KEYS["AWS_SECRET_ACCESS_KEY"],
        )
        store = FsspecStore(plain, path=f"{BUCKET}/plain")
        contenders: list[Contender] = [
            ZarrContender("zarr over s3fs", arrays, layouts(stores), store),
            StoreContender(stores),
        ]
        rates = _race(contenders, rounds, lambda: None)
        rates["parallel GET"] = {
            "whole, first": _parallel_get(
                running.endpoint, _megabytes(arrays["0"].values()), rounds
            )
        }
        sync(plain._s3.close())
    finally:
        server.stop()
    _print("S3 (SeaweedFS on loopback), MB/s", rates)
    return rates


def _parallel_get(endpoint: str, megabytes: float, rounds: int) -> float:
    """The chunk objects of a case over 16 connections, nothing decoded; at the rate that their
    decoded bytes come to.
    """
    client = botocore.session.get_session().create_client(
        "s3", endpoint_url=endpoint, config=Config(max_pool_connections=CONNECTIONS)
    )
    taken = []
    with ThreadPoolExecutor(CONNECTIONS) as threads:
        for number in [*range(CASES)] * rounds:
            listed = client.list_objects_v2(Bucket=BUCKET, Prefix=f"plain/{number}/")["Contents"]
            keys = [item["Key"] for item in listed if "/c/" in item["Key"]]
            began = time.perf_counter()
            list(
                threads.map(
                    lambda key: client.get_object(Bucket=BUCKET, Key=key)["Body"].read(), keys
                )
            )
            taken.append(time.perf_counter() - began)
    return megabytes / statistics.median(taken[CASES:] or taken)


def _race(contenders: Sequence[Contender], rounds: int, forget: Callable[[], None]) -> Rates:
    taken = {contender.name: defaultdict[str, list[float]](list) for contender in contenders}
    for _ in range(rounds):
        for contender in contenders:
            contender.open()
            forget()
            for what, rate in _read(contender):
                taken[contender.name][what].append(rate)
    return {
        name: {what: statistics.median(values) for what, values in of.items()}
        for name, of in taken.items()
    }


def _read(contender: Contender) -> Iterator[tuple[str, float]]:
    """One round: MB/s of each kind of read."""
    cases = [str(number) for number in range(CASES)]
    for case in cases:
        yield "whole, first", _rate(lambda: contender.whole(case).values())  # noqa: B023
    for case in cases:
        yield "whole, again", _rate(lambda: contender.whole(case).values())  # noqa: B023
        yield "11 snapshots", _rate(lambda: [np.array(contender.array(case, FIELD)[WINDOW])])  # noqa: B023
    chosen = np.random.default_rng(0).choice(STEADY_POINTS, SCATTERED, replace=False)
    for _ in cases:
        yield "16k points", _rate(lambda: [_scattered(contender.array("steady", FIELD), chosen)])


def _scattered(array: Any, chosen: np.ndarray) -> np.ndarray:
    """Rows of an array: all of it is read where it comes in chunks, since 16k rows touch each of
    them.
    """
    return array[chosen] if isinstance(array, np.ndarray) else np.asarray(array[...])[chosen]


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


def _print(title: str, rates: Rates) -> None:
    columns = ("whole, first", "whole, again", "11 snapshots", "16k points")
    table = Table("", *columns, title=title)
    for name, of in rates.items():
        table.add_row(name, *(f"{of[column]:,.0f}" if column in of else "" for column in columns))
    Console().print(table)
