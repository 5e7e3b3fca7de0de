"""A local store after a power cut: what was reported is there, and the dataset goes on.

The real thing needs root: an ext4 file system on a loop device, shut down in the midst of commits
without a flush, whose journal the next mount replays.
"""

import fcntl
import os
import random
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

import simgen
from simgen.store import versions
from simgen.store.verify import verify
from simgen.store.versions import BRANCH, open_repository
from simgen.store.write import DatasetWriter
from tests.store.conftest import SCHEMA, add, make_result
from tests.trials import trials

ROOT = Path(__file__).parents[2]
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
        process = subprocess.Popen(
            [sys.executable, "-c", COMMIT, url, str(reported)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for line in process.stdout:  # up to a few cases further, then in the midst of the next
            word, _, number = line.strip().partition(" ")
            reported, newest = (int(number) + 1, newest) if number else (reported, word)
            if chance.random() < 0.3 or reported == 60:
                break
        time.sleep(chance.uniform(0, 0.1))
        cut()
        process.kill()
        for line in process.stdout:  # what it reported before the cut, and read after it
            word, _, number = line.strip().partition(" ")
            reported, newest = (int(number) + 1, newest) if number else (reported, word)
        process.wait()
        restart()
        writer = DatasetWriter.open(url, SCHEMA)
        known = set(writer.known())
        assert {make_result(number).id for number in range(reported)} <= known
        reported = len(known)
        if newest is not None:
            dataset = simgen.open_dataset(url)
            assert int(dataset.version[1:]) >= int(newest[1:])
            assert all(
                verify(simgen.open_dataset(url, version.name)).findings == []
                for version in dataset.versions()
            )
        if reported >= 60:
            break
    writer.publish()
    dataset = simgen.open_dataset(url)
    assert len(dataset) == len(writer.known())
    assert verify(dataset).findings == []
