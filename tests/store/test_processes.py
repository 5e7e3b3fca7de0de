"""A dataset in other processes: spawned ones open it themselves, forked ones end with an error."""

import multiprocessing

import pytest

import simgen
from simgen.errors import StoreError
from tests.store.conftest import publish


@pytest.fixture
def dataset(writer, url):
    return publish(writer, 0, 1)


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
