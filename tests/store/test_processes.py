"""A dataset in other processes: spawned ones open it themselves, forked ones end with an error."""

import multiprocessing
from operator import methodcaller

import numpy as np
import pytest
from torch.utils.data import DataLoader

import simgen
from simgen.errors import StoreError
from tests.store.conftest import add, make_cloud


@pytest.fixture
def dataset(writer, url):
    add(writer, 0, 1)
    writer.publish()
    return simgen.open_dataset(url)


def loader(dataset, start):
    read = methodcaller("read", "velocity")
    return DataLoader(
        dataset,
        batch_size=None,
        collate_fn=read,
        num_workers=1,
        multiprocessing_context=start,
        timeout=60,
    )


def test_a_loader_of_forked_workers_ends_with_an_error_that_names_spawn(dataset):
    with pytest.raises(StoreError, match='multiprocessing_context="spawn"'):
        next(iter(loader(dataset, "fork")))


def test_a_loader_of_spawned_workers_reads(dataset):
    read = [case["velocity"] for case in loader(dataset, "spawn")]
    ids = dataset.cases()
    for case, values in zip(ids, read, strict=True):
        np.testing.assert_array_equal(values, dataset[case]["velocity"][:])
    assert np.array_equal(make_cloud(0).fields["velocity"], dataset[ids[0]]["velocity"][:])


def attempts(dataset, url, sending):
    case = dataset[0]
    for attempt in (
        lambda: case.points,
        lambda: case.provenance,
        lambda: dataset.versions(),
        lambda: simgen.open_dataset(url),
    ):
        try:
            attempt()
            sending.send("read")
        except StoreError as error:
            sending.send(str(error))


def test_whatever_a_forked_process_reads_it_does_not_hang(dataset, url):
    dataset[0].points, dataset[0].provenance
    receiving, sending = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(
        target=attempts, args=(dataset, url, sending)
    )
    process.start()
    for _ in range(4):
        assert receiving.poll(60)
        assert "this process was forked" in receiving.recv()
    process.join()
