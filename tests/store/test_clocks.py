"""Writers whose clocks differ: a little is waited for, more is said in one line."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import simgen
from simgen.store.write import DatasetWriter
from tests.store.conftest import SCHEMA, publish

CLOCK = Path(__file__).parents[2] / "bench" / "chaos" / "clock.c"
COMMIT = """
import sys
from simgen.store.write import DatasetWriter
from tests.store.conftest import SCHEMA, add, publish

add(DatasetWriter.open(sys.argv[1], SCHEMA), 0)
"""

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


def commit_with_a_clock_off(
    url: str, seconds: int, folder: Path
) -> subprocess.CompletedProcess[str]:
    library, clock = folder / "clock.so", folder / "clock"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, CLOCK], check=True)
    clock.write_text(f"{seconds:+d}\n")
    variables = {**os.environ, "LD_PRELOAD": str(library), "CHAOS_CLOCK": str(clock)}
    return subprocess.run(
        [sys.executable, "-c", COMMIT, url], env=variables, capture_output=True, text=True
    )


def test_a_clock_that_is_a_little_behind_is_waited_for(url, tmp_path):
    assert commit_with_a_clock_off(url, 8, tmp_path).returncode == 0
    writer = DatasetWriter.open(url, SCHEMA)
    publish(writer, 1)
    assert len(simgen.open_dataset(url)) == 2


@pytest.mark.parametrize("seconds", [7200, -7200])
def test_a_clock_that_is_hours_off_is_named(url, tmp_path, seconds):
    DatasetWriter.open(url, SCHEMA)
    done = commit_with_a_clock_off(url, seconds, tmp_path)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "set the clock right and run again" in last, done.stderr
