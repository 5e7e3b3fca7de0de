"""The study of hybrid rollouts: its short form with the real solver, and its measures on waves
whose period is known.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import courant
from bench.validation import study_hybrid
from bench.validation.study_hybrid import _Wake
from courant.analysis.monitoring import calibrate_monitor, write_monitor
from simgen.foam.run import find_openfoam
from tests.world import World, design_point, travelling_wave

SPEED = 0.4
PERIOD_S = 2 * np.pi / (0.3 * SPEED)


@pytest.fixture
def out(world: World, tmp_path: Path) -> Path:
    """A folder for the study, with a calibrated run of the waves."""
    shutil.copytree(world.waves_run(), tmp_path / "hybrid/run")
    surrogate = courant.load(tmp_path / "hybrid", device="cpu")
    write_monitor(surrogate, calibrate_monitor(surrogate, surrogate.open_dataset(world.waves())))
    return tmp_path


def test_the_short_study_solves_a_cylinder_and_goes_on_from_its_record(out: Path) -> None:
    find_openfoam().activate()
    study_hybrid.main(out, short=True)
    rows = {row["way"]: row for row in json.loads((out / "hybrid.json").read_text())["rows"]}
    resumed = rows.pop("the solver, resumed")
    # The flow still accelerates behind the inlet's ramp, so that each state differs.
    assert resumed["by solver"] == 1 and 0 <= resumed["error"] < 0.02
    assert rows["the model alone"]["by solver"] == 0
    hybrid = rows["the model for 6 s, the solver for 3 s"]
    assert hybrid["by solver"] == pytest.approx(1 / 3)
    assert 0 < hybrid["of solver's core-s"] < 1
    assert resumed["error"] < hybrid["error"] < rows["the model alone"]["error"]
    kept = (out / "hybrid.jsonl").read_text()
    study_hybrid.main(out, short=True)
    assert (out / "hybrid.jsonl").read_text() == kept


def test_a_wave_is_repeated_at_its_period_and_compared_at_equal_phase(out: Path) -> None:
    cloud = travelling_wave(60, SPEED, seed=1, num_frames=300)
    assert cloud.time is not None
    surrogate, states = courant.load(out / "hybrid", device="cpu"), cloud.fields["velocity"]
    design = design_point(4.0).parameters
    wake = _Wake(
        surrogate,
        out,
        design,
        cloud.points,
        cloud.time,
        states,
        start=150.0,
        pressure=np.zeros((60, 1)),
        step_s=3.0,
        steps=40,
    )
    truth = states[wake.after(150.0, wake.steps)]
    again = wake.repeated(30.0)
    assert np.array_equal(again[:10], truth[:10])
    assert np.abs(again - truth).max() < 0.01
    late = states[wake.after(150.0 + round(PERIOD_S / 4), wake.steps)]
    at_time, at_phase = wake.errors(late, 150.0)
    assert at_time.min() > 0.5 and at_phase.max() < 0.01
