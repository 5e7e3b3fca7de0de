"""Error measures against numbers worked out by hand."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from courant.evaluation import metrics
from courant.evaluation.evaluate import evaluate
from courant.evaluation.metrics import ALL, ErrorSums, FieldSums, Metric
from courant.report.report import write_report
from courant.runs.directory import RunDirectory
from tests.world import World


def sums(*windows, components=("velocity.x", "velocity.y"), mean=None):
    result = ErrorSums(components)
    for prediction, truth in windows:
        result.add(np.asarray(prediction, float), np.asarray(truth, float), mean)
    return result


ONE_STEP = ([[[1.0, 2.0], [3.0, 4.0]]], [[[2.0, 2.0], [2.0, 8.0]]])  # (T=1, N=2, C=2)
QUIET = ([[[0.0, 0.0]]], [[[0.1, 0.1]]])


def test_measures_of_one_window_are_those_of_their_formulas():
    found = sums(ONE_STEP, mean=np.array([1.0, 4.0]))
    assert found.by_step("nmae")[ALL] == pytest.approx([(1 + 0 + 1 + 4) / (2 + 2 + 2 + 8)])
    assert found.by_step("nmae")["velocity.x"] == pytest.approx([2 / 4])
    assert found.by_step("nmae")["velocity.y"] == pytest.approx([4 / 10])
    relative = found.by_step("relative_l2")
    assert relative[ALL] == pytest.approx([np.sqrt((1 + 0 + 1 + 16) / (4 + 4 + 4 + 64))])
    assert relative["velocity.y"] == pytest.approx([np.sqrt(16 / 68)])
    assert found.total("velocity.x")["rae"] == pytest.approx(2 / (1 + 1))
    assert found.total("velocity.y")["rae"] == pytest.approx(4 / (2 + 4))
    assert found.total()["rae"] == pytest.approx(6 / 8)
    with pytest.raises(ValueError, match=r"prediction has shape \(1, 2, 2\), truth \(1, 3, 2\)"):
        ErrorSums(("x", "y")).add(np.zeros((1, 2, 2)), np.zeros((1, 3, 2)))


def test_windows_pool_their_absolute_errors_and_average_their_relative_norms():
    both = sums(QUIET, ([[[10.0, 10.0]]], [[[10.0, 10.0]]]))
    assert both.by_step("nmae")[ALL] == pytest.approx([0.2 / 20.2])
    assert both.by_step("relative_l2")[ALL] == pytest.approx([0.5])
    assert both.total()["relative_l2"] == pytest.approx(0.5)
    largest = sums(ONE_STEP, QUIET)
    assert largest.total()["maximum"] == pytest.approx(4 / 8)
    assert largest.total("velocity.x")["maximum"] == pytest.approx(1 / 2)


def test_a_perfect_prediction_has_no_error_and_steps_stay_apart():
    truth = np.random.default_rng(0).normal(size=(3, 5, 2))
    measured = sums((truth * np.array([1, 2, 1])[:, None, None], truth))
    assert measured.by_step("nmae")[ALL] == pytest.approx([0, 1, 0])
    assert measured.by_step("relative_l2")[ALL] == pytest.approx([0, 1, 0])


def test_fields_of_different_units_are_not_summed_but_averaged():
    """A pressure of thousands does not drown a velocity of ones."""
    truth = np.array([[[1.0, 1.0, 1000.0], [1.0, 1.0, 1000.0]]])
    components = ("velocity.x", "velocity.y", "kinematic_pressure.p")
    measured = sums((truth * (1.5, 1.5, 1.1), truth), components=components)
    assert measured.by_step("nmae")[ALL] == pytest.approx([(0.5 + 0.1) / 2])
    assert measured.by_step("relative_l2")[ALL] == pytest.approx([(0.5 + 0.1) / 2])
    assert measured.total() == pytest.approx({"nmae": 0.3, "relative_l2": 0.3, "maximum": 0.3})
    # In another unit a field has the same relative error.
    truth = truth * (1.0, 1.0, 1e-9)
    small = sums((truth * (1.5, 1.5, 1.1), truth), components=components)
    assert small.total() == pytest.approx(measured.total())


def test_a_component_that_is_zero_in_a_window_has_no_relative_error_there():
    both = sums(([[[1.0, 1.1]]], [[[1.0, 1.0]]]), ([[[1.0, 0.01]]], [[[1.0, 0.0]]]))
    assert both.by_step("relative_l2")["velocity.y"] == pytest.approx([0.1])
    assert both.total()["relative_l2"] == pytest.approx((0.1 / np.sqrt(2) + 0.01) / 2)


def test_an_offset_of_a_temperature_leaves_its_error_over_the_variation_unchanged():
    """NMAE of the same error falls a hundred times once 300 K are added to the field."""
    truth, heat = np.random.default_rng(0).normal(size=(2, 40, 1)), ("temperature.T",)
    mean = truth.mean(axis=(0, 1))
    plain, warm = (
        sums((truth + 0.5 + K, truth + K), components=heat, mean=mean + K).total()
        for K in (0.0, 300.0)
    )
    assert warm["rae"] == pytest.approx(plain["rae"], rel=1e-9)
    assert warm["nmae"] < plain["nmae"] / 100
    everywhere = sums((np.full_like(truth, 0.1), truth), components=heat, mean=np.array([0.1]))
    assert everywhere.total()["rae"] == pytest.approx(1.0)
    still = np.full((1, 3, 1), 300.0)
    constant = sums((still + 1, still), components=heat, mean=np.array([300.0])).total()
    assert np.isnan(constant["rae"]) and constant["nmae"] == pytest.approx(1 / 300)


def test_a_field_that_is_zero_everywhere_is_left_out_of_the_mean_and_a_wrong_one_is_not():
    window = ([[[1.0, 0.5]], [[3.0, 0.0]]], [[[2.0, 0.0]], [[2.0, 0.0]]])
    result = sums(window, components=("velocity.x", "heat.t"))
    assert result.total() == pytest.approx({"nmae": 0.5, "relative_l2": 0.5, "maximum": 0.5})
    for name in ("nmae", "relative_l2"):
        assert result.by_step(name)[ALL] == pytest.approx([0.5, 0.5])
    assert np.isnan(result.total("heat.t")["nmae"])
    wrong = ([[[np.nan, 0.5]], [[3.0, 0.0]]], window[1])
    found = sums(window, wrong, components=("velocity.x", "heat.t")).total()
    assert np.isnan([found["nmae"], found["relative_l2"]]).all()


def test_a_registered_metric_is_in_the_evaluation_the_tables_the_report_and_the_json(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rms(sums: FieldSums) -> float:
        return float(np.sqrt(sums.squared.sum() / sums.power.sum()))

    assert metrics.METRICS["maximum"].digits == 2
    run = RunDirectory(shutil.copytree(world.ducts_run(), tmp_path / "run"))
    before = evaluate(run.url)
    metric = Metric("joint RMS", "The joint RMS is over all {over} together.", rms)
    monkeypatch.setitem(metrics.METRICS, "joint_rms", metric)
    found = evaluate(run.url)
    assert found.fingerprint != before.fingerprint, "it is measured again"
    value = found.overall["model"]["joint_rms"]
    assert value > 0 and found.overall["model"].nmae == before.overall["model"].nmae
    record = json.loads(Path(run.path("evaluation.json")).read_text())
    assert record["overall"]["model"]["joint_rms"] == value
    page = Path(write_report(run.url, str(tmp_path / "report"))).read_text()
    assert "joint RMS" in page and f"{value:.3f}" in page
