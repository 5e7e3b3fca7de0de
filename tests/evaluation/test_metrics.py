"""Error measures against numbers worked out by hand."""

import numpy as np
import pytest

from courant.evaluation.metrics import ALL, ErrorSums


def sums(*windows):
    result = ErrorSums(("velocity.x", "velocity.y"))
    for prediction, truth in windows:
        result.add(np.asarray(prediction, float), np.asarray(truth, float))
    return result


ONE_STEP = ([[[1.0, 2.0], [3.0, 4.0]]], [[[2.0, 2.0], [2.0, 8.0]]])  # (T=1, N=2, C=2)


def test_nmae_is_the_sum_of_errors_over_the_sum_of_magnitudes():
    nmae = sums(ONE_STEP).nmae()
    assert nmae[ALL] == pytest.approx([(1 + 0 + 1 + 4) / (2 + 2 + 2 + 8)])
    assert nmae["velocity.x"] == pytest.approx([2 / 4])
    assert nmae["velocity.y"] == pytest.approx([4 / 10])


def test_relative_l2_is_a_ratio_of_norms():
    relative = sums(ONE_STEP).relative_l2()
    assert relative[ALL] == pytest.approx([np.sqrt((1 + 0 + 1 + 16) / (4 + 4 + 4 + 64))])
    assert relative["velocity.y"] == pytest.approx([np.sqrt(16 / 68)])


def test_windows_pool_their_absolute_errors_and_average_their_relative_norms():
    quiet = ([[[0.0, 0.0]]], [[[0.1, 0.1]]])
    loud = ([[[10.0, 10.0]]], [[[10.0, 10.0]]])
    both = sums(quiet, loud)
    assert both.nmae()[ALL] == pytest.approx([0.2 / 20.2])
    assert both.relative_l2()[ALL] == pytest.approx([0.5])
    assert both.total()["relative_l2"] == pytest.approx(0.5)
    assert len(both.windows) == 2


def test_a_perfect_prediction_has_no_error_and_steps_stay_apart():
    truth = np.random.default_rng(0).normal(size=(3, 5, 2))
    prediction = truth.copy()
    prediction[1] *= 2
    measured = sums((prediction, truth))
    assert measured.nmae()[ALL] == pytest.approx([0, 1, 0])
    assert measured.relative_l2()[ALL] == pytest.approx([0, 1, 0])


def test_shapes_that_differ_are_refused():
    with pytest.raises(ValueError, match=r"prediction has shape \(1, 2, 2\), truth \(1, 3, 2\)"):
        ErrorSums(("x", "y")).add(np.zeros((1, 2, 2)), np.zeros((1, 3, 2)))


def test_fields_of_different_units_are_not_summed_but_averaged():
    """A pressure of thousands does not drown a velocity of ones."""
    measured = ErrorSums(("velocity.x", "velocity.y", "kinematic_pressure.p"))
    truth = np.array([[[1.0, 1.0, 1000.0], [1.0, 1.0, 1000.0]]])
    measured.add(truth * (1.5, 1.5, 1.1), truth)
    assert measured.nmae()[ALL] == pytest.approx([(0.5 + 0.1) / 2])
    assert measured.relative_l2()[ALL] == pytest.approx([(0.5 + 0.1) / 2])
    assert measured.total() == pytest.approx({"nmae": 0.3, "relative_l2": 0.3, "maximum": 0.3})


def test_the_largest_error_is_told_over_the_largest_value():
    quiet = ([[[0.0, 0.0]]], [[[0.1, 0.1]]])
    both = sums(ONE_STEP, quiet)
    assert both.total()["maximum"] == pytest.approx(4 / 8)
    assert both.total("velocity.x")["maximum"] == pytest.approx(1 / 2)


def test_a_component_that_is_zero_in_a_window_has_no_relative_error_there():
    moving = ([[[1.0, 1.1]]], [[[1.0, 1.0]]])
    without_y = ([[[1.0, 0.01]]], [[[1.0, 0.0]]])
    both = sums(moving, without_y)
    assert both.relative_l2()["velocity.y"] == pytest.approx([0.1])
    assert both.total("velocity.y")["relative_l2"] == pytest.approx(0.1)
    assert both.total()["relative_l2"] == pytest.approx((0.1 / np.sqrt(2) + 0.01) / 2)


def test_the_error_over_the_variation_is_measured_about_the_mean_of_the_training():
    measured = ErrorSums(("velocity.x", "velocity.y"))
    measured.add(*map(np.asarray, ONE_STEP), np.array([1.0, 4.0]))
    assert measured.total("velocity.x")["rae"] == pytest.approx(2 / (1 + 1))
    assert measured.total("velocity.y")["rae"] == pytest.approx(4 / (2 + 4))
    assert measured.total()["rae"] == pytest.approx(6 / 8)


def test_an_offset_of_a_temperature_leaves_its_error_over_the_variation_unchanged():
    """NMAE of the same error falls a hundred times once 300 K are added to the field."""
    truth = np.random.default_rng(0).normal(size=(2, 40, 1))
    prediction, mean = truth + 0.5, truth.mean(axis=(0, 1))
    found = []
    for offset in (0.0, 300.0):
        measured = ErrorSums(("temperature.T",))
        measured.add(prediction + offset, truth + offset, mean + offset)
        found.append(measured.total())
    assert found[1]["rae"] == pytest.approx(found[0]["rae"], rel=1e-9)
    assert found[1]["nmae"] < found[0]["nmae"] / 100


def test_the_mean_of_the_training_everywhere_has_an_error_of_its_variation():
    truth = np.random.default_rng(0).normal(300.0, 2.0, size=(1, 40, 1))
    measured = ErrorSums(("temperature.T",))
    measured.add(np.full_like(truth, 299.0), truth, np.array([299.0]))
    assert measured.total()["rae"] == pytest.approx(1.0)


def test_a_small_variation_is_one() -> None:
    measured = ErrorSums(("temperature.T",))
    measured.add(np.full((1, 4, 1), 0.2), np.full((1, 4, 1), 0.1), np.zeros(1))
    assert measured.total()["rae"] == pytest.approx(1.0)


def test_a_field_that_does_not_vary_has_no_error_over_its_variation():
    measured = ErrorSums(("temperature.T",))
    measured.add(np.full((1, 3, 1), 301.0), np.full((1, 3, 1), 300.0), np.array([300.0]))
    assert np.isnan(measured.total()["rae"])
    assert measured.total()["nmae"] == pytest.approx(1 / 300)


def test_a_field_that_is_zero_everywhere_is_left_out_of_the_mean_and_a_wrong_one_is_not():
    result = ErrorSums(("velocity.x", "heat.t"))
    result.add(np.array([[[1.0, 0.5]], [[3.0, 0.0]]]), np.array([[[2.0, 0.0]], [[2.0, 0.0]]]))
    assert result.total() == pytest.approx({"nmae": 0.5, "relative_l2": 0.5, "maximum": 0.5})
    assert result.nmae()[ALL] == pytest.approx([0.5, 0.5])
    assert result.relative_l2()[ALL] == pytest.approx([0.5, 0.5])
    assert np.isnan(result.total("heat.t")["nmae"])
    result.add(np.array([[[np.nan, 0.5]], [[3.0, 0.0]]]), np.array([[[2.0, 0.0]], [[2.0, 0.0]]]))
    assert np.isnan(result.total()["nmae"])
