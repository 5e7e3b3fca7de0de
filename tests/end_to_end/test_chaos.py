"""The short form of `make chaos`: three schedules, held against an undisturbed run."""

import os
import signal
import subprocess
import sys

import pytest

from bench.chaos.row import read
from bench.chaos.schedule import draw
from tests.end_to_end.conftest import ROOT

pytestmark = [pytest.mark.end_to_end, pytest.mark.openfoam, pytest.mark.nightly]

#: On disk: the same command twice; then, in one job, a worker killed and Ctrl-C in the generation,
#: driver killed in the training. On S3: driver terminated in the generation, Ctrl-C in training.
#: None needs root.
SEEDS = (70, 48583, 9389)
#: Seconds for all of them, three times what they take on two cores that other tests share.
BOUND_S = 1800


@pytest.mark.timeout(BOUND_S + 200)
def test_interrupted_jobs_end_as_undisturbed_ones(tmp_path):
    out, printed = tmp_path / "out", tmp_path / "printed.txt"
    options = ["--seeds", ",".join(map(str, SEEDS)), "--rows", "1", "--out", str(out)]
    with printed.open("w") as screen:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.chaos", *options],
            cwd=ROOT, stdout=screen, stderr=screen, start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(BOUND_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(100)
            pytest.fail(f"not done after {BOUND_S} s:\n{printed.read_text()}")
    assert code == 0, printed.read_text()
    records = read(out)
    assert sorted(records) == sorted(SEEDS)
    assert not [breach for record in records.values() for breach in record["breaches"]]
    struck = {one["kind"] for record in records.values() for one in record["struck"]}
    asked = {fault.kind for seed in SEEDS for fault in draw(seed).faults}
    assert len(struck) >= len(asked) - 1, "on a busy machine the moment of one may pass by"
