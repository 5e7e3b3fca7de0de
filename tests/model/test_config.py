"""CourantConfig: every value is checked, and a round trip through JSON changes nothing."""

from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from courant.model import CourantConfig
from tests.model.clouds import CHOICES, SMALL


@pytest.mark.parametrize("config", CHOICES.values(), ids=CHOICES)
def test_json_round_trip(config: CourantConfig) -> None:
    assert CourantConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_features": -1}, "num_features must be a whole number of at least 0, got -1"),
        ({"num_outputs": 0}, "num_outputs"),
        ({"num_anchors": 0}, "num_anchors"),
        ({"num_heads": 2.5}, "num_heads"),
        ({"num_heads": 30}, "num_heads 30 is more than width 20"),
        ({"num_levels": True}, "num_levels"),
        ({"width": 21}, "width must be even"),
        ({"dimension": 4}, "dimension must be 1, 2 or 3, got 4"),
        ({"bandwidth": 0.0}, "bandwidth must be positive"),
        ({"bandwidth": float("nan")}, "bandwidth must be positive"),
        ({"anchor_kind": "random"}, "anchor_kind must be one of sampled, learned, abstract, got 'random'"),
        ({"gaussian_window": True}, "gaussian_window must be one of"),
        ({"solver": "leapfrog"}, "solver must be one of euler"),
        ({"processor": "gru"}, "processor must be one of"),
        ({"step_size": 0.3}, "one over a whole number"),
        ({"step_size": 2.0}, "one over a whole number"),
        ({"anchor_kind": "abstract", "gaussian_window": "both"}, "needs anchors with positions"),
    ],
)
def test_values_out_of_range_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **change)


def test_unknown_and_missing_fields_are_named() -> None:
    with pytest.raises(ValueError, match="has no field num_tokens; its fields are"):
        CourantConfig.from_json('{"num_features": 1, "num_outputs": 1, "num_tokens": 3}')
    with pytest.raises(ValueError, match="num_outputs"):
        CourantConfig.from_json('{"num_features": 1}')


def test_a_config_is_frozen_and_hashable() -> None:
    with pytest.raises(FrozenInstanceError):
        SMALL.width = 3  # type: ignore[misc]
    assert hash(SMALL) == hash(replace(SMALL))
