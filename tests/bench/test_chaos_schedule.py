"""A seed is a schedule, the same everywhere; a hundred of them strike with every kind."""

import json
import os
import subprocess
import sys
from dataclasses import asdict

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


def test_faults_of_every_kind_strike_in_the_order_of_the_job_where_they_can():
    assert {fault.kind for seed in SEEDS for fault in draw(seed).faults} == set(KINDS)
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
