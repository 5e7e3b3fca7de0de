"""Bands of a transient model: those of windows, and those of quantities of whole rollouts."""

from __future__ import annotations

import numpy as np
import pytest

import simgen
from courant.evaluation import coverage
from courant.evaluation.calibrate import calibrate, newest
from courant.evaluation.coverage import FIELD, measure_coverage
from courant.prediction import bands
from courant.prediction.bands import Bands, Span, shared_ranges
from courant.prediction.design import solved_state
from courant.prediction.surrogate import load
from courant.runs.directory import RunDirectory
from courant.training.loop import fit
from simgen.case import CaseResult
from simgen.cases import get_family
from simgen.errors import InputError
from simgen.store.schema import Schema
from simgen.store.write import DatasetWriter
from tests.training.waves import design_point, publish_waves, tiny_experiment, travelling_wave


def add(url: str, split: str, radii: list[float]) -> None:
    writer = DatasetWriter.open(url, Schema.of(get_family("cylinder-flow")))
    fork = writer.fork()
    for number, radius in enumerate(radii):
        cloud = travelling_wave(40, 0.4 * radius - 0.2, number)
        other = design_point(0)
        point = get_family("cylinder-flow").point(
            {**other.parameters, "radius": radius}, other.settings
        )
        fork.write(CaseResult(point, "accepted", split=split), cloud)
    writer.commit([fork])
    writer.publish(split)


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
    assert surrogate.bands.span is not None and start is not None
    assert surrogate.bands.span.start_s == start
    assert surrogate.bands.span.steps == surrogate.problem.steps_to_end(case, start)


def test_windows_and_whole_rollouts_are_refused_apart(
    calibrated: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coverage, "absolute_errors", lambda *pair: {"strouhal": 0.1})
    monkeypatch.setattr(Bands, "quantity", lambda *of: 1.0)
    assert set(measure_coverage(calibrated.url).bands) == {FIELD, "strouhal"}
    with monkeypatch.context() as patched:
        patched.setattr(coverage, "refused", lambda *of: "far away")
        assert set(measure_coverage(calibrated.url).bands) == {FIELD}
    with monkeypatch.context() as patched:
        patched.setattr(bands, "refused", lambda *of: "far away")
        found = measure_coverage(calibrated.url)
    assert set(found.bands) == {"strouhal"} and len(found.refused) == found.num_cases


def test_rollouts_of_different_lengths_calibrate_nothing(
    calibrated: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    surrogate = load(calibrated.url)
    last = newest(surrogate).cases("calibration")[-1]
    monkeypatch.setattr(
        "courant.evaluation.calibrate._span",
        lambda _, case: Span(start_s=1.0, steps=6 if case.id == last else 9),
    )
    with pytest.raises(InputError, match=f"has 9 steps, that of {last} 6; calibrate with cases"):
        calibrate(calibrated.url)


def test_designs_without_parameters_have_no_ranges() -> None:
    assert shared_ranges(np.zeros((5, 0)), np.zeros((4, 0))) == ()


def test_states_of_a_fast_flow_are_told_apart(calibrated: RunDirectory) -> None:
    surrogate = load(calibrated.url)
    cloud = travelling_wave(5, 0.2, 0)
    fast = type(cloud)(**{**vars(cloud), "time": cloud.time * 8e-7})
    np.testing.assert_array_equal(
        solved_state(surrogate, fast, 8e-7 * 4), cloud.fields["velocity"][3]
    )
    for at in (1.5, 40.0):
        with pytest.raises(InputError, match="stores no state"):
            solved_state(surrogate, fast, 8e-7 * at)
