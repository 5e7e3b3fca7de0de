"""Normalisation: training statistics, one length scale, and an exact way back."""

import json
from typing import Any

import numpy as np
import pytest

from courant.data.normalisation import Normaliser, select_channels
from simgen.errors import InputError


@pytest.fixture
def normaliser(dataset: Any) -> Normaliser:
    return Normaliser.of(dataset, ("velocity",))


def test_training_fields_have_mean_zero_and_unit_variance_in_each_component(
    dataset: Any, normaliser: Normaliser
) -> None:
    cases = [dataset[each] for each in dataset.cases("train")]
    settled = [case["velocity"][:][case.time > dataset.schema.startup_s] for case in cases]
    values = np.concatenate([each.reshape(-1, 2) for each in settled])
    standardised = normaliser.standardise(values)
    np.testing.assert_allclose(standardised.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(standardised.std(0), 1, atol=1e-4)


def test_fields_and_points_come_back(dataset: Any, normaliser: Normaliser) -> None:
    case = dataset[dataset.cases("test")[0]]
    velocity, points = np.asarray(case["velocity"][:]), np.asarray(case.points)
    np.testing.assert_allclose(
        normaliser.restore(normaliser.standardise(velocity)), velocity, atol=1e-6
    )
    np.testing.assert_allclose(
        normaliser.restore_points(normaliser.points(points)), points, atol=1e-5
    )
    # A learned anchor of a 2D family lies in its plane.
    restored = normaliser.restore_points(np.array([[0.2, 0.1, 0.9], [0.2, 0.1, -0.4]]))
    assert (restored[:, 2] == normaliser.centre[2]).all()


def test_lengths_share_one_scale_and_a_2d_case_lies_at_zero(
    dataset: Any, normaliser: Normaliser
) -> None:
    points = np.concatenate([np.asarray(dataset[i].points) for i in dataset.cases("train")])
    scaled = normaliser.points(points)
    assert np.abs(scaled).max() == pytest.approx(1.0)
    assert (scaled[:, 2] == 0).all()
    ratio = np.ptp(scaled[:, :2], axis=0) / np.ptp(points[:, :2], axis=0)
    assert ratio[0] == pytest.approx(ratio[1], rel=1e-4)


def test_the_distance_field_has_distance_and_direction_of_each_kind_in_turn(
    normaliser: Normaliser,
) -> None:
    distance = np.array([[1.0, 2.0, 3.0, 4.0]])
    direction = np.arange(12.0).reshape(1, 4, 3)
    channels = normaliser.distance_channels((distance, direction), 1)
    assert channels.shape == (1, 16)
    assert normaliser.distance_channels(None, 5).shape == (5, 0)
    np.testing.assert_allclose(channels[0, ::4] * normaliser.length_scale, [1, 2, 3, 4], rtol=1e-6)
    np.testing.assert_array_equal(channels[0, 5:8], [3, 4, 5])


def test_it_survives_the_way_through_json(normaliser: Normaliser) -> None:
    assert Normaliser.from_json(json.loads(json.dumps(normaliser.to_json()))) == normaliser


def test_single_components_can_be_modelled(dataset: Any) -> None:
    channels = select_channels(dataset.schema, ("kinematic_pressure", "velocity.y"))
    assert [channel.name for channel in channels] == ["kinematic_pressure.p", "velocity.y"]
    assert [channel.column for channel in channels] == [0, 1]


def test_a_component_that_never_changes_cannot_be_standardised(dataset: Any) -> None:
    with pytest.raises(
        InputError, match=r"kinematic_pressure\.p is constant over the training split"
    ):
        Normaliser.of(dataset, ("kinematic_pressure",))
