"""A local store whose writer is killed or out of room, after a power cut, and with damaged files.

The power cut needs root: an ext4 file system on a loop device, shut down in the midst of commits
without a flush, whose journal the next mount replays.
"""

import fcntl
import os
import random
import signal
import stat
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

import simgen
from bench.damage import NOBODY, objects, snapshot_of
from simgen.errors import StoreError
from simgen.store import versions
from simgen.store.verify import verify
from simgen.store.versions import BRANCH, open_repository
from simgen.store.write import DatasetWriter
from tests.store.conftest import SCHEMA, add, make_result, publish
from tests.trials import trials

ROOT = Path(__file__).parents[2]


def test_a_process_that_is_killed_at_any_moment_leaves_versions_as_they_were(url):
    publish(DatasetWriter.open(url, SCHEMA), 0)
    chance, number, snapshots = random.Random(0), 1, {}
    for _ in range(6):
        command = [sys.executable, "-m", "tests.store.committers", url]
        command += map(str, range(number, number + 8))
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command, cwd=ROOT, **quiet)
        while len(DatasetWriter.open(url, SCHEMA).design()) <= number and process.poll() is None:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.1))  # somewhere in the cases that follow
        process.send_signal(signal.SIGKILL)
        process.wait()
        dataset = simgen.open_dataset(url)
        assert verify(dataset).findings == []
        for version in dataset.versions():
            assert snapshots.setdefault(version.name, version.snapshot_id) == version.snapshot_id
        known = DatasetWriter.open(url, SCHEMA).design()
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
    assert f"store {url} cannot be written: there is no room left; make room" in ran.stdout
    assert verify(simgen.open_dataset(url)).findings == []
    assert set(writer.design()) == {make_result(0).id}
    add(writer, 1)  # once there is room
    writer.publish()
    assert len(simgen.open_dataset(url)) == 2


#: Shut the file system down at once, with all that is not on the disk yet: ext4 and XFS know it.
SHUTDOWN, WITHOUT_FLUSH = 0x8004587D, 2


def test_everything_is_synced_before_the_branch_names_it_and_the_branch_before_it_is_reported(
    writer, url, monkeypatch
):
    seen, sync = [], versions.sync_all

    def noted(url):
        sync(url)
        commits = {path.name for path in (Path(url) / "snapshots").iterdir()}
        seen.append((commits, open_repository(url).lookup_branch(BRANCH)))

    monkeypatch.setattr(versions, "sync_all", noted)
    before = open_repository(url).lookup_branch(BRANCH)
    add(writer, 0)
    after = open_repository(url).lookup_branch(BRANCH)
    (commits, named), (_, moved) = seen
    assert after in commits
    assert (named, moved) == (before, after)


@pytest.fixture
def disk(tmp_path):
    """An ext4 file system of its own; a function that cuts its power."""
    image, mount = tmp_path / "disk.img", tmp_path / "disk"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(256 << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)

    def attach():
        subprocess.run(["mount", "-o", "loop", image, mount], check=True)

    def cut():
        file = os.open(mount, os.O_RDONLY)
        fcntl.ioctl(file, SHUTDOWN, struct.pack("I", WITHOUT_FLUSH))
        os.close(file)

    def restart():
        subprocess.run(["umount", mount], check=True)
        attach()

    attach()
    yield mount, cut, restart
    subprocess.run(["umount", mount], check=True)


COMMIT = """
import sys
from simgen.store.write import DatasetWriter
from tests.store.conftest import SCHEMA, add
url, first = sys.argv[1], int(sys.argv[2])
for number in range(first, 60):
    writer = DatasetWriter.open(url, SCHEMA)
    add(writer, number)
    print("case", number, flush=True)
    if number % 3 == 2:
        print(writer.publish(), "", flush=True)
"""


@pytest.mark.nightly
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a disk of its own, as root")
def test_a_power_cut_takes_back_nothing_that_was_reported(disk):
    mount, cut, restart = disk
    url, chance = str(mount / "store" / "cylinder-flow"), random.Random(1)
    reported, newest = 0, None
    for _ in range(trials(4)):
        command = [sys.executable, "-c", COMMIT, url, str(reported)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        is_cut = False
        for line in process.stdout:  # up to a few cases further; then what was printed before
            word, _, number = line.strip().partition(" ")
            reported, newest = (int(number) + 1, newest) if number else (reported, word)
            if not is_cut and (chance.random() < 0.3 or reported == 60):
                time.sleep(chance.uniform(0, 0.1))  # in the midst of the next
                cut()
                process.kill()
                is_cut = True
        process.wait()
        restart()
        writer = DatasetWriter.open(url, SCHEMA)
        known = set(writer.design())
        assert {make_result(number).id for number in range(reported)} <= known
        reported = len(known)
        if newest is not None:
            dataset = simgen.open_dataset(url)
            assert int(dataset.version[1:]) >= int(newest[1:])
            for version in dataset.versions():
                assert verify(simgen.open_dataset(url, version.name)).findings == []
        if reported >= 60:
            break
    assert len(simgen.open_dataset(url, writer.publish())) == reported


@pytest.mark.parametrize(
    "name", ["host:403", "forbidden", "connection-timeout", "no space left", "404"]
)
def test_a_path_is_no_reason(tmp_path, name):
    url = str(tmp_path / name / "cylinder-flow")
    writer = DatasetWriter.open(url, SCHEMA)
    publish(writer, 0)
    snapshot_of(url, "v1").write_bytes(b"nonsense")
    with pytest.raises(StoreError, match=r"is damaged \(.*cannot be decoded") as error:
        simgen.open_dataset(url)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["snapshots", "chunks", "manifests", "refs"])
def test_a_file_that_may_not_be_read_is_called_so_and_not_damaged(writer, url, kind, tmp_path):
    publish(writer, 0)
    for folder in [tmp_path, *tmp_path.parents]:
        folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
    for path in objects(url, kind):
        path.chmod(0)
    if os.geteuid() == 0:
        os.seteuid(NOBODY)
    try:
        with pytest.raises(StoreError, match=r"(?i)cannot be used: permission denied; ") as error:
            simgen.open_dataset(url)[0].read()
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
    assert "damaged" not in str(error.value)
    assert "\n" not in str(error.value)
