"""Bands of a transient model: those of windows, and those of quantities of whole rollouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import simgen
from bench.synthetic_cases import publish_cases
from courant.evaluation import coverage
from courant.evaluation.calibrate import calibrate, newest
from courant.evaluation.coverage import FIELD, Coverage, measure_coverage
from courant.prediction.surrogate import load, solved_state
from courant.problems.transient import TransientProblem
from courant.runs.directory import RunDirectory
from courant.runs.record import BANDS
from courant.training.train import fit
from simgen.case import CaseResult
from simgen.cases import get_family
from simgen.errors import InputError
from simgen.store.schema import Schema
from tests.world import design_point, publish_waves, tiny_experiment, travelling_wave


def add(url: str, split: str, radii: list[float]) -> None:
    family, other = get_family("cylinder-flow"), design_point(0)
    points = [family.point({**other.parameters, "radius": r}, other.settings) for r in radii]
    cases = [
        (CaseResult(point, "accepted", split=split), travelling_wave(40, 0.4 * radius - 0.2, n))
        for n, (point, radius) in enumerate(zip(points, radii, strict=True))
    ]
    publish_cases(url, Schema.of(family), cases)


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    folder = tmp_path_factory.mktemp("bands")
    url = publish_waves(str(folder / "cylinder-flow"))
    run = RunDirectory(folder / "run")
    fit(tiny_experiment(epochs=1), simgen.open_dataset(url), run)
    add(url, "calibration", np.linspace(1.2, 1.8, 12).tolist())
    add(url, "test", [1.33, 1.51, 1.62])
    calibrate(run.url)
    return run


def test_rollouts_to_the_end_of_a_case_are_what_quantities_are_calibrated_on(
    calibrated: RunDirectory,
) -> None:
    surrogate = load(calibrated.url)
    assert surrogate.bands is not None
    case = surrogate.open_dataset()[0]
    start = surrogate.problem.start(case)
    assert surrogate.bands.rollout is not None and start is not None
    assert surrogate.bands.rollout.start_s == start
    assert surrogate.bands.rollout.steps == surrogate.problem.steps_to_end(case, start)


def test_windows_and_whole_rollouts_have_bands_apart(
    calibrated: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coverage, "absolute_errors", lambda *pair: {"strouhal": 0.1})
    bands = load(calibrated.url).bands
    assert bands is not None and bands.rollout is not None
    known = {"strouhal": (0.1,) * len(bands.cases)}

    def measured(**changed: Any) -> Coverage:
        other = bands.model_copy(update={"quantities": known, **changed})
        calibrated.write_json(BANDS, other.model_dump(mode="json"))
        return measure_coverage(calibrated.url)

    assert set(measured().bands) == {FIELD, "strouhal"}
    longer = bands.rollout.model_copy(update={"steps": bands.rollout.steps + 1})
    assert set(measured(rollout=longer).bands) == {FIELD}
    one_step = bands.field.scale.model_copy(update={"growth": (1.0,)})
    found = measured(field=bands.field.model_copy(update={"scale": one_step}))
    assert set(found.bands) == {"strouhal"} and len(found.without) == found.num_cases


def test_rollouts_of_different_lengths_calibrate_nothing(
    calibrated: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    surrogate = load(calibrated.url)
    last = newest(surrogate).cases("calibration")[-1]
    monkeypatch.setattr(
        TransientProblem, "steps_to_end", lambda _, case, start: 6 if case.id == last else 9
    )
    with pytest.raises(InputError, match=f"has 9 steps, that of {last} 6; calibrate with cases"):
        calibrate(calibrated.url)


def test_states_of_a_fast_flow_are_distinct(calibrated: RunDirectory) -> None:
    channels = load(calibrated.url).normaliser.channels
    cloud = travelling_wave(5, 0.2, 0)
    fast = type(cloud)(**{**vars(cloud), "time": cloud.time * 8e-7})
    np.testing.assert_array_equal(
        solved_state(channels, fast, 8e-7 * 4), cloud.fields["velocity"][3]
    )
    for at in (1.5, 40.0):
        with pytest.raises(InputError, match="stores no state"):
            solved_state(channels, fast, 8e-7 * at)
