"""CourantConfig: every value is checked, and a round trip through JSON changes nothing."""

import json
from dataclasses import replace
from typing import Any

import pytest

from courant.model import CourantConfig
from courant.models import dump_config, parse_config
from tests.model.clouds import CHOICES, SMALL


@pytest.mark.parametrize("config", CHOICES.values(), ids=CHOICES)
def test_json_round_trip(config: CourantConfig) -> None:
    assert parse_config(json.loads(json.dumps(dump_config(config)))) == config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_features": -1}, "num_features must be a whole number from 0 to 4,096, got -1"),
        ({"num_heads": 30}, "num_heads must be at most the width 20, got 30"),
        ({"width": 21}, "width must be even"),
        ({"num_levels": 600, "num_loops": 1}, "more than 1,024 blocks"),
        ({"num_anchors": 10**5000}, "num_anchors .* to 16,384, got one of 16610 bits"),
        ({"bandwidth": float("inf")}, "bandwidth must be a number from 1e-30 to 1e[+]30, got inf"),
        ({"transient": 1}, "transient must be true or false"),
        (
            {"anchor_kind": "random"},
            "anchor_kind must be one of sampled, learned, abstract, got 'random'",
        ),
        ({"step_size": 0.3}, "one over a whole number"),
        ({"anchor_kind": "abstract", "gaussian_window": "both"}, "needs anchors with positions"),
    ],
)
def test_values_out_of_range_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **change)


def test_unknown_and_missing_fields_are_named() -> None:
    with pytest.raises(ValueError, match=r"has no field num_tokens; .*its fields are"):
        CourantConfig.from_dict({"num_features": 1, "num_outputs": 1, "num_tokens": 3})
    with pytest.raises(ValueError, match="num_outputs"):
        CourantConfig.from_dict({"num_features": 1})
