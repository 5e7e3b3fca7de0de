"""Killed in the midst of a commit, or out of room, on a local path: nothing visible has changed."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import simgen
from simgen.store.verify import verify
from simgen.store.write import DatasetWriter
from tests.store.conftest import SCHEMA, add, make_result, publish

ROOT = Path(__file__).parents[2]


def test_a_process_that_is_killed_at_any_moment_leaves_versions_as_they_were(url):
    publish(DatasetWriter.open(url, SCHEMA), 0)
    chance, number, snapshots = random.Random(0), 1, {}
    for _ in range(6):
        command = [
            sys.executable,
            "-m",
            "tests.store.committers",
            url,
            *map(str, range(number, number + 8)),
        ]
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 600
        while (
            len(DatasetWriter.open(url, SCHEMA).known()) <= number and time.monotonic() < deadline
        ):
            if process.poll() is not None:
                break
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.1))  # somewhere in the cases that follow
        process.send_signal(signal.SIGKILL)
        process.wait()
        dataset = simgen.open_dataset(url)
        assert verify(dataset).findings == []
        for version in dataset.versions():
            assert snapshots.setdefault(version.name, version.snapshot_id) == version.snapshot_id
        known = DatasetWriter.open(url, SCHEMA).known()
        number = len(known)
        assert set(known) == {make_result(case).id for case in range(number)}
    writer = DatasetWriter.open(url, SCHEMA)
    writer.publish()
    assert len(simgen.open_dataset(url)) == number
    assert verify(simgen.open_dataset(url)).findings == []


FULL = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from simgen.errors import StoreError
from simgen.store.write import DatasetWriter
from tests.store.conftest import SCHEMA, make_cloud, make_result
writer = DatasetWriter.open(sys.argv[1], SCHEMA)
fork = writer.fork()
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    fork.write(make_result(1), make_cloud(1, num_points=4000))
    writer.commit([fork])
except StoreError as error:
    print(error)
"""


def test_a_disk_without_room_is_one_clear_line_and_hurts_no_version(writer, url):
    publish(writer, 0)
    ran = subprocess.run(
        [sys.executable, "-c", FULL, url], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert ran.returncode == 0, ran.stderr
    assert len(ran.stdout.strip().splitlines()) == 1
    assert (
        f"store {url} cannot be written: there is no room left; make room and run again"
        in ran.stdout
    )
    assert verify(simgen.open_dataset(url)).findings == []
    assert set(writer.known()) == {make_result(0).id}
    add(writer, 1)  # once there is room
    writer.publish()
    assert len(simgen.open_dataset(url)) == 2


def test_a_link_that_is_changed_during_a_run_does_not_divide_its_cases(tmp_path):
    url = str(tmp_path / "store" / SCHEMA.family)
    here, there = (str(tmp_path / name / SCHEMA.family) for name in ("here", "there"))
    for place in (here, there):
        add(DatasetWriter.open(place, SCHEMA), 0)
    (tmp_path / "store").symlink_to("here")
    writer = DatasetWriter.open(url, SCHEMA)
    add(writer, 1)
    (tmp_path / "store").unlink()
    (tmp_path / "store").symlink_to("there")
    publish(writer, 2)
    assert set(simgen.open_dataset(here).cases()) == {make_result(case).id for case in range(3)}
    assert set(DatasetWriter.open(there, SCHEMA).known()) == {make_result(0).id}
