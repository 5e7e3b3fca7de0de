"""Distance fields from design parameters."""

import numpy as np
import pytest

from courant.data import geometry
from courant.data.geometry import distance_field
from simgen.cases.cylinder import family as cylinder
from simgen.errors import InputError

PARAMETERS = {"radius": 2.0, "center_x": 1.0, "center_y": -1.0}


def test_the_channel_is_the_one_that_is_meshed() -> None:
    channel = (geometry.INLET_X, geometry.OUTLET_X, geometry.HALF_HEIGHT)
    assert channel == (cylinder.INLET_X, cylinder.OUTLET_X, cylinder.HALF_HEIGHT)
    assert cylinder.CylinderFlow().patch_kinds == ("inlet", "outlet", "wall", "cylinder")


def test_distances_and_directions_of_a_point_that_one_can_draw() -> None:
    distance, direction = distance_field("cylinder-flow", np.array([[1.0, 4.0, 0.0]]), PARAMETERS)
    np.testing.assert_allclose(distance, [[21.0, 39.0, 6.0, 3.0]])
    np.testing.assert_allclose(
        direction, [[[-1, 0, 0], [1, 0, 0], [0, 1, 0], [0, -1, 0]]], atol=1e-12
    )


@pytest.mark.parametrize("point", [(1.0, 0.0, 0.0), (50.0, 0.0, 0.0), (0.0, -11.0, 0.0)])
def test_points_outside_the_fluid_are_refused(point: tuple[float, float, float]) -> None:
    with pytest.raises(
        InputError, match="1 of 1 points lie outside the channel or inside the cylinder"
    ):
        distance_field("cylinder-flow", np.array([point]), PARAMETERS)
