"""The local cache: decoded once, bounded, shared between threads, processes and versions."""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

import simgen
from simgen.store.read import LocalCache, StoredCase
from tests.store.conftest import make_cloud, publish


@pytest.fixture
def dataset(writer, url):
    return publish(writer, *range(4))


@pytest.fixture
def reads(monkeypatch):
    """Names of the arrays that were read from the store."""
    seen, read = [], StoredCase.read

    def counting(self, *names):
        seen.extend(names)
        return read(self, *names)

    monkeypatch.setattr(StoredCase, "read", counting)
    return seen


def size_of(*arrays):
    return sum(array.nbytes + 128 for array in arrays)  # the header of an .npy file


def bytes_in(cache):
    return sum(file.stat().st_size for file in cache.folder.glob("*.npy"))


def test_an_array_is_read_from_the_store_once_and_mapped_from_then_on(
    dataset, writer, url, tmp_path, reads
):
    cache = LocalCache(tmp_path / "cache", 1 << 30)
    for _ in range(3):
        found = cache.arrays(dataset[0], "velocity", "boundary/faces")
        velocity = found["velocity"]
        np.testing.assert_array_equal(velocity, make_cloud(0).fields["velocity"], strict=True)
        assert isinstance(velocity.base, np.memmap) and not velocity.flags.writeable
    assert reads == ["velocity", "boundary/faces"]
    again = LocalCache(tmp_path / "cache", 1 << 30)
    again.arrays(dataset[0], "velocity")
    assert reads == ["velocity", "boundary/faces"], "another process finds it too"
    case = dataset.cases()[0]
    publish(writer, 4)
    again.arrays(simgen.open_dataset(url, "v2")[case], "velocity")
    assert reads == ["velocity", "boundary/faces"], "and so does another version"


def test_the_folder_stays_within_its_bound_and_loses_what_was_used_longest_ago(
    dataset, tmp_path, reads
):
    velocity = make_cloud(0).fields["velocity"]
    cache = LocalCache(tmp_path / "cache", 2 * size_of(velocity))
    for number in (0, 1, 0, 2):
        cache.arrays(dataset[number], "velocity")
        assert bytes_in(cache) <= cache.max_bytes
    reads.clear()
    cache.arrays(dataset[0], "velocity")
    cache.arrays(dataset[2], "velocity")
    assert reads == []
    cache.arrays(dataset[1], "velocity")
    assert reads == ["velocity"]


def fill(cache, dataset):
    """In another process: every case, several times over."""
    return [float(cache.arrays(dataset[n % 4], "velocity")["velocity"].sum()) for n in range(20)]


def test_processes_and_threads_share_a_folder_that_holds_half_of_what_they_read(dataset, tmp_path):
    cache = LocalCache(tmp_path / "cache", 2 * size_of(make_cloud(0).fields["velocity"]))
    expected = [float(dataset[n % 4]["velocity"][:].sum()) for n in range(20)]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as processes:
        remote = [processes.submit(fill, cache, dataset) for _ in range(2)]
        with ThreadPoolExecutor(3) as threads:
            local = [threads.submit(fill, cache, dataset) for _ in range(3)]
            assert all(future.result() == expected for future in local)
        assert all(future.result() == expected for future in remote)
    assert bytes_in(cache) <= cache.max_bytes
    assert not list((tmp_path / "cache").glob(".partial-*"))


def test_a_file_that_is_cut_short_is_read_again(dataset, tmp_path, reads):
    for number, length in enumerate((0, 100, 500)):
        folder = tmp_path / str(number)
        LocalCache(folder, 1 << 30).arrays(dataset[0], "velocity")
        (path,) = folder.glob("*.npy")
        os.truncate(path, length)
        again = LocalCache(folder, 1 << 30).arrays(dataset[0], "velocity")
        np.testing.assert_array_equal(again["velocity"], make_cloud(0).fields["velocity"])
    assert reads == ["velocity"] * 6
