"""Wrong inputs are errors of one line with the expected and the given shape."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.model.clouds import CHOICES, random_inputs, random_model

PARAMETERS = CHOICES["design parameters"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"points": torch.zeros(2, 17, 2)}, r"points must be \(B, N, 3\), got \(2, 17, 2\)"),
        ({"features": torch.zeros(2, 17, 5)}, r"features must be \(2, 17, 4\), got \(2, 17, 5\)"),
        (
            {"query_points": torch.zeros(3, 11, 3)},
            r"query_points must be \(2, 'M', 3\), got \(3, 11, 3\)",
        ),
        ({"query_features": None}, r"query_features must be \(2, 11, 3\), got None"),
        ({"mask": torch.ones(2, 17)}, r"mask must be bool \(2, 17\), got torch.float32"),
        ({"parameters": None}, r"parameters must be \(2, 3\), got None"),
        ({"num_steps": 4}, "predicts one step, got num_steps=4"),
        ({"anchors": torch.zeros(2, 4, 3)}, r"anchors must be \(2, 5, 3\), got \(2, 4, 3\)"),
    ],
)
def test_shapes_are_checked(change: dict[str, Any], message: str) -> None:
    inputs = replace(random_inputs(PARAMETERS), **change)
    with pytest.raises(ValueError, match=message):
        random_model(PARAMETERS)(**inputs.arguments())


def test_a_windowed_decoder_asks_for_the_anchors() -> None:
    config = CHOICES["window in decoder"]
    model, inputs = random_model(config), random_inputs(config)
    Z = model.encode(inputs.cloud)
    with pytest.raises(ValueError, match="place_anchors"):
        model.decode(Z, inputs.queries)
