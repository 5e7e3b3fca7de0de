"""A seed is a schedule, the same everywhere; a hundred of them strike with every kind."""

import json
import os
import subprocess
import sys
from dataclasses import asdict

from bench.chaos import row
from bench.chaos.schedule import KINDS, STAGES, draw
from tests.end_to_end.conftest import ROOT

SEEDS = range(1, 101)


def test_a_seed_gives_the_same_schedule_in_another_process():
    program = (
        "import json; from dataclasses import asdict; from bench.chaos.schedule import draw;"
        "print(json.dumps([asdict(draw(seed)) for seed in range(1, 101)]))"
    )
    # Strings hash otherwise in every process.
    environment = {**os.environ, "PYTHONHASHSEED": "17", "PYTHONPATH": str(ROOT)}
    told = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, cwd=ROOT
    )
    assert told.returncode == 0, told.stderr
    here = json.loads(json.dumps([asdict(draw(seed)) for seed in SEEDS]))
    assert json.loads(told.stdout) == here
    assert len({json.dumps({**one, "seed": 0}) for one in here}) == len(here), "all differ"


def test_a_hundred_seeds_strike_with_every_kind():
    assert {fault.kind for seed in SEEDS for fault in draw(seed).faults} == set(KINDS)


def test_faults_strike_in_the_order_of_the_job_where_they_can():
    for schedule in map(draw, SEEDS):
        stages = [STAGES.index(fault.moment.stage) for fault in schedule.faults]
        assert stages == sorted(stages)
        assert len({fault.kind for fault in schedule.faults}) == len(schedule.faults)
        for fault in schedule.faults:
            kind = KINDS[fault.kind]
            assert fault.moment.stage in kind.stages
            assert kind.store in (None, schedule.store)
            assert kind.server in ("none", schedule.server)
            assert not kind.deployed or schedule.deployed


def record(seed, *breaches, kinds=("worker killed",)):
    struck = [{"kind": kind, "at": "solving", "what": "SIGKILL"} for kind in kinds]
    return {"seed": seed, "struck": struck, "codes": [1, 0], "breaches": list(breaches)}


def test_records_outlive_a_line_that_was_cut_off(tmp_path):
    row.append(tmp_path, record(1))
    row.append(tmp_path, record(2, "weights: others"))
    row.append(tmp_path, record(2))
    with (tmp_path / row.RECORDS).open("a") as file:
        file.write('{"seed": 3, "stru')
    assert row.read(tmp_path) == {1: record(1), 2: record(2)}
    kinds = {kind: counts for kind, _, *counts in row.rows([record(1), record(2, "weights: x")])}
    assert kinds["worker killed"] == ["2", "2", "2", "1 broke an invariant"]
