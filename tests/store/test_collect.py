"""`gc` takes what nothing refers to and is old enough, and nothing else."""

from datetime import timedelta
from pathlib import Path

import pytest

import simgen
from bench.damage import objects
from simgen.errors import InputError, StoreError
from simgen.store import versions as collecting
from simgen.store import write as forking
from simgen.store.verify import verify
from simgen.store.versions import LEAST_AGE, collect
from simgen.store.write import DatasetWriter
from tests.store.conftest import SCHEMA, add, make_cloud, make_result, publish

NOW = timedelta(0)


@pytest.fixture(autouse=True)
def no_least_age(monkeypatch):
    """What these tests leave behind is garbage at once."""
    monkeypatch.setattr(collecting, "LEAST_AGE", timedelta(0))


def size(url):
    return sum(path.stat().st_size for path in Path(url).rglob("*") if path.is_file())


def test_the_chunks_of_a_killed_run_go_and_every_version_stays(writer, url):
    publish(writer, 0, 1, 2)
    publish(writer, 3)
    add(writer, 4)  # committed, not published
    chunks = set(objects(url, "chunks"))
    writer.fork().write(make_result(5), make_cloud(5))  # a worker that was killed
    leftovers = set(objects(url, "chunks")) - chunks
    assert leftovers

    before = size(url)
    counted = collect(url, older_than=NOW, dry_run=True)
    assert size(url) == before
    done = collect(url, older_than=NOW)
    assert 0 < counted.bytes_deleted <= done.bytes_deleted
    # The parents of snapshots are written anew.
    assert done.bytes_deleted == pytest.approx(before - size(url), abs=200)
    assert not leftovers & set(objects(url, "chunks"))

    for version in ("v1", "v2"):
        assert verify(simgen.open_dataset(url, version)).findings == []
    again = DatasetWriter.open(url, SCHEMA)
    assert make_result(4).id in again.design()
    add(again, 5)
    assert again.publish() == "v3"
    assert len(simgen.open_dataset(url)) == 6
    assert verify(simgen.open_dataset(url)).findings == []


def test_the_history_between_versions_is_dropped_and_forks_of_the_newest_state_still_write(
    writer, url
):
    publish(writer, *range(6))
    add(writer, 6)
    fork = writer.fork()  # of a commit that goes
    add(writer, 8)
    collected = collect(url, older_than=NOW)
    assert collected.snapshots_deleted >= 6
    fork.write(make_result(7), make_cloud(7))
    writer.commit([fork])
    writer.publish()
    assert [version.name for version in simgen.open_dataset(url).versions()] == ["v1", "v2"]
    assert len(simgen.open_dataset(url)) == 9


def test_no_age_limit_lets_the_chunks_of_a_commit_in_flight_go(writer, url, monkeypatch):
    monkeypatch.setattr(collecting, "LEAST_AGE", LEAST_AGE)
    publish(writer, 0)
    running = writer.fork()
    running.write(make_result(1), make_cloud(1))
    for hours in (-1, 0, 1, LEAST_AGE.total_seconds() / 3600 - 0.01):
        with pytest.raises(InputError, match=r"is too short.* give at least 8 hours"):
            collect(url, older_than=timedelta(hours=hours))
    late = forking.time.time() + collecting.FORK_LIFETIME.total_seconds() + 1
    monkeypatch.setattr(forking.time, "time", lambda: late)
    with pytest.raises(StoreError, match=f"{make_result(1).id} was written more than 6 hours ago"):
        writer.commit([running])  # older than any limit keeps for certain
    monkeypatch.undo()
    writer.commit([running])
    writer.publish()
    assert verify(simgen.open_dataset(url)).findings == []
