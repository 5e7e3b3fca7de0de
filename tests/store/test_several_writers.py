"""Two writers at once: both land, or one gets a clear error; forked readers end with one."""

import multiprocessing
import os
import shutil
import subprocess
import sys
from pathlib import Path

import icechunk
import numpy as np
import pytest
import zarr

import simgen
from simgen.errors import StoreError
from simgen.store import versions as lock
from simgen.store.write import DatasetWriter
from tests.store.conftest import SCHEMA, add, make_cloud, make_result, publish

ROOT = Path(__file__).parents[2]


def everything_is_there(url, numbers):
    dataset = simgen.open_dataset(url)
    assert set(dataset.cases()) == {make_result(number).id for number in numbers}
    for number in numbers:
        stored = dataset[make_result(number).id]
        np.testing.assert_array_equal(stored["velocity"][:], make_cloud(number).fields["velocity"])
    earlier: dict[str, str] = {}
    for version in dataset.versions():
        members = {case.id: case.split for case in simgen.open_dataset(url, version.name)}
        assert earlier.items() <= members.items(), "a case has moved between splits"
        earlier = members


def test_processes_that_create_commit_and_publish_at_once_all_land_on_a_local_path(url):
    command, pipe = [sys.executable, "-m", "tests.store.committers", url], subprocess.PIPE
    processes = [
        subprocess.Popen([*command, *numbers], cwd=ROOT, stdout=pipe, stderr=pipe, text=True)
        for numbers in ("012", "345", "67")
    ]
    for process in processes:
        out, err = process.communicate(timeout=600)
        assert process.returncode == 0, err
        assert out.startswith("v")
    everything_is_there(url, range(8))


def test_a_writer_that_waits_too_long_is_an_error(url, writer, monkeypatch):
    monkeypatch.setattr(lock, "WAIT_S", 0.2)
    waited = r"another process has been committing to it for 0\.2 s; wait for it"
    with lock.committing(url), pytest.raises(StoreError, match=waited):
        add(writer, 0)
    add(writer, 0)  # and the same call goes through afterwards


def test_a_conflict_is_tried_again_with_the_other_writers_cases_in_view(url, writer, monkeypatch):
    other = DatasetWriter.open(url, SCHEMA)
    flush = icechunk.Session.flush
    conflicts = iter([True, False])

    def late(session, *args, **kwargs):
        if next(conflicts, False):  # somebody commits between this session's opening and its commit
            inner = other._repository.writable_session("main")
            zarr.open_group(inner.store, mode="r+").attrs["touched"] = True
            inner.commit("in between", {"version": 0})
        return flush(session, *args, **kwargs)

    monkeypatch.setattr(icechunk.Session, "flush", late)
    add(writer, 0)
    assert writer.publish() == "v1"
    everything_is_there(url, [0])


def attempt_reads(dataset, url, sending):
    case = dataset[0]
    for attempt in (
        lambda: case.points,
        lambda: case.provenance,
        dataset.versions,
        lambda: simgen.open_dataset(url),
    ):
        try:
            attempt()
            sending.send("read")
        except StoreError as error:
            sending.send(str(error))


def test_whatever_a_forked_process_reads_it_does_not_hang(writer, url):
    dataset = publish(writer, 0, 1)
    dataset[0].points, dataset[0].provenance
    receiving, sending = multiprocessing.Pipe(duplex=False)
    forking = multiprocessing.get_context("fork")
    process = forking.Process(target=attempt_reads, args=(dataset, url, sending))
    process.start()
    for _ in range(4):
        assert receiving.poll(60)
        assert "this process was forked" in receiving.recv()
    process.join()


CLOCK = Path(__file__).parents[2] / "bench" / "chaos" / "clock.c"
COMMIT_ONE = """
import sys
from simgen.store.write import DatasetWriter
from tests.store.conftest import SCHEMA, add

add(DatasetWriter.open(sys.argv[1], SCHEMA), 0)
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("seconds", [8, 7200, -7200])
def test_a_clock_that_is_a_little_off_is_waited_for_and_one_that_is_hours_off_is_named(
    url, tmp_path, seconds
):
    DatasetWriter.open(url, SCHEMA)
    library, clock = tmp_path / "clock.so", tmp_path / "clock"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, CLOCK], check=True)
    clock.write_text(f"{seconds:+d}\n")
    variables = {**os.environ, "LD_PRELOAD": str(library), "CHAOS_CLOCK": str(clock)}
    command = [sys.executable, "-c", COMMIT_ONE, url]
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    if seconds == 8:
        assert len(publish(DatasetWriter.open(url, SCHEMA), 1)) == 2
    else:
        assert done.returncode == 1
        assert "set the clock right and run again" in done.stderr.splitlines()[-1], done.stderr
